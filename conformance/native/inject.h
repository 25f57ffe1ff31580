/* A runtime that is wrong on request: preloaded over the event and stream calls of CUDA, HIP or MUSA.
 *
 * Client calls enter through the wrappers of runtime.c and driver.c. What a fault does is in faults.c, with the
 * state that it needs in state.c; faults that hold queued work back use holds.c. Everything else passes through.
 * Source of the faults' meaning: docs/inject.md.
 */
#ifndef INJECT_H
#define INJECT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* What a fault is named in FAULTS of counts.c, in this order. */
enum fault {
  LATE_NEXT_WAIT = 1 << 0,
  LATE_ANY_WAIT = 1 << 1,
  LATE_SYNC = 1 << 2,
  HELD_BY_WAIT = 1 << 3,
  QUERY_ALWAYS_TRUE = 1 << 4,
  SYNC_NOOP = 1 << 5,
  WAIT_DROPPED = 1 << 6,
  WAIT_NEWEST_RECORD = 1 << 7,
  REREC_IGNORED = 1 << 8,
};
#define LATE_WAIT (LATE_NEXT_WAIT | LATE_ANY_WAIT)
#define HOLDS (HELD_BY_WAIT | WAIT_NEWEST_RECORD)

/* The faults in force; 0 before the constructor has run, and where none was asked for. */
extern unsigned faults;
/* Above 0 while this thread is inside a hooked call: what a runtime asks its driver is the runtime's affair. */
extern __thread int inside;

/* What is needed of an API family, whoever calls it by which name. */
enum role {
  RECORD, RECORD_FLAGS, WAIT, QUERY, SYNC, DESTROY, ELAPSED, ELAPSED_V2, CREATE, CREATE_FLAGS,
  STREAM_QUERY, STREAM_SYNC, STREAM_DESTROY, DEVICE_SYNC, RESET,
  CAPTURING,    /* is a stream being captured? */
  CAPTURE_MODE, /* exchanges this thread's capture mode */
  PEEK, LAST,   /* the thread's last error, kept and cleared; the driver has none */
  GET_PLACE, SET_PLACE, /* the current device (an int) or context (a pointer) */
  ROLES
};

struct api {
  const char *name;
  const char *library;        /* how the file name of its library begins */
  const char *names[ROLES];   /* NULL: the family has no such call */
  const char *wait_value[2];  /* names of the stream memory operation, best first */
  const char *host_register;  /* (void *, size_t, unsigned flags) */
  const char *device_pointer; /* (void **, void *, unsigned flags): where the device sees registered memory */
  const char *other;          /* how the file name of the library begins that has these */
  bool mask;                  /* the stream memory operation takes a mask */
  bool pointer_place;         /* a place is a context, not a number */
  _Atomic(void *) real[ROLES];
};

enum { OK = 0, NOT_READY = 600, NOT_SUPPORTED = 801 }; /* the same numbers in CUDA's, HIP's and the driver's enums */

/* lookup.c: the function itself, not our wrapper; NULL if no loaded library has it. */
void *real_of(struct api *api, enum role role);
void *find_real(const char *library, const char *name);
void *find_any(const struct api *api, const char *name);

/* A name that is answered with our wrapper when it is looked up. */
struct hook {
  const char *name;
  void *wrapper;
};
extern const struct hook runtime_hooks[], driver_hooks[]; /* each ends with an empty name */
const struct hook *hook_named(const char *name);

/* counts.c: one line of the log each. */
enum effect {
  SEEN_PENDING,      /* waits on a pending event */
  RECORDED_AGAIN,    /* events recorded again behind a wait */
  LATE_ANSWERS,      /* queries of a complete event answered with "not ready" */
  LATE_RETURNS,      /* synchronize calls that went on after the event's completion */
  TRUE_ANSWERS,      /* queries of a pending event answered with "complete" */
  SKIPPED_SYNCS,     /* synchronize calls that were left out */
  DROPPED_WAITS,     /* waits that were left out */
  IGNORED_RECORDS,   /* records that were left out */
  HELD_COPIES,       /* copies shut in, a pending wait being queued behind them; the device may have passed some */
  HELD_WAITS,        /* waits shut in because their event was recorded again */
  EXPIRED_HOLDS,     /* holds that ended by their limit */
  CAPTURED,          /* calls in a graph capture, let through */
  FAILED,            /* our own calls that the runtime refused */
  NO_HOLD,           /* holds that could not be made: no stream memory operation */
  EFFECTS
};
void note(enum effect effect);
/* Counts a call of the client by its name; `slot` is the caller's own and holds where it is counted. */
void note_call(const char *name, _Atomic(int) *slot);
#define CALLED(name) do { static _Atomic(int) slot_ = -1; if (!inside) note_call(name, &slot_); } while (0)

/* state.c */
struct shadow { /* an event of our own */
  void *event;
  struct api *api;
  uintptr_t place;
  bool blocking, lost; /* lost: its context may be gone, so it is not used again */
  unsigned refs;
  unsigned long generation; /* changes when it is recorded again */
  struct shadow *next;
};
struct node { /* in a hash table */
  struct node *next;
  uintptr_t key[3];
};
struct slot { /* a word that a stream waits for */
  uint32_t index, ticket;
};
struct slots { /* the latest ones; older ones have been passed, since no stream takes so many operations */
  struct slot *at;
  unsigned count, room, first;
};
struct stream {
  struct node node;
  pthread_mutex_t lock; /* held while something is queued on it; never taken with `state` held */
  unsigned refs;
  struct event *first, *last; /* recorded last on this stream, and neither published nor given a shadow (late-any-wait
                                 keeps those in) */
  struct shadow *tail;        /* late-any-wait: recorded behind the latest wait */
  struct slots slots;         /* held-by-wait: before each copy */
  unsigned waits;             /* held-by-wait: pending ones queued on it */
};
struct event {
  struct node node;
  unsigned refs, pins; /* pinned: being asked by us, so not to be destroyed */
  bool blocking, recorded, captured, published;
  uint64_t record, flushes; /* the record's number; flushes when it was made */
  struct stream *stream;    /* in whose list it is */
  struct event *before, *after;
  void *on;              /* the stream that it was recorded on */
  struct shadow *shadow; /* what must be complete too before the host sees it complete */
  struct shadow *twin;   /* recorded right behind the latest record */
  struct slots slots;    /* wait-newest-record: behind each wait on it */
};

extern pthread_mutex_t state; /* guards everything in this section but the streams' locks */
extern pthread_cond_t changed;

struct event *event_find(void *handle);
struct event *event_get(void *handle);
void event_release(struct event *event);
void event_forget(struct event *event); /* out of the table and its list; waits until nobody asks it */
void event_list(struct event *event, struct stream *stream);
void event_unlist(struct event *event);
void event_bare(struct event *event); /* drops shadow and twin */
struct stream *stream_take(struct api *api, void *handle); /* with its lock held */
void stream_give(struct stream *stream);                   /* unlocks */
void stream_release(struct stream *stream);                /* `state` held */
void stream_forget(struct api *api, void *handle);
struct shadow *shadow_take(struct api *api, bool blocking);
void shadow_release(struct shadow *shadow);
void forget_all(void); /* `state` held: every event and stream may be gone, and every event of our own */
void slots_push(struct slots *slots, struct slot slot);

/* Our own calls: without a trace in captures or in the thread's last error. */
int quiet_query(struct api *api, void *event);
bool quiet_idle(struct api *api, void *stream); /* has it nothing left to do? */
bool quiet_record(struct shadow *shadow, void *stream);
bool is_capturing(struct api *api, void *stream);

/* holds.c */
bool hold_place(struct api *api, void *stream, struct slot *slot); /* queues an open hold */
bool hold_close(struct slot slot);
void hold_open(struct slot slot);
void hold_stream_until(struct stream *stream, struct shadow *twin); /* `state` held, both of these */
void hold_event_until(struct event *event, struct shadow *twin);
void holds_stop(void);       /* opens all of them; until holds_go_on the device is not asked about any */
void holds_go_on(bool gone); /* gone: no context has the words any more */
void holds_end(void);
void holds_forked(void);

/* faults.c: the calls of a client, `stream` never the thread's own by the number 0. */
int on_record(struct api *api, void *event, void *stream, unsigned flags, bool with_flags);
int on_wait(struct api *api, void *stream, void *event, unsigned flags);
int on_query(struct api *api, void *event);
int on_sync(struct api *api, void *event);
int on_destroy(struct api *api, void *event);
int on_elapsed(struct api *api, enum role role, float *ms, void *start, void *end);
int on_create(struct api *api, void **event, unsigned flags, bool with_flags);
int on_stream_query(struct api *api, void *stream);
int on_stream_sync(struct api *api, void *stream);
int on_stream_destroy(struct api *api, void *stream);
int on_device_sync(struct api *api);
int on_reset(struct api *api);
void before_reset(void);      /* around a call that may end a context */
void after_reset(bool gone);
void flush(void); /* a stream or device synchronize was entered */
void before_copy(struct api *api, void *stream);

/* Stream 0 of the calls that are built for per-thread default streams, as the plain calls name it. */
#define OWN(stream) ((stream) ? (stream) : (void *)2)
#define HOOK(name) {#name, (void *)name}

/* The real call of this very name; `real` is the caller's own, and keeps it. */
#define NAMED(api, name, types, ...) \
  ({ \
    void *named_ = atomic_load(&real); \
    if (!named_) atomic_store(&real, named_ = find_any(api, name)); \
    ++inside; \
    int code_ = named_ ? ((int (*) types)named_)(__VA_ARGS__) : NOT_SUPPORTED; \
    --inside; \
    code_; \
  })

#define CALL(api, role, types, ...) \
  ({ int (*call_) types = (int (*) types)real_of(api, role); call_ ? call_(__VA_ARGS__) : NOT_SUPPORTED; })

#endif
