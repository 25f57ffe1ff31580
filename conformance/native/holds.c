/* Work that is held back on the device: stream memory operations on words that only the host writes.
 *
 * A hold is queued open, and costs nothing then. It is closed when a fault says so, which has no effect if the
 * stream has passed it already, and opened by a thread of ours once the events are complete that it is closed for,
 * or its limit is over.
 */
#include "inject.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { WORDS = 1 << 16, REGISTERED_ALREADY = 712 };
/* Holds end by themselves: a program may be right and yet stand still for ever under such a fault. */
static const double LIMIT_S = 3.0;

struct job { /* what to open when an event of ours is complete */
  struct job *next;
  struct shadow *twin;
  struct stream *stream; /* its holds, when no pending wait is left; or */
  struct event *event;   /* the event's, if this is still its latest record */
  uint64_t record;
  double until;
};

/* Memory of the process, so that it outlives the contexts it is registered with: a device reset takes memory of the
 * runtime's away. Shared, since a private page would be another one than the device's after a fork. */
static _Atomic(uint32_t) *words;
static uint32_t *seen_at; /* the words' address for the device */
static _Atomic(bool) registered;
static _Atomic(uint64_t) taken;
static struct job *jobs; /* `state` guards it */
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER; /* held while jobs are looked at; taken before `state` */
static bool started, ending;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static bool prepare(struct api *api) {
  if (atomic_load(&registered)) return true;
  pthread_mutex_lock(&starting);
  if (!words) {
    void *at = mmap(NULL, WORDS * sizeof *words, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) words = at;
  }
  if (words && !atomic_load(&registered)) {
    int (*enroll)(void *, size_t, unsigned) = (int (*)(void *, size_t, unsigned))find_any(api, api->host_register);
    int (*look)(void **, void *, unsigned) = (int (*)(void **, void *, unsigned))find_any(api, api->device_pointer);
    void *at = NULL;
    int mode = 2; /* relaxed: another thread may be capturing */
    ++inside;
    CALL(api, CAPTURE_MODE, (int *), &mode);
    int code = enroll ? enroll((void *)words, WORDS * sizeof *words, 3) : NOT_SUPPORTED; /* for every context, mapped */
    if ((!code || code == REGISTERED_ALREADY) && look && !look(&at, (void *)words, 0)) {
      seen_at = at;
      atomic_store(&registered, true);
    }
    CALL(api, CAPTURE_MODE, (int *), &mode);
    --inside;
  }
  pthread_mutex_unlock(&starting);
  return atomic_load(&registered);
}

bool hold_place(struct api *api, void *stream, struct slot *slot) {
  static _Atomic(void *) found;
  void *wait = atomic_load(&found);
  if (!wait) {
    if (!(wait = find_any(api, api->wait_value[0]))) wait = find_any(api, api->wait_value[1]);
    atomic_store(&found, wait);
  }
  if (!wait || !prepare(api)) {
    note(NO_HOLD);
    return false;
  }
  /* A word is used again after 65,536 holds: its earlier one has been passed long ago. */
  uint64_t number = atomic_fetch_add(&taken, 1);
  slot->index = (uint32_t)(number % WORDS);
  slot->ticket = (uint32_t)(number / WORDS) + 1;
  atomic_store(&words[slot->index], slot->ticket);
  void *word = (void *)&seen_at[slot->index];
  ++inside;
  int code;
  if (api->mask) code = ((int (*)(void *, void *, uint32_t, unsigned, uint32_t))wait)(stream, word, slot->ticket, 0, ~0u);
  else code = ((int (*)(void *, void *, uint32_t, unsigned))wait)(stream, word, slot->ticket, 0);
  --inside;
  if (code) {
    note(NO_HOLD);
    atomic_store(&registered, false); /* perhaps they no longer are: the next hold tries */
  }
  return !code;
}

bool hold_close(struct slot slot) {
  uint32_t open = slot.ticket; /* another ticket: the word serves a later hold */
  return atomic_compare_exchange_strong(&words[slot.index], &open, slot.ticket - 1);
}

void hold_open(struct slot slot) {
  uint32_t closed = slot.ticket - 1;
  atomic_compare_exchange_strong(&words[slot.index], &closed, slot.ticket);
}

static void finish(struct job *job) {
  struct slots *slots = NULL;
  if (job->stream && !--job->stream->waits) slots = &job->stream->slots;
  /* A later record has a job of its own, unless it has no twin. */
  if (job->event && (job->event->record == job->record || !job->event->twin)) slots = &job->event->slots;
  for (unsigned i = 0; slots && i < slots->count; ++i) hold_open(slots->at[i]);
  if (job->stream) stream_release(job->stream);
  if (job->event) event_release(job->event);
  shadow_release(job->twin);
  free(job);
}

static bool is_over(struct job *job) {
  struct api *api = job->twin->api;
  /* A driver's context need not be current for a query; a runtime's device must be. */
  if (api->names[SET_PLACE] && !api->pointer_place) CALL(api, SET_PLACE, (int), (int)job->twin->place);
  if (CALL(api, QUERY, (void *), job->twin->event) != NOT_READY) return true;
  if (now() < job->until) return false;
  note(EXPIRED_HOLDS);
  return true;
}

static void *watch(void *unused) {
  (void)unused;
  inside = 1; /* all that this thread does is ours */
  pthread_mutex_lock(&state);
  while (!ending) {
    if (!jobs) {
      pthread_cond_wait(&more, &state);
      continue;
    }
    pthread_mutex_unlock(&state);
    pthread_mutex_lock(&asking);
    pthread_mutex_lock(&state);
    struct job *mine = jobs;
    jobs = NULL; /* looked at without this lock; new ones are added meanwhile */
    pthread_mutex_unlock(&state);
    struct job *over = NULL, *left = NULL;
    for (struct job *next; mine; mine = next) {
      next = mine->next;
      struct job **to = is_over(mine) ? &over : &left;
      mine->next = *to;
      *to = mine;
    }
    pthread_mutex_lock(&state);
    for (struct job *next; over; over = next) {
      next = over->next;
      finish(over);
    }
    for (struct job *next; left; left = next) {
      next = left->next;
      left->next = jobs;
      jobs = left;
    }
    pthread_mutex_unlock(&state);
    pthread_mutex_unlock(&asking);
    nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    pthread_mutex_lock(&state);
  }
  pthread_mutex_unlock(&state);
  return NULL;
}

static void begin(struct job from) {
  struct job *job = malloc(sizeof *job);
  if (!job) abort();
  *job = from;
  ++job->twin->refs;
  if (job->stream) ++job->stream->refs;
  if (job->event) ++job->event->refs;
  job->until = now() + LIMIT_S;
  job->next = jobs;
  jobs = job;
  if (!started) {
    pthread_t thread;
    started = !pthread_create(&thread, NULL, watch, NULL);
    if (started) pthread_detach(thread);
  }
  pthread_cond_signal(&more);
}

static bool close_all(struct slots *slots, enum effect effect) {
  bool any = false;
  for (unsigned i = 0; i < slots->count; ++i)
    if (hold_close(slots->at[i])) {
      note(effect);
      any = true;
    }
  return any;
}

void hold_stream_until(struct stream *stream, struct shadow *twin) {
  close_all(&stream->slots, HELD_COPIES);
  ++stream->waits;
  begin((struct job){.twin = twin, .stream = stream});
}

void hold_event_until(struct event *event, struct shadow *twin) {
  close_all(&event->slots, HELD_WAITS);
  if (event->slots.count) begin((struct job){.twin = twin, .event = event, .record = event->record});
}

void holds_stop(void) {
  pthread_mutex_lock(&asking);
  pthread_mutex_lock(&state);
  for (struct job *job; (job = jobs);) {
    jobs = job->next;
    finish(job);
  }
  pthread_mutex_unlock(&state);
}

void holds_go_on(bool gone) {
  if (gone) atomic_store(&registered, false);
  pthread_mutex_unlock(&asking);
}

void holds_end(void) {
  pthread_mutex_lock(&state);
  ending = true;
  pthread_cond_signal(&more);
  for (int i = 0; words && i < WORDS; ++i) atomic_store(&words[i], UINT32_MAX / 2);
  pthread_mutex_unlock(&state);
}

void holds_forked(void) {
  pthread_mutex_init(&starting, NULL);
  pthread_mutex_init(&asking, NULL);
  pthread_cond_init(&more, NULL);
  started = false;
  jobs = NULL;
  words = NULL; /* the parent's device reads them */
  atomic_store(&registered, false);
}
