/* A program that calls the runtime by linked names: `client core`, or `client stress THREADS ROUNDS`.
 *
 * Linked against the shared stand-in runtime, or with it inside (which then is a static runtime).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void *handle;
int cudaStreamCreateWithFlags(handle *, unsigned), cudaStreamDestroy(handle), cudaStreamQuery(handle), cudaStreamSynchronize(handle);
int cudaDeviceSynchronize(void), cudaDeviceReset(void), cudaPeekAtLastError(void), cudaGetLastError(void);
int cudaStreamBeginCapture(handle, int), cudaStreamEndCapture(handle, handle *);
int cudaEventCreateWithFlags(handle *, unsigned), cudaEventDestroy(handle), cudaEventRecord(handle, handle), cudaEventQuery(handle);
int cudaEventSynchronize(handle), cudaStreamWaitEvent(handle, handle, unsigned), cudaEventElapsedTime(float *, handle, handle);
int cudaMemcpyAsync(void *, const void *, size_t, int, handle);
int cudaEventRecord_ptsz(handle, handle), cudaStreamWaitEvent_ptsz(handle, handle, unsigned);

static void *driver(const char *name) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = library ? dlsym(library, name) : NULL;
  if (!found) abort();
  return found;
}
static int number(const char *name) { return ((int (*)(void))driver(name))(); }
static int complete(handle event) { return ((int (*)(handle))driver("double_complete"))(event); }
static void gate(handle stream, _Atomic(uint32_t) *word) {
  ((int (*)(handle, void *, uint32_t, unsigned))driver("cuStreamWaitValue32_v2"))(stream, (void *)word, 1, 0);
}
#define MUST(call) do { int code_ = (call); if (code_) { printf("%s: %d\n", #call, code_); exit(3); } } while (0)
static void pause_us(long us) { nanosleep(&(struct timespec){.tv_nsec = 1000 * us}, NULL); }
static void until(handle event) { while (!complete(event)) pause_us(50); }

/* The sequence of an engine: is an event seen in time although a wait behind it is pending? Two later waits. */
static int core(int own) {
  handle copy, main_, other, e, f, c;
  static _Atomic(uint32_t) g1, g2, g3;
  MUST(cudaStreamCreateWithFlags(&copy, 1));
  MUST(cudaStreamCreateWithFlags(&main_, 1));
  MUST(cudaStreamCreateWithFlags(&other, 1));
  if (own) copy = (handle)2; /* this thread's own default stream, called 0 in the calls that end in _ptsz */
  MUST(cudaEventCreateWithFlags(&e, 3));
  MUST(cudaEventCreateWithFlags(&f, 2));
  MUST(cudaEventCreateWithFlags(&c, 2));
  gate(copy, &g1);
  MUST(own ? cudaEventRecord_ptsz(e, NULL) : cudaEventRecord(e, copy));
  gate(main_, &g2);
  MUST(cudaEventRecord(f, main_));
  MUST(own ? cudaStreamWaitEvent_ptsz(NULL, f, 0) : cudaStreamWaitEvent(copy, f, 0));
  gate(other, &g3);
  MUST(cudaEventRecord(c, other));
  MUST(cudaStreamWaitEvent(copy, c, 0));
  printf("error %d\n", cudaGetLastError()); /* our own look at pending events must not be left here */
  printf("closed %d\n", cudaEventQuery(e));
  g1 = 1;
  until(e);
  printf("complete %d\n", cudaEventQuery(e));
  g2 = 1;
  until(f);
  int seen = cudaEventQuery(e);
  for (int i = 0; i < 400 && seen; ++i, seen = cudaEventQuery(e)) pause_us(500);
  printf("first %d\n", seen);
  g3 = 1;
  MUST(cudaEventSynchronize(e));
  printf("second %d\n", cudaEventQuery(e));
  MUST(cudaEventDestroy(e));
  MUST(cudaEventDestroy(f));
  MUST(cudaEventDestroy(c));
  printf("misuse %d\n", number("double_misuse"));
  return 0;
}

/* Captures beside other threads' pending events, and inside one: nothing of ours may spoil them. */
static int capture(void) {
  handle copy, main_, e, f, graph;
  static _Atomic(uint32_t) g1, g2;
  MUST(cudaStreamCreateWithFlags(&copy, 1));
  MUST(cudaStreamCreateWithFlags(&main_, 1));
  MUST(cudaEventCreateWithFlags(&e, 2));
  MUST(cudaEventCreateWithFlags(&f, 2));
  MUST(cudaStreamBeginCapture(main_, 0));
  MUST(cudaEventRecord(f, main_));
  MUST(cudaStreamWaitEvent(copy, f, 0)); /* joins the capture */
  MUST(cudaEventRecord(e, copy));
  MUST(cudaStreamWaitEvent(main_, e, 0));
  handle side, busy, q, p;
  MUST(cudaStreamCreateWithFlags(&side, 1));
  MUST(cudaStreamCreateWithFlags(&busy, 1));
  MUST(cudaEventCreateWithFlags(&q, 2));
  MUST(cudaEventCreateWithFlags(&p, 2));
  gate(side, &g1);
  MUST(cudaEventRecord(q, side)); /* not captured, while the capture goes on */
  gate(busy, &g2);
  MUST(cudaEventRecord(p, busy));
  MUST(cudaStreamWaitEvent(side, p, 0));
  printf("end %d\n", cudaStreamEndCapture(main_, &graph));
  g1 = g2 = 1;
  MUST(cudaStreamSynchronize(side));
  printf("misuse %d\n", number("double_misuse"));
  return 0;
}

/* One thread queues a wait, behind which our library asks about an event; another destroys that event meanwhile. */
static handle doomed;
static void *destroy(void *unused) {
  while (!number("double_sprung")) pause_us(50);
  MUST(cudaEventDestroy(doomed));
  return unused;
}
static int destroyed(void) {
  handle copy, main_, f;
  pthread_t thread;
  static _Atomic(uint32_t) g1, g2;
  MUST(cudaStreamCreateWithFlags(&copy, 1));
  MUST(cudaStreamCreateWithFlags(&main_, 1));
  MUST(cudaEventCreateWithFlags(&doomed, 2));
  MUST(cudaEventCreateWithFlags(&f, 2));
  gate(copy, &g1);
  MUST(cudaEventRecord(doomed, copy));
  gate(main_, &g2);
  MUST(cudaEventRecord(f, main_));
  ((void (*)(handle))driver("double_trap"))(doomed);
  pthread_create(&thread, NULL, destroy, NULL);
  MUST(cudaStreamWaitEvent(copy, f, 0));
  pthread_join(thread, NULL);
  g1 = g2 = 1;
  MUST(cudaStreamSynchronize(copy));
  printf("misuse %d\n", number("double_misuse"));
  return 0;
}

/* The device's context ends, by the call of that name, with a copy and a wait that a fault holds back; then again. */
static int reset(const char *how) {
  for (int round = 0; round < 3; ++round) {
    static _Atomic(uint32_t) words[6];
    _Atomic(uint32_t) *g1 = &words[2 * round], *g2 = g1 + 1;
    handle copy, main_, e, f;
    uint32_t from[4] = {1, 2, 3, 4}, to[4];
    MUST(cudaStreamCreateWithFlags(&copy, 1));
    MUST(cudaStreamCreateWithFlags(&main_, 1));
    MUST(cudaEventCreateWithFlags(&e, 2));
    MUST(cudaEventCreateWithFlags(&f, 2));
    gate(copy, g1);
    MUST(cudaMemcpyAsync(to, from, sizeof to, 4, copy));
    MUST(cudaEventRecord(e, copy));
    gate(main_, g2);
    MUST(cudaEventRecord(f, main_));
    MUST(cudaStreamWaitEvent(copy, f, 0));
    MUST(cudaEventRecord(f, main_)); /* again, with the wait still to be passed */
    *g1 = *g2 = 1;
    if (round == 2) break; /* the program ends in the midst of it */
    if (!how) MUST(cudaDeviceReset());
    else if (!strcmp(how, "cuCtxDestroy_v2")) MUST(((int (*)(handle))driver(how))(NULL));
    else MUST(((int (*)(int))driver(how))(0));
    printf("misuse %d\n", number("double_misuse"));
  }
  return 0;
}

enum { SHARED = 16, OWN = 64, STEPS = 300 };
static handle shared[SHARED];
static _Atomic(handle) mailbox[SHARED]; /* events that the next thread to come by destroys */
static atomic_int working;

static unsigned next(unsigned *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

static void *work(void *argument) {
  unsigned seed = (unsigned)(uintptr_t)argument * 7919u + 1;
  handle streams[2], own[OWN];
  uint32_t from[4] = {1, 2, 3, 4}, to[4];
  float ms;
  for (int i = 0; i < 2; ++i) MUST(cudaStreamCreateWithFlags(&streams[i], 1));
  for (int i = 0; i < OWN; ++i) MUST(cudaEventCreateWithFlags(&own[i], i % 3 == 0 ? 1 : 2));
  for (int i = 0; i < STEPS; ++i) {
    handle s = streams[next(&seed) % 2], *e = &own[next(&seed) % OWN], x = shared[next(&seed) % SHARED];
    MUST(cudaMemcpyAsync(to, from, sizeof to, 4, s));
    MUST(cudaEventRecord(*e, s));
    MUST(cudaStreamWaitEvent(s, x, 0));
    MUST(cudaStreamWaitEvent(streams[next(&seed) % 2], *e, 0));
    switch (next(&seed) % 8) {
    case 0: MUST(cudaEventRecord(x, s)); break;
    case 1: MUST(cudaEventSynchronize(*e)); break;
    case 2: MUST(cudaEventSynchronize(x)); break;
    case 3: MUST(cudaStreamSynchronize(s)); break;
    case 4: { /* another thread destroys it, pending or not; the next one may get the same handle */
      handle other = atomic_exchange(&mailbox[next(&seed) % SHARED], *e);
      if (other) MUST(cudaEventDestroy(other));
      MUST(cudaEventCreateWithFlags(e, 2));
      break;
    }
    case 5: cudaEventElapsedTime(&ms, *e, x); break;
    default: cudaEventQuery(*e); cudaEventQuery(x); cudaStreamQuery(s);
    }
  }
  for (int i = 0; i < 2; ++i) MUST(cudaStreamSynchronize(streams[i]));
  for (int i = 0; i < OWN; ++i) MUST(cudaEventDestroy(own[i]));
  for (int i = 0; i < 2; ++i) MUST(cudaStreamDestroy(streams[i]));
  --working;
  return NULL;
}

static int stress(int threads, int rounds) {
  for (int i = 0; i < SHARED; ++i) MUST(cudaEventCreateWithFlags(&shared[i], 2));
  for (int round = 0; round < rounds; ++round) {
    pthread_t at[64];
    working = threads;
    for (int i = 0; i < threads; ++i) pthread_create(&at[i], NULL, work, (void *)(uintptr_t)(round * threads + i));
    while (working) { /* under late-sync a synchronize on an event needs somebody who does this */
      MUST(cudaDeviceSynchronize());
      pause_us(200);
    }
    for (int i = 0; i < threads; ++i) pthread_join(at[i], NULL);
    for (int i = 0; i < SHARED; ++i) {
      handle left = atomic_exchange(&mailbox[i], NULL);
      if (left) MUST(cudaEventDestroy(left));
    }
    printf("living %d\n", number("double_living") - SHARED);
  }
  for (int i = 0; i < SHARED; ++i) MUST(cudaEventDestroy(shared[i]));
  printf("misuse %d\n", number("double_misuse"));
  return 0;
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count > 1 && !strcmp(words[1], "core")) return core(0);
  if (count > 1 && !strcmp(words[1], "own")) return core(1);
  if (count > 1 && !strcmp(words[1], "capture")) return capture();
  if (count > 1 && !strcmp(words[1], "destroyed")) return destroyed();
  if (count > 1 && !strcmp(words[1], "reset")) return reset(words[2]);
  if (count > 3 && !strcmp(words[1], "stress")) return stress(atoi(words[2]), atoi(words[3]));
  if (count > 1 && !strcmp(words[1], "fork")) { /* each process has its own numbers, also without exec */
    if (!fork()) return core(0);
    int status;
    return wait(&status) < 0 || status;
  }
  if (count > 1 && !strcmp(words[1], "abort")) {
    core(0);
    abort();
  }
  return 2;
}
