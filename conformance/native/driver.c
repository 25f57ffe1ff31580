/* The second level: CUDA's driver API. A program with a static runtime gets its driver calls from cuGetProcAddress.
 *
 * The library that this is in has the driver's soname and depends on the real one, so that it is what a program
 * gets that loads the driver by name.
 */
#include "inject.h"

#include <string.h>

static struct api cu = {
    .name = "cu",
    .library = "libcuda.so",
    .names = {[RECORD] = "cuEventRecord", [RECORD_FLAGS] = "cuEventRecordWithFlags", [WAIT] = "cuStreamWaitEvent",
              [QUERY] = "cuEventQuery", [SYNC] = "cuEventSynchronize", [DESTROY] = "cuEventDestroy_v2",
              [ELAPSED] = "cuEventElapsedTime", [ELAPSED_V2] = "cuEventElapsedTime_v2",
              [CREATE_FLAGS] = "cuEventCreate", [STREAM_QUERY] = "cuStreamQuery",
              [STREAM_SYNC] = "cuStreamSynchronize", [STREAM_DESTROY] = "cuStreamDestroy_v2",
              [DEVICE_SYNC] = "cuCtxSynchronize", [CAPTURING] = "cuStreamIsCapturing",
              [CAPTURE_MODE] = "cuThreadExchangeStreamCaptureMode", [GET_PLACE] = "cuCtxGetCurrent"},
    .wait_value = {"cuStreamWaitValue32_v2", "cuStreamWaitValue32"},
    .host_register = "cuMemHostRegister_v2",
    .device_pointer = "cuMemHostGetDevicePointer_v2",
    .other = "libcuda.so",
    .pointer_place = true};

#define RECORDS(NAME, STREAM)                                        \
  EXPORT int cuEventRecord##NAME(void *e, void *s) {                 \
    CALLED("cuEventRecord" #NAME);                                   \
    return on_record(&cu, e, STREAM, 0, false);                      \
  }                                                                  \
  EXPORT int cuEventRecordWithFlags##NAME(void *e, void *s, unsigned f) { \
    CALLED("cuEventRecordWithFlags" #NAME);                          \
    return on_record(&cu, e, STREAM, f, true);                       \
  }                                                                  \
  EXPORT int cuStreamWaitEvent##NAME(void *s, void *e, unsigned f) { \
    CALLED("cuStreamWaitEvent" #NAME);                               \
    return on_wait(&cu, STREAM, e, f);                               \
  }                                                                  \
  EXPORT int cuStreamQuery##NAME(void *s) {                          \
    CALLED("cuStreamQuery" #NAME);                                   \
    return on_stream_query(&cu, STREAM);                             \
  }                                                                  \
  EXPORT int cuStreamSynchronize##NAME(void *s) {                    \
    CALLED("cuStreamSynchronize" #NAME);                             \
    return on_stream_sync(&cu, STREAM);                              \
  }
RECORDS(, s)
RECORDS(_ptsz, OWN(s))

EXPORT int cuEventQuery(void *e) {
  CALLED("cuEventQuery");
  return on_query(&cu, e);
}
EXPORT int cuEventSynchronize(void *e) {
  CALLED("cuEventSynchronize");
  return on_sync(&cu, e);
}
EXPORT int cuEventDestroy(void *e) {
  CALLED("cuEventDestroy");
  return on_destroy(&cu, e);
}
EXPORT int cuEventDestroy_v2(void *e) {
  CALLED("cuEventDestroy_v2");
  return on_destroy(&cu, e);
}
EXPORT int cuEventElapsedTime(float *ms, void *a, void *b) {
  CALLED("cuEventElapsedTime");
  return on_elapsed(&cu, ELAPSED, ms, a, b);
}
EXPORT int cuEventElapsedTime_v2(float *ms, void *a, void *b) {
  CALLED("cuEventElapsedTime_v2");
  return on_elapsed(&cu, ELAPSED_V2, ms, a, b);
}
EXPORT int cuEventCreate(void **e, unsigned f) {
  CALLED("cuEventCreate");
  return on_create(&cu, e, f, true);
}
EXPORT int cuStreamDestroy(void *s) {
  CALLED("cuStreamDestroy");
  return on_stream_destroy(&cu, s);
}
EXPORT int cuStreamDestroy_v2(void *s) {
  CALLED("cuStreamDestroy_v2");
  return on_stream_destroy(&cu, s);
}
EXPORT int cuCtxSynchronize(void) {
  CALLED("cuCtxSynchronize");
  return on_device_sync(&cu);
}
EXPORT int cuCtxSynchronize_v2(void *context) {
  static _Atomic(void *) real;
  CALLED("cuCtxSynchronize_v2");
  flush();
  return NAMED(&cu, "cuCtxSynchronize_v2", (void *), context);
}

/* A context ends, and with it its events, streams and registered memory. */
#define ENDS(NAME, TYPE, GONE)                     \
  EXPORT int NAME(TYPE which) {                    \
    static _Atomic(void *) real;                   \
    CALLED(#NAME);                                 \
    before_reset();                                \
    int code = NAMED(&cu, #NAME, (TYPE), which);   \
    after_reset(GONE);                             \
    return code;                                   \
  }
ENDS(cuCtxDestroy, void *, true)
ENDS(cuCtxDestroy_v2, void *, true)
ENDS(cuDevicePrimaryCtxReset, int, true)
ENDS(cuDevicePrimaryCtxReset_v2, int, true)

/* The primary context lives on while somebody else retains it. */
static bool has_ended(int device) {
  static _Atomic(void *) real;
  unsigned flags;
  int active = 0;
  return NAMED(&cu, "cuDevicePrimaryCtxGetState", (int, unsigned *, int *), device, &flags, &active) || !active;
}
ENDS(cuDevicePrimaryCtxRelease, int, has_ended(which))
ENDS(cuDevicePrimaryCtxRelease_v2, int, has_ended(which))

#define COPY(NAME, STREAM)                                                     \
  EXPORT int NAME(void *to, const void *from, size_t n, void *s) {             \
    static _Atomic(void *) real;                                               \
    CALLED(#NAME);                                                             \
    before_copy(&cu, STREAM);                                                  \
    return NAMED(&cu, #NAME, (void *, const void *, size_t, void *), to, from, n, s); \
  }
COPY(cuMemcpyAsync, s)
COPY(cuMemcpyAsync_ptsz, OWN(s))
COPY(cuMemcpyDtoHAsync_v2, s)
COPY(cuMemcpyDtoHAsync_v2_ptsz, OWN(s))
COPY(cuMemcpyHtoDAsync_v2, s)
COPY(cuMemcpyHtoDAsync_v2_ptsz, OWN(s))
COPY(cuMemcpyDtoDAsync_v2, s)
COPY(cuMemcpyDtoDAsync_v2_ptsz, OWN(s))

EXPORT int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

const struct hook driver_hooks[] = {
    HOOK(cuEventRecord), HOOK(cuEventRecord_ptsz), HOOK(cuEventRecordWithFlags), HOOK(cuEventRecordWithFlags_ptsz),
    HOOK(cuStreamWaitEvent), HOOK(cuStreamWaitEvent_ptsz), HOOK(cuEventQuery), HOOK(cuEventSynchronize),
    HOOK(cuEventDestroy), HOOK(cuEventDestroy_v2), HOOK(cuEventElapsedTime), HOOK(cuEventElapsedTime_v2),
    HOOK(cuEventCreate), HOOK(cuStreamQuery), HOOK(cuStreamQuery_ptsz), HOOK(cuStreamSynchronize),
    HOOK(cuStreamSynchronize_ptsz), HOOK(cuStreamDestroy), HOOK(cuStreamDestroy_v2), HOOK(cuCtxSynchronize),
    HOOK(cuCtxSynchronize_v2), HOOK(cuCtxDestroy), HOOK(cuCtxDestroy_v2), HOOK(cuDevicePrimaryCtxReset),
    HOOK(cuDevicePrimaryCtxReset_v2), HOOK(cuDevicePrimaryCtxRelease), HOOK(cuDevicePrimaryCtxRelease_v2),
    HOOK(cuMemcpyAsync), HOOK(cuMemcpyAsync_ptsz), HOOK(cuMemcpyDtoHAsync_v2),
    HOOK(cuMemcpyDtoHAsync_v2_ptsz), HOOK(cuMemcpyHtoDAsync_v2), HOOK(cuMemcpyHtoDAsync_v2_ptsz),
    HOOK(cuMemcpyDtoDAsync_v2), HOOK(cuMemcpyDtoDAsync_v2_ptsz), HOOK(cuGetProcAddress), HOOK(cuGetProcAddress_v2),
    {NULL, NULL}};

/* A name stands for several functions, by version and by flags: the address says which one the driver chose. */
static void replace(const char *symbol, void **function) {
  size_t length = strlen(symbol);
  for (const struct hook *hook = driver_hooks; hook->name; ++hook)
    if (!strncmp(hook->name, symbol, length) && find_real(cu.library, hook->name) == *function) {
      *function = hook->wrapper;
      return;
    }
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  static _Atomic(void *) real;
  CALLED("cuGetProcAddress");
  int code = NAMED(&cu, "cuGetProcAddress", (const char *, void **, int, uint64_t), symbol, function, version, flags);
  if (!code && symbol && function && *function) replace(symbol, function);
  return code;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
  static _Atomic(void *) real;
  CALLED("cuGetProcAddress_v2");
  int code = NAMED(&cu, "cuGetProcAddress_v2", (const char *, void **, int, uint64_t, int *), symbol, function, version,
                   flags, status);
  if (!code && symbol && function && *function) replace(symbol, function);
  return code;
}
