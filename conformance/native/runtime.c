/* The runtime API of three vendors: the same wrappers under three prefixes.
 *
 * Where a program is built for per-thread default streams, its calls have names of their own (with a suffix) in
 * which stream 0 means the thread's own, which is number 2 in the plain calls. HIP's and MUSA's numbers follow CUDA's.
 */
#include "inject.h"

#define FAMILY(V, LIBRARY, WAIT1, WAIT2, REGISTER, POINTER, OTHER, MASK)                                            \
  static struct api V = {                                                                                           \
      .name = #V,                                                                                                   \
      .library = LIBRARY,                                                                                           \
      .names = {[RECORD] = #V "EventRecord", [RECORD_FLAGS] = #V "EventRecordWithFlags",                            \
                [WAIT] = #V "StreamWaitEvent", [QUERY] = #V "EventQuery", [SYNC] = #V "EventSynchronize",           \
                [DESTROY] = #V "EventDestroy", [ELAPSED] = #V "EventElapsedTime",                                  \
                [ELAPSED_V2] = #V "EventElapsedTime_v2", [CREATE] = #V "EventCreate",                               \
                [CREATE_FLAGS] = #V "EventCreateWithFlags", [STREAM_QUERY] = #V "StreamQuery",                      \
                [STREAM_SYNC] = #V "StreamSynchronize", [STREAM_DESTROY] = #V "StreamDestroy",                      \
                [DEVICE_SYNC] = #V "DeviceSynchronize", [RESET] = #V "DeviceReset",                                 \
                [CAPTURING] = #V "StreamIsCapturing", [CAPTURE_MODE] = #V "ThreadExchangeStreamCaptureMode",        \
                [PEEK] = #V "PeekAtLastError", [LAST] = #V "GetLastError", [GET_PLACE] = #V "GetDevice",            \
                [SET_PLACE] = #V "SetDevice"},                                                                      \
      .wait_value = {WAIT1, WAIT2},                                                                                 \
      .host_register = REGISTER,                                                                                    \
      .device_pointer = POINTER,                                                                                    \
      .other = OTHER,                                                                                               \
      .mask = MASK};

/* S: the suffix of the names for per-thread default streams. */
#define WRAPPERS(V, S)                                                                                              \
  EXPORT int V##EventRecord(void *e, void *s) {                                                                     \
    CALLED(#V "EventRecord");                                                                                       \
    return on_record(&V, e, s, 0, false);                                                                           \
  }                                                                                                                 \
  EXPORT int V##EventRecord##S(void *e, void *s) {                                                                  \
    CALLED(#V "EventRecord" #S);                                                                                    \
    return on_record(&V, e, OWN(s), 0, false);                                                                      \
  }                                                                                                                 \
  EXPORT int V##EventRecordWithFlags(void *e, void *s, unsigned f) {                                                \
    CALLED(#V "EventRecordWithFlags");                                                                              \
    return on_record(&V, e, s, f, true);                                                                            \
  }                                                                                                                 \
  EXPORT int V##EventRecordWithFlags##S(void *e, void *s, unsigned f) {                                             \
    CALLED(#V "EventRecordWithFlags" #S);                                                                           \
    return on_record(&V, e, OWN(s), f, true);                                                                       \
  }                                                                                                                 \
  EXPORT int V##StreamWaitEvent(void *s, void *e, unsigned f) {                                                     \
    CALLED(#V "StreamWaitEvent");                                                                                   \
    return on_wait(&V, s, e, f);                                                                                    \
  }                                                                                                                 \
  EXPORT int V##StreamWaitEvent##S(void *s, void *e, unsigned f) {                                                  \
    CALLED(#V "StreamWaitEvent" #S);                                                                                \
    return on_wait(&V, OWN(s), e, f);                                                                               \
  }                                                                                                                 \
  EXPORT int V##EventQuery(void *e) {                                                                               \
    CALLED(#V "EventQuery");                                                                                        \
    return on_query(&V, e);                                                                                         \
  }                                                                                                                 \
  EXPORT int V##EventSynchronize(void *e) {                                                                         \
    CALLED(#V "EventSynchronize");                                                                                  \
    return on_sync(&V, e);                                                                                          \
  }                                                                                                                 \
  EXPORT int V##EventDestroy(void *e) {                                                                             \
    CALLED(#V "EventDestroy");                                                                                      \
    return on_destroy(&V, e);                                                                                       \
  }                                                                                                                 \
  EXPORT int V##EventElapsedTime(float *ms, void *a, void *b) {                                                     \
    CALLED(#V "EventElapsedTime");                                                                                  \
    return on_elapsed(&V, ELAPSED, ms, a, b);                                                                       \
  }                                                                                                                 \
  EXPORT int V##EventElapsedTime_v2(float *ms, void *a, void *b) {                                                  \
    CALLED(#V "EventElapsedTime_v2");                                                                               \
    return on_elapsed(&V, ELAPSED_V2, ms, a, b);                                                                    \
  }                                                                                                                 \
  EXPORT int V##EventCreate(void **e) {                                                                             \
    CALLED(#V "EventCreate");                                                                                       \
    return on_create(&V, e, 0, false);                                                                              \
  }                                                                                                                 \
  EXPORT int V##EventCreateWithFlags(void **e, unsigned f) {                                                        \
    CALLED(#V "EventCreateWithFlags");                                                                              \
    return on_create(&V, e, f, true);                                                                               \
  }                                                                                                                 \
  EXPORT int V##StreamQuery(void *s) {                                                                              \
    CALLED(#V "StreamQuery");                                                                                       \
    return on_stream_query(&V, s);                                                                                  \
  }                                                                                                                 \
  EXPORT int V##StreamQuery##S(void *s) {                                                                           \
    CALLED(#V "StreamQuery" #S);                                                                                    \
    return on_stream_query(&V, OWN(s));                                                                             \
  }                                                                                                                 \
  EXPORT int V##StreamSynchronize(void *s) {                                                                        \
    CALLED(#V "StreamSynchronize");                                                                                 \
    return on_stream_sync(&V, s);                                                                                   \
  }                                                                                                                 \
  EXPORT int V##StreamSynchronize##S(void *s) {                                                                     \
    CALLED(#V "StreamSynchronize" #S);                                                                              \
    return on_stream_sync(&V, OWN(s));                                                                              \
  }                                                                                                                 \
  EXPORT int V##StreamDestroy(void *s) {                                                                            \
    CALLED(#V "StreamDestroy");                                                                                     \
    return on_stream_destroy(&V, s);                                                                                \
  }                                                                                                                 \
  EXPORT int V##DeviceSynchronize(void) {                                                                           \
    CALLED(#V "DeviceSynchronize");                                                                                 \
    return on_device_sync(&V);                                                                                      \
  }                                                                                                                 \
  EXPORT int V##DeviceReset(void) {                                                                                 \
    CALLED(#V "DeviceReset");                                                                                       \
    return on_reset(&V);                                                                                            \
  }                                                                                                                 \
  EXPORT int V##MemcpyAsync(void *to, const void *from, size_t n, int kind, void *s) {                              \
    static _Atomic(void *) real;                                                                                    \
    CALLED(#V "MemcpyAsync");                                                                                       \
    before_copy(&V, s);                                                                                             \
    return NAMED(&V, #V "MemcpyAsync", (void *, const void *, size_t, int, void *), to, from, n, kind, s);          \
  }                                                                                                                 \
  EXPORT int V##MemcpyAsync##S(void *to, const void *from, size_t n, int kind, void *s) {                           \
    static _Atomic(void *) real;                                                                                    \
    CALLED(#V "MemcpyAsync" #S);                                                                                    \
    before_copy(&V, OWN(s));                                                                                        \
    return NAMED(&V, #V "MemcpyAsync" #S, (void *, const void *, size_t, int, void *), to, from, n, kind, s);       \
  }

FAMILY(cuda, "libcudart.so", "cuStreamWaitValue32_v2", "cuStreamWaitValue32", "cuMemHostRegister_v2",
       "cuMemHostGetDevicePointer_v2", "libcuda.so", false)
FAMILY(hip, "libamdhip64.so", "hipStreamWaitValue32", NULL, "hipHostRegister", "hipHostGetDevicePointer",
       "libamdhip64.so", true)
FAMILY(musa, "libmusart.so", "muStreamWaitValue32_v2", "muStreamWaitValue32", "musaHostRegister",
       "musaHostGetDevicePointer", "libmusa.so", false)

WRAPPERS(cuda, _ptsz)
WRAPPERS(hip, _spt)
WRAPPERS(musa, _ptsz)

#define HOOKS(V, S)                                                                                                 \
  HOOK(V##EventRecord), HOOK(V##EventRecord##S), HOOK(V##EventRecordWithFlags), HOOK(V##EventRecordWithFlags##S),   \
      HOOK(V##StreamWaitEvent), HOOK(V##StreamWaitEvent##S), HOOK(V##EventQuery), HOOK(V##EventSynchronize),        \
      HOOK(V##EventDestroy), HOOK(V##EventElapsedTime), HOOK(V##EventElapsedTime_v2), HOOK(V##EventCreate),         \
      HOOK(V##EventCreateWithFlags),                                                                                \
      HOOK(V##StreamQuery), HOOK(V##StreamQuery##S), HOOK(V##StreamSynchronize), HOOK(V##StreamSynchronize##S),     \
      HOOK(V##StreamDestroy), HOOK(V##DeviceSynchronize), HOOK(V##DeviceReset), HOOK(V##MemcpyAsync),               \
      HOOK(V##MemcpyAsync##S)

const struct hook runtime_hooks[] = {HOOKS(cuda, _ptsz), HOOKS(hip, _spt), HOOKS(musa, _ptsz), {NULL, NULL}};
