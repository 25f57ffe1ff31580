/* A stand-in for CUDA's driver with real threads behind it: a stream is a queue that one thread works off.
 *
 * It keeps the rules that a preload library could break: a wait binds to the record at its call, a queue takes 1022
 * operations, a handle is used again after its destruction, and asking about an event invalidates a capture (of this
 * thread's making unless the thread's mode is relaxed, and of anybody's if the event itself is being captured).
 * double_* are for tests: the truth about events, misuse of dead handles, and captures that were spoilt.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, CAPTURE = 900, SPOILT = 901 };
enum { DEPTH = 1022, ALIVE = 0x5eed };

struct record {
  atomic_int done, refs;
  double at;
};
struct event {
  int magic, blocking, captured;
  struct record *now; /* NULL: never recorded */
  struct event *next; /* among the dead ones */
  struct event *every; /* the next of all */
};
enum what { RECORD, AWAIT, VALUE, COPY, SET, CALL, SLEEP };
struct task {
  struct task *next;
  enum what what;
  struct record *record;
  void *to, *from;
  size_t size;
  uint32_t value;
  void (*function)(void *);
};
struct stream {
  int magic, capturing;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct task *first, *last;
  int pending, leaving;
  struct stream *next;
};

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static struct event *dead, *everything;
static struct stream *streams;
static struct stream *defaults; /* the legacy default stream, without its special rules */
static atomic_int misuse, spoilt, captures, living;
static __thread int mode; /* 0 global, 1 this thread, 2 relaxed */
static __thread void *context;
static __thread struct stream *own;

int double_misuse(void) { return misuse; }
int double_spoilt(void) { return spoilt; }
int double_living(void) { return living; }

/* The next query of this event takes long, so that another thread can destroy it meanwhile, if it is let. */
static struct event *volatile trapped;
static atomic_int sprung;
void double_trap(struct event *e) { trapped = e; }
int double_sprung(void) { return sprung; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}
static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }
static void let_go(struct record *record) {
  if (record && atomic_fetch_sub(&record->refs, 1) == 1) free(record);
}

static void perform(struct task *task) {
  switch (task->what) {
  case RECORD: task->record->at = now(); atomic_store(&task->record->done, 1); let_go(task->record); break;
  case AWAIT: while (!atomic_load(&task->record->done)) nap(); let_go(task->record); break;
  case VALUE: while ((int32_t)(atomic_load((_Atomic(uint32_t) *)task->to) - task->value) < 0) nap(); break;
  case COPY: nap(); for (size_t i = 0; i < task->size / 4; ++i) atomic_store((_Atomic(uint32_t) *)task->to + i, atomic_load((_Atomic(uint32_t) *)task->from + i)); break;
  case SET: atomic_store((_Atomic(uint32_t) *)task->to, task->value); break;
  case CALL: task->function(task->to); break;
  case SLEEP: for (double end = now() + 1e-6 * (double)task->size; now() < end;) nap(); break;
  }
}

static void *serve(void *argument) {
  struct stream *s = argument;
  for (;;) {
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->leaving) pthread_cond_wait(&s->changed, &s->lock);
    struct task *task = s->first;
    if (!task) break;
    if (!(s->first = task->next)) s->last = NULL;
    pthread_mutex_unlock(&s->lock);
    perform(task);
    free(task);
    pthread_mutex_lock(&s->lock);
    --s->pending;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL; /* its memory stays, so that use of a dead stream is seen */
}

static struct stream *make_stream(void) {
  struct stream *s = calloc(1, sizeof *s);
  pthread_t thread;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  s->magic = ALIVE;
  pthread_create(&thread, NULL, serve, s);
  pthread_detach(thread);
  pthread_mutex_lock(&all);
  s->next = streams;
  streams = s;
  pthread_mutex_unlock(&all);
  return s;
}

static struct stream *stream_of(struct stream *handle) {
  if ((uintptr_t)handle == 2) return own ? own : (own = make_stream());
  if ((uintptr_t)handle > 2) {
    if (handle->magic == ALIVE) return handle;
    ++misuse;
    return NULL;
  }
  static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&making);
  if (!defaults) defaults = make_stream();
  pthread_mutex_unlock(&making);
  return defaults;
}

static int put(struct stream *s, struct task from) {
  if (!s) return BAD_HANDLE;
  struct task *task = malloc(sizeof *task);
  *task = from;
  task->next = NULL;
  pthread_mutex_lock(&s->lock);
  while (s->pending >= DEPTH) pthread_cond_wait(&s->changed, &s->lock);
  if (s->last) s->last->next = task; else s->first = task;
  s->last = task;
  ++s->pending;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return OK;
}

static int bad(struct event *e) {
  if (e && e->magic == ALIVE) return 0;
  ++misuse;
  return 1;
}

/* What an unsafe call does to captures: see the head of this file. */
static int unsafe(struct event *e) {
  if ((e && e->captured) || (captures && mode != 2)) {
    ++spoilt;
    return CAPTURE;
  }
  return OK;
}

int cuInit(unsigned flags) { return flags ? INVALID : OK; }
int cuCtxGetCurrent(void **to) { *to = context ? context : (void *)0xc0; return OK; }
int cuCtxSetCurrent(void *to) { context = to; return OK; }
int cuThreadExchangeStreamCaptureMode(int *to) { int was = mode; mode = *to; *to = was; return OK; }

int cuStreamCreate(struct stream **to, unsigned flags) { (void)flags; *to = make_stream(); return OK; }
int cuStreamDestroy_v2(struct stream *s) {
  if (!(s = stream_of(s))) return BAD_HANDLE;
  pthread_mutex_lock(&s->lock);
  s->magic = 0;
  s->leaving = 1;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return OK;
}
int cuStreamQuery(struct stream *s) {
  if (!(s = stream_of(s))) return BAD_HANDLE;
  pthread_mutex_lock(&s->lock);
  int pending = s->pending;
  pthread_mutex_unlock(&s->lock);
  return pending ? NOT_READY : OK;
}
static int drain(struct stream *s) {
  pthread_mutex_lock(&s->lock);
  while (s->pending) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  return OK;
}
int cuStreamSynchronize(struct stream *s) { return (s = stream_of(s)) ? drain(s) : BAD_HANDLE; }
int cuCtxSynchronize(void) {
  pthread_mutex_lock(&all);
  struct stream *s = streams;
  pthread_mutex_unlock(&all);
  for (; s; s = s->next)
    if (s->magic == ALIVE) drain(s);
  return OK;
}

int cuStreamBeginCapture_v2(struct stream *s, int how) { (void)how; stream_of(s)->capturing = 1; ++captures; return OK; }
int cuStreamEndCapture(struct stream *s, void **graph) {
  *graph = NULL;
  stream_of(s)->capturing = 0;
  --captures;
  return atomic_exchange(&spoilt, 0) ? SPOILT : OK;
}
int cuStreamIsCapturing(struct stream *s, int *status) {
  if (!(s = stream_of(s))) return BAD_HANDLE;
  *status = s->capturing;
  return OK;
}

int cuEventCreate(struct event **to, unsigned flags) {
  pthread_mutex_lock(&all);
  struct event *e = dead;
  if (e) dead = e->next;
  pthread_mutex_unlock(&all);
  if (!e) {
    e = calloc(1, sizeof *e);
    pthread_mutex_lock(&all);
    e->every = everything;
    everything = e;
    pthread_mutex_unlock(&all);
  }
  *e = (struct event){.magic = ALIVE, .blocking = flags & 1, .every = e->every};
  *to = e;
  ++living;
  return OK;
}
int cuEventDestroy_v2(struct event *e) {
  if (bad(e)) return BAD_HANDLE;
  pthread_mutex_lock(&all);
  let_go(e->now);
  e->magic = 0;
  e->now = NULL;
  e->next = dead;
  dead = e;
  pthread_mutex_unlock(&all);
  --living;
  return OK;
}
static struct record *hold_record(struct event *e) {
  pthread_mutex_lock(&all);
  struct record *record = e->now;
  if (record) ++record->refs;
  pthread_mutex_unlock(&all);
  return record;
}
int cuEventRecordWithFlags(struct event *e, struct stream *s, unsigned flags) {
  (void)flags;
  if (bad(e) || !(s = stream_of(s))) return BAD_HANDLE;
  if (s->capturing) { e->captured = 1; return OK; }
  struct record *record = calloc(1, sizeof *record);
  record->refs = 2;
  pthread_mutex_lock(&all);
  let_go(e->now);
  e->now = record;
  e->captured = 0;
  pthread_mutex_unlock(&all);
  return put(s, (struct task){.what = RECORD, .record = record});
}
int cuEventRecord(struct event *e, struct stream *s) { return cuEventRecordWithFlags(e, s, 0); }
int cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags) {
  (void)flags;
  if (bad(e) || !(s = stream_of(s))) return BAD_HANDLE;
  if (s->capturing || e->captured) { s->capturing = 1; return OK; }
  struct record *record = hold_record(e);
  return record ? put(s, (struct task){.what = AWAIT, .record = record}) : OK;
}
int double_complete(struct event *e) {
  struct record *record = hold_record(e);
  int done = !record || record->done;
  let_go(record);
  return done;
}
int cuEventQuery(struct event *e) {
  if (bad(e)) return BAD_HANDLE;
  if (e == trapped) {
    trapped = NULL;
    sprung = 1;
    usleep(200000);
    if (bad(e)) return BAD_HANDLE;
  }
  int refused = unsafe(e);
  return refused ? refused : double_complete(e) ? OK : NOT_READY;
}
int cuEventSynchronize(struct event *e) {
  if (bad(e)) return BAD_HANDLE;
  struct record *record = hold_record(e);
  while (record && !record->done) nap();
  let_go(record);
  return OK;
}
int cuEventElapsedTime(float *ms, struct event *a, struct event *b) {
  if (bad(a) || bad(b) || !a->now || !b->now) return BAD_HANDLE;
  if (!double_complete(a) || !double_complete(b)) return NOT_READY;
  *ms = (float)(b->now->at - a->now->at);
  return OK;
}
int cuMemcpyAsync(void *to, void *from, size_t n, struct stream *s) { return put(stream_of(s), (struct task){.what = COPY, .to = to, .from = from, .size = n}); }
int cuMemcpyDtoHAsync_v2(void *to, void *from, size_t n, struct stream *s) { return cuMemcpyAsync(to, from, n, s); }
int cuMemsetD32Async(void *to, uint32_t value, size_t n, struct stream *s) { return n == 1 ? put(stream_of(s), (struct task){.what = SET, .to = to, .value = value}) : INVALID; }
int double_sleep(struct stream *s, size_t nanoseconds) { return put(stream_of(s), (struct task){.what = SLEEP, .size = nanoseconds}); }
int cuLaunchHostFunc(struct stream *s, void (*function)(void *), void *argument) { return put(stream_of(s), (struct task){.what = CALL, .function = function, .to = argument}); }
/* Host memory, of the context: a reset takes it away, so that whoever writes to it afterwards is killed. */
struct block { void *at; size_t size; int ours, there; struct block *next; };
static struct block *blocks;
static int keep_block(void *at, size_t n, int ours) {
  struct block *b = malloc(sizeof *b);
  pthread_mutex_lock(&all);
  *b = (struct block){.at = at, .size = n, .ours = ours, .there = 1, .next = blocks};
  blocks = b;
  pthread_mutex_unlock(&all);
  return OK;
}
int cuMemHostAlloc(void **to, size_t n, unsigned flags) {
  (void)flags;
  void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? INVALID : keep_block(*to = at, n, 1);
}
static struct block *block_of(void *at) {
  struct block *b = blocks;
  while (b && !((char *)at >= (char *)b->at && (char *)at < (char *)b->at + b->size)) b = b->next;
  return b;
}
int cuMemHostRegister_v2(void *at, size_t n, unsigned flags) {
  struct block *b = block_of(at);
  if (flags != 3 || (uintptr_t)at % 4096) return INVALID;
  if (b && b->there) return 712;
  if (b) return (b->there = 1), OK;
  return keep_block(at, n, 0);
}
int cuMemHostGetDevicePointer_v2(void **to, void *at, unsigned flags) {
  struct block *b = block_of(at);
  return flags || !b || !b->there ? INVALID : ((*to = at), OK);
}
/* A context's end: its work is done first; a handle of it is dead, and may come again. */
static int end_context(void) {
  cuCtxSynchronize();
  pthread_mutex_lock(&all);
  for (struct block *b = blocks; b; b = b->next) {
    if (b->ours && b->there) mprotect(b->at, b->size, PROT_NONE);
    b->there = 0;
  }
  for (struct event *e = everything, *next; e; e = next) {
    next = e->every;
    if (e->magic != ALIVE) continue;
    e->magic = 0;
    e->now = NULL;
    e->next = dead;
    dead = e;
    --living;
  }
  for (struct stream *s = streams; s; s = s->next) s->magic = 0;
  defaults = NULL;
  pthread_mutex_unlock(&all);
  return OK;
}
int cuDevicePrimaryCtxReset_v2(int device) { return device ? INVALID : end_context(); }
int cuDevicePrimaryCtxRelease_v2(int device) { return device ? INVALID : end_context(); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = *active = 0; return device ? INVALID : OK; }
int cuCtxDestroy_v2(void *which) { (void)which; return end_context(); }
#ifndef NO_WAIT_VALUE
int cuStreamWaitValue32_v2(struct stream *s, void *word, uint32_t value, unsigned flags) {
  struct block *b = block_of(word);
  return flags || (b && !b->there) ? INVALID : put(stream_of(s), (struct task){.what = VALUE, .to = word, .value = value});
}
#endif

#define OWN(s) ((s) ? (s) : (struct stream *)2)
int cuEventRecord_ptsz(struct event *e, struct stream *s) { return cuEventRecord(e, OWN(s)); }
int cuEventRecordWithFlags_ptsz(struct event *e, struct stream *s, unsigned f) { return cuEventRecordWithFlags(e, OWN(s), f); }
int cuStreamWaitEvent_ptsz(struct stream *s, struct event *e, unsigned f) { return cuStreamWaitEvent(OWN(s), e, f); }
int cuStreamQuery_ptsz(struct stream *s) { return cuStreamQuery(OWN(s)); }
int cuStreamSynchronize_ptsz(struct stream *s) { return cuStreamSynchronize(OWN(s)); }

#define F(symbol, function) {symbol, (void *)function}
static const struct { const char *symbol; void *function; } table[] = {
    F("cuInit", cuInit), F("cuCtxGetCurrent", cuCtxGetCurrent), F("cuStreamCreate", cuStreamCreate),
    F("cuStreamDestroy", cuStreamDestroy_v2), F("cuStreamQuery", cuStreamQuery), F("cuStreamSynchronize", cuStreamSynchronize),
    F("cuCtxSynchronize", cuCtxSynchronize), F("cuStreamBeginCapture", cuStreamBeginCapture_v2), F("cuStreamEndCapture", cuStreamEndCapture),
    F("cuStreamIsCapturing", cuStreamIsCapturing), F("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode),
    F("cuEventCreate", cuEventCreate), F("cuEventDestroy", cuEventDestroy_v2), F("cuEventRecord", cuEventRecord),
    F("cuEventRecordWithFlags", cuEventRecordWithFlags), F("cuStreamWaitEvent", cuStreamWaitEvent), F("cuEventQuery", cuEventQuery),
    F("cuEventSynchronize", cuEventSynchronize), F("cuEventElapsedTime", cuEventElapsedTime), F("cuMemcpyAsync", cuMemcpyAsync),
    F("cuMemsetD32Async", cuMemsetD32Async), F("cuMemHostAlloc", cuMemHostAlloc),
    F("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2)};

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
  (void)version;
  if (flags & 2) {
    if (!strcmp(symbol, "cuEventRecord")) { *function = (void *)cuEventRecord_ptsz; return OK; }
    if (!strcmp(symbol, "cuStreamWaitEvent")) { *function = (void *)cuStreamWaitEvent_ptsz; return OK; }
  }
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i)
    if (!strcmp(table[i].symbol, symbol)) { *function = table[i].function; return OK; }
  *function = NULL;
  if (status) *status = 1;
  return NOT_FOUND;
}
