/* A stand-in for a vendor's runtime: thin, over the stand-in driver, which it finds as a real one does.
 *
 * Compiled with -DV=cuda, hip or musa, as a shared library or into a program. Like the real ones it keeps "not ready"
 * as the thread's last error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define R(name) JOIN(V, name)

enum { OK = 0, NOT_READY = 600 };
static __thread int last;
static int keep(int code) {
  if (code) last = code;
  return code;
}

static int (*get)(const char *, void **, int, uint64_t, int *);
static void begin(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) abort();
  get = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
}
static void *entry(const char *symbol, uint64_t flags) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
  void *function = NULL;
  if (get(symbol, &function, 13000, flags, NULL)) abort();
  return function;
}
#define DRIVER(symbol, flags, types, ...)                          \
  ({ static void *at; if (!at) at = entry(symbol, flags); keep(((int (*) types)at)(__VA_ARGS__)); })

int R(PeekAtLastError)(void) { return last; }
int R(GetLastError)(void) { int was = last; last = OK; return was; }
int R(GetDevice)(int *to) { *to = 0; return OK; }
int R(SetDevice)(int device) { return device ? 101 : OK; }
int R(StreamCreateWithFlags)(void **to, unsigned f) { return DRIVER("cuStreamCreate", 1, (void **, unsigned), to, f); }
int R(StreamDestroy)(void *s) { return DRIVER("cuStreamDestroy", 1, (void *), s); }
int R(StreamQuery)(void *s) { return DRIVER("cuStreamQuery", 1, (void *), s); }
int R(StreamSynchronize)(void *s) { return DRIVER("cuStreamSynchronize", 1, (void *), s); }
int R(DeviceReset)(void) { return DRIVER("cuDevicePrimaryCtxReset", 1, (int), 0); }
int R(DeviceSynchronize)(void) { return DRIVER("cuCtxSynchronize", 1, (void)); }
int R(StreamBeginCapture)(void *s, int how) { return DRIVER("cuStreamBeginCapture", 1, (void *, int), s, how); }
int R(StreamEndCapture)(void *s, void **graph) { return DRIVER("cuStreamEndCapture", 1, (void *, void **), s, graph); }
int R(StreamIsCapturing)(void *s, int *to) { return DRIVER("cuStreamIsCapturing", 1, (void *, int *), s, to); }
int R(ThreadExchangeStreamCaptureMode)(int *to) { return DRIVER("cuThreadExchangeStreamCaptureMode", 1, (int *), to); }
int R(EventCreateWithFlags)(void **to, unsigned f) { return DRIVER("cuEventCreate", 1, (void **, unsigned), to, f); }
int R(EventCreate)(void **to) { return R(EventCreateWithFlags)(to, 0); }
int R(EventDestroy)(void *e) { return DRIVER("cuEventDestroy", 1, (void *), e); }
int R(EventRecord)(void *e, void *s) { return DRIVER("cuEventRecord", 1, (void *, void *), e, s); }
int R(EventRecordWithFlags)(void *e, void *s, unsigned f) { return DRIVER("cuEventRecordWithFlags", 1, (void *, void *, unsigned), e, s, f); }
int R(StreamWaitEvent)(void *s, void *e, unsigned f) { return DRIVER("cuStreamWaitEvent", 1, (void *, void *, unsigned), s, e, f); }
int R(EventQuery)(void *e) { return DRIVER("cuEventQuery", 1, (void *), e); }
int R(EventSynchronize)(void *e) { return DRIVER("cuEventSynchronize", 1, (void *), e); }
int R(EventElapsedTime)(float *ms, void *a, void *b) { return DRIVER("cuEventElapsedTime", 1, (float *, void *, void *), ms, a, b); }
int R(MemcpyAsync)(void *to, const void *from, size_t n, int kind, void *s) { (void)kind; return DRIVER("cuMemcpyAsync", 1, (void *, const void *, size_t, void *), to, from, n, s); }
int JOIN(R(EventRecord), _ptsz)(void *e, void *s) { return DRIVER("cuEventRecord", 2, (void *, void *), e, s); }
int JOIN(R(StreamWaitEvent), _ptsz)(void *s, void *e, unsigned f) { return DRIVER("cuStreamWaitEvent", 2, (void *, void *, unsigned), s, e, f); }
#ifdef HIP /* one library for both levels; its stream memory operation takes a mask */
static void *next_door(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name); }
int hipHostRegister(void *at, size_t n, unsigned flags) { return ((int (*)(void *, size_t, unsigned))next_door("cuMemHostRegister_v2"))(at, n, flags); }
int hipHostGetDevicePointer(void **to, void *at, unsigned flags) { return ((int (*)(void **, void *, unsigned))next_door("cuMemHostGetDevicePointer_v2"))(to, at, flags); }
int hipStreamWaitValue32(void *s, void *word, uint32_t value, unsigned flags, uint32_t mask) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (flags || mask != ~0u) return 1;
  return ((int (*)(void *, void *, uint32_t, unsigned))dlsym(driver, "cuStreamWaitValue32_v2"))(s, word, value, 0);
}
#endif
