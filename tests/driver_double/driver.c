/* A stand-in for a vendor's driver, runtime or run-time compiler, to run the ctypes paths without a device.
 *
 * Compiled once per part, with -DCUDA, -DHIP or -DMUSA for the names and -DDRIVER, -DRUNTIME, -DRTC or
 * -DMTML for the part. A stream is a queue with one thread; the gate kernel is done by hand; "code" is the text FAKECODE.
 * double_knob(name, value) makes a part misbehave, until it is set back to 0:
 *   frozen      the device's timer stands still            block     a launch returns after its end
 *   no-register registering memory is refused              fail-wait wait-value is refused
 *   rtc-fail    nothing compiles                           no-hold   gates let go at once
 * -DNO_WAIT and -DNO_CODE leave out the wait-value function and the one that returns code.
 * DRIVER_DOUBLE_FAIL=name=code,... in the environment has functions return an error instead of working.
 *
 * double_attach gives every queued task, and every question about an event, to a runtime that has streams of
 * its own (tests/stand_ins): what is launched here then runs on its streams, when it calls double_perform.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long ull;

static struct { const char *name; volatile int value; } knobs[] = {
    {"frozen", 0}, {"block", 0}, {"no-register", 0}, {"fail-wait", 0}, {"rtc-fail", 0}, {"no-hold", 0}};

int double_knob(const char *name, int value) {
  for (size_t i = 0; i < sizeof knobs / sizeof *knobs; ++i)
    if (!strcmp(knobs[i].name, name)) { knobs[i].value = value; return 0; }
  return 1;
}
__attribute__((unused)) static int knob(const char *name) {
  for (size_t i = 0; i < sizeof knobs / sizeof *knobs; ++i)
    if (!strcmp(knobs[i].name, name)) return knobs[i].value;
  abort();
}

__attribute__((unused)) static int refused(const char *name) {
  const char *list = getenv("DRIVER_DOUBLE_FAIL");
  size_t length = strlen(name);
  for (const char *at = list ? strstr(list, name) : NULL; at; at = strstr(at + 1, name))
    if ((at == list || at[-1] == ',') && at[length] == '=') return atoi(at + length + 1);
  return 0;
}
#define TRY do { int code_ = refused(__func__); if (code_) return code_; } while (0)

#if defined CUDA
#define D(x) cu##x
#define V2(x) cu##x##_v2
#define REGISTER cuMemHostRegister_v2
#define UNREGISTER cuMemHostUnregister
#define POINTER cuMemHostGetDevicePointer_v2
#define ERROR_NAME cuGetErrorName
#define LAUNCH cuLaunchKernel
#define HOST cuLaunchHostFunc
#define QUERY cuEventQuery
#define ALLOCATE cuMemHostAlloc
#define RELEASE cuMemFreeHost
#define COUNT cuDeviceGetCount
#define DEVICE_NAME cuDeviceGetName
#define VERSION cuDriverGetVersion
#define NEW_STREAM cuStreamCreate
#define R(x) nvrtc##x
#define SIZE nvrtcGetCUBINSize
#define CODE nvrtcGetCUBIN
#define NOT_READY "CUDA_ERROR_NOT_READY"
#elif defined HIP
#define D(x) hip##x
#define V2(x) hip##x
#define REGISTER hipHostRegister
#define UNREGISTER hipHostUnregister
#define POINTER hipHostGetDevicePointer
#define ERROR_NAME hipDrvGetErrorName
#define LAUNCH hipModuleLaunchKernel
#define HOST hipLaunchHostFunc
#define QUERY hipEventQuery
#define ALLOCATE hipHostMalloc
#define RELEASE hipHostFree
#define COUNT hipGetDeviceCount
#define DEVICE_NAME hipDeviceGetName
#define VERSION hipDriverGetVersion
#define NEW_STREAM hipStreamCreateWithFlags
#define RUNTIME_VERSION hipRuntimeGetVersion
#define R(x) hiprtc##x
#define SIZE hiprtcGetCodeSize
#define CODE hiprtcGetCode
#define NOT_READY "hipErrorNotReady"
#elif defined MUSA /* the names that public sources confirm; half of them in the runtime */
#define D(x) mu##x
#define V2(x) mu##x
#define REGISTER musaHostRegister
#define UNREGISTER musaHostUnregister
#define POINTER musaHostGetDevicePointer
#define ERROR_NAME muGetErrorName
#define LAUNCH muLaunchKernel
#define HOST musaLaunchHostFunc
#define QUERY musaEventQuery
#define ALLOCATE musaHostAlloc
#define RELEASE musaFreeHost
#define COUNT musaGetDeviceCount
#define DEVICE_NAME muDeviceGetName
#define VERSION musaDriverGetVersion
#define NEW_STREAM muStreamCreate
#define RUNTIME_VERSION musaRuntimeGetVersion
#define R(x) mtrtc##x
#define SIZE mtrtcGetFatBinSize
#define CODE mtrtcGetFatBin
#define NOT_READY "MUSA_ERROR_NOT_READY"
#endif

enum { OK = 0, INVALID = 1, BAD_CONTEXT = 201, BAD_IMAGE = 200, NOT_FOUND = 500, REFUSED = 801 };
#ifdef MUSA /* the number is not public; this one has been used in a test stub, and is not CUDA's */
enum { NOT_READY_CODE = 34 };
#else
enum { NOT_READY_CODE = 600 };
#endif

struct event { volatile ull done, time; }; /* the last version that is complete, and when */

void double_host(void *stream, void (*function)(void *), void *argument);
int double_query(void *event);

#ifdef DRIVER
static ull now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (ull)t.tv_sec * 1000000000ull + (ull)t.tv_nsec;
}
#ifdef HIP /* its timer has 100 MHz */
static ull ticks(void) { return now() / 10; }
#else
static ull ticks(void) { return now(); }
#endif

enum what { GATE, HOLD, WRITE, CALL, RECORD, AWAIT, SLEEP };
struct task;
static void (*take)(void *stream, struct task *task, int what); /* of the runtime that is attached */
static int (*ask)(void *event);                                 /* 1 complete, 0 pending, -1 no event of its own */
static void *(*new_stream)(void);                               /* one that the default stream orders */
void double_attach(void (*taker)(void *, struct task *, int), int (*asker)(void *), void *(*maker)(void)) {
  take = taker;
  ask = asker;
  new_stream = maker;
}

struct task {
  struct task *next;
  enum what what;
  volatile uint32_t *word;
  uint32_t value;
  ull a, b;
  struct event *event;
  void (*function)(void *);
  void *argument;
};
struct stream {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct task *first, *last;
  int pending;
};

static void gate(volatile uint32_t *w, uint32_t ticket, ull limit, ull max_polls) {
  ull start = ticks(), seen = start, n = 0;
  w[32] = ticket;
  for (; !knob("no-hold") && (int)(w[0] - ticket) < 0; ++n) {
    seen = knob("frozen") ? start : ticks();
    if (seen - start >= limit || n >= max_polls) { w[34] = ticket; break; }
    if (knob("frozen")) for (ull t = now(); now() - t < 1300;) {} /* as fast as a device: polls are the limit */
    else usleep(2);
  }
  *(volatile ull *)(w + 36) = n;
  *(volatile ull *)(w + 38) = seen - start;
  __sync_synchronize();
  w[33] = ticket;
}

static void perform(struct task *t) {
  ull start = now();
  switch (t->what) {
  case GATE: gate(t->word, t->value, t->a, t->b); break;
  case HOLD: while (!knob("no-hold") && (int)(*t->word - t->value) < 0) usleep(2); break;
  case WRITE: *t->word = t->value; break;
  case CALL: t->function(t->argument); break;
  case RECORD: t->event->time = now(); __sync_synchronize(); t->event->done = t->a; break;
  case AWAIT: while (t->event->done < t->a) usleep(2); break;
  case SLEEP: while (now() - start < 2 * t->a) usleep(2); break;
  }
}

static void *serve(void *argument) {
  struct stream *s = argument;
  for (;;) {
    pthread_mutex_lock(&s->lock);
    while (!s->first) pthread_cond_wait(&s->changed, &s->lock);
    struct task *t = s->first;
    if (!(s->first = t->next)) s->last = NULL;
    pthread_mutex_unlock(&s->lock);
    perform(t);
    free(t);
    pthread_mutex_lock(&s->lock);
    --s->pending;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
  }
  return NULL;
}

void *double_stream(void) {
  struct stream *s = calloc(1, sizeof *s);
  pthread_t thread;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_create(&thread, NULL, serve, s);
  pthread_detach(thread);
  return s;
}

void double_perform(struct task *t) { perform(t); free(t); }

static void put(struct stream *s, struct task from) {
  struct task *t = malloc(sizeof *t);
  *t = from;
  t->next = NULL;
  if (take) { take(s, t, t->what); return; }
  pthread_mutex_lock(&s->lock);
  if (s->last) s->last->next = t; else s->first = t;
  s->last = t;
  ++s->pending;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void double_sync(struct stream *s) {
  pthread_mutex_lock(&s->lock);
  while (s->pending) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static __thread void *context;
void double_enter(void) { context = (void *)0x1234; }
struct event *double_event(void) { return calloc(1, sizeof(struct event)); }
void double_record(struct event *e, ull version, struct stream *s) { put(s, (struct task){.what = RECORD, .event = e, .a = version}); }
void double_wait(struct stream *s, struct event *e, ull version) { put(s, (struct task){.what = AWAIT, .event = e, .a = version}); }
void double_sleep(struct stream *s, ull cycles) { put(s, (struct task){.what = SLEEP, .a = cycles}); }
ull double_done(struct event *e) { return e->done; }
ull double_time(struct event *e) { return e->time; }
void double_host(void *s, void (*function)(void *), void *argument) { put(s, (struct task){.what = CALL, .function = function, .argument = argument}); }

/* The handle is that of the stand-in's Event: the event's address and the version recorded last. */
int double_query(void *event) {
  if (!event) return INVALID;
  if (ask) { int said = ask(event); return said < 0 ? INVALID : said ? OK : NOT_READY_CODE; }
  ull *handle = event;
  return ((struct event *)(uintptr_t)handle[0])->done >= handle[1] ? OK : NOT_READY_CODE;
}

int ERROR_NAME(int code, const char **name) {
  *name = code == BAD_CONTEXT ? "FAKE_INVALID_CONTEXT" : code == NOT_READY_CODE ? NOT_READY : code == REFUSED ? "FAKE_NOT_SUPPORTED" : "FAKE_ERROR";
  return OK;
}
int DEVICE_NAME(char *name, int n, int device) { TRY; snprintf(name, n, "stand-in device"); return device ? INVALID : OK; }
int D(CtxGetCurrent)(void **p) { TRY; *p = context; return OK; }
int D(CtxSetCurrent)(void *p) { context = p; return OK; }
int D(ModuleLoadData)(void **module, const void *image) { TRY; *module = (void *)7; return memcmp(image, "FAKECODE", 9) ? BAD_IMAGE : OK; }
int D(ModuleGetFunction)(void **function, void *module, const char *name) {
  TRY;
  *function = (void *)9;
  return module == (void *)7 && !strcmp(name, "gate") ? OK : NOT_FOUND;
}
int NEW_STREAM(void **s, unsigned flags) { /* no other kind is asked for: nothing destroys a stream here */
  TRY;
  *s = new_stream ? new_stream() : double_stream();
  return flags ? INVALID : OK;
}
int LAUNCH(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **p, void **extra) {
  TRY;
  if (!context) return BAD_CONTEXT;
  if (f != (void *)9 || gx * gy * gz * bx * by * bz != 1 || shared || extra) return INVALID;
  put(s, (struct task){.what = GATE, .word = *(void **)p[0], .value = *(uint32_t *)p[1], .a = *(ull *)p[2], .b = *(ull *)p[3]});
  if (knob("block")) double_sync(s);
  return OK;
}
#ifndef NO_WAIT
#ifdef HIP
int V2(StreamWaitValue32)(void *s, void *word, uint32_t value, unsigned flags, uint32_t mask) {
  if (mask != 0xFFFFFFFF) return INVALID;
#else
int V2(StreamWaitValue32)(void *s, void *word, uint32_t value, unsigned flags) {
#endif
  TRY;
  if (flags) return INVALID;
  if (knob("fail-wait")) return REFUSED;
  put(s, (struct task){.what = HOLD, .word = word, .value = value});
  return OK;
}
#endif
int V2(StreamWriteValue32)(void *s, void *word, uint32_t value, unsigned flags) {
  TRY;
  if (flags) return INVALID;
  put(s, (struct task){.what = WRITE, .word = word, .value = value});
  return OK;
}
#endif

#if defined RUNTIME || (defined DRIVER && !defined MUSA)
static volatile ull registered;
ull double_registered(void) { return registered; }
int REGISTER(void *p, size_t n, unsigned flags) {
  TRY;
  if (knob("no-register")) return REFUSED;
  if (((uintptr_t)p & 4095) || flags != 3 || !n) return INVALID;
  ++registered;
  return OK;
}
int UNREGISTER(void *p) { (void)p; --registered; return OK; }
int POINTER(void **device, void *host, unsigned flags) { TRY; *device = host; return flags ? INVALID : OK; }
int HOST(void *s, void (*function)(void *), void *argument) { TRY; double_host(s, function, argument); return OK; }
int QUERY(void *event) { TRY; return double_query(event); }
int ALLOCATE(void **p, size_t n, unsigned flags) { TRY; (void)flags; return posix_memalign(p, 4096, n) ? INVALID : OK; }
int RELEASE(void *p) { free(p); return OK; }
int COUNT(int *n) { TRY; *n = 1; return OK; }
int VERSION(int *n) { TRY; *n = 50100; return OK; }
#ifdef RUNTIME_VERSION
int RUNTIME_VERSION(int *n) { TRY; *n = 50100; return OK; }
#endif
#endif

#ifdef MTML /* the management library: what is here, without torch */
static char mtml_handle;
int mtmlLibraryInit(void **library) { TRY; *library = &mtml_handle; return OK; }
int mtmlLibraryInitSystem(void *library, void **system) { *system = library; return library == &mtml_handle ? OK : INVALID; }
int mtmlLibraryInitDeviceByIndex(void *library, unsigned index, void **device) { *device = library; return index ? INVALID : OK; }
int mtmlSystemGetDriverVersion(void *system, char *text, unsigned n) { (void)system; snprintf(text, n, "0.0.0-standin"); return OK; }
int mtmlDeviceGetName(void *device, char *text, unsigned n) { (void)device; snprintf(text, n, "stand-in device"); return OK; }
#endif

#ifdef RTC
struct program { char *source; char log[200]; };
int R(CreateProgram)(void **p, const char *source, const char *name, int headers, const char **texts, const char **names) {
  struct program *q = calloc(1, sizeof *q);
  (void)name;
  q->source = strdup(source);
  *p = q;
  return headers || texts || names ? INVALID : OK;
}
int R(CompileProgram)(void *p, int n, const char **options) {
  TRY;
  struct program *q = p;
  if (knob("rtc-fail")) { strcpy(q->log, "gate.cu(3): error: made up"); return 6; }
  if (n && strstr(options[0], "99")) { snprintf(q->log, sizeof q->log, "bad architecture in %s", options[0]); return 5; }
  return strstr(q->source, "#define NOW(t)") == q->source && strstr(q->source, "void gate(") ? OK : 6;
}
int R(GetProgramLogSize)(void *p, size_t *n) { *n = strlen(((struct program *)p)->log) + 1; return OK; }
int R(GetProgramLog)(void *p, char *text) { strcpy(text, ((struct program *)p)->log); return OK; }
int SIZE(void *p, size_t *n) { (void)p; *n = 9; return OK; }
#ifndef NO_CODE
int CODE(void *p, char *code) { (void)p; strcpy(code, "FAKECODE"); return OK; }
#endif
#if defined CUDA && !defined NO_CODE
int nvrtcGetPTXSize(void *p, size_t *n) { (void)p; *n = 9; return OK; }
int nvrtcGetPTX(void *p, char *code) { (void)p; strcpy(code, "FAKECODE"); return OK; }
#endif
int R(DestroyProgram)(void **p) {
  struct program *q = *p;
  free(q->source);
  free(q);
  *p = NULL;
  return OK;
}
#endif
