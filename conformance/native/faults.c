/* What each fault does to the client's calls. */
#include "inject.h"

static uint64_t flushes, records; /* stream and device synchronizes so far; records so far. `state` guards both */

/* The real call, as the client made it: what it causes further down is not the client's. */
#define PASS(api, role, types, ...) \
  ({ ++inside; int passed_ = CALL(api, role, types, __VA_ARGS__); --inside; passed_; })
#define ALONE (!faults || inside)

static int pass_record(struct api *api, void *event, void *stream, unsigned flags, bool with_flags) {
  if (with_flags) return PASS(api, RECORD_FLAGS, (void *, void *, unsigned), event, stream, flags);
  return PASS(api, RECORD, (void *, void *), event, stream);
}

static int pass_wait(struct api *api, void *stream, void *event, unsigned flags) {
  return PASS(api, WAIT, (void *, void *, unsigned), stream, event, flags);
}

static void captured_record(void *handle) {
  note(CAPTURED);
  pthread_mutex_lock(&state);
  struct event *event = event_get(handle);
  event_unlist(event);
  event_bare(event);
  event->recorded = event->captured = true;
  event->record = ++records;
  pthread_mutex_unlock(&state);
}

static bool ignored(void *handle) {
  pthread_mutex_lock(&state);
  struct event *event = event_find(handle);
  bool ignore = event && event->recorded && !event->captured;
  pthread_mutex_unlock(&state);
  if (ignore) note(IGNORED_RECORDS);
  return ignore;
}

int on_record(struct api *api, void *handle, void *on, unsigned flags, bool with_flags) {
  if (ALONE) return pass_record(api, handle, on, flags, with_flags);
  struct stream *stream = stream_take(api, on);
  int code;
  if (is_capturing(api, on)) {
    if (!(code = pass_record(api, handle, on, flags, with_flags))) captured_record(handle);
  } else if (faults & REREC_IGNORED && ignored(handle)) {
    code = OK;
  } else if (!(code = pass_record(api, handle, on, flags, with_flags))) {
    struct shadow *twin = faults & HOLDS ? shadow_take(api, false) : NULL;
    bool twinned = twin && quiet_record(twin, on);
    pthread_mutex_lock(&state);
    struct event *event = event_get(handle);
    event_unlist(event);
    event_bare(event);
    event->recorded = true;
    event->captured = event->published = false;
    event->record = ++records;
    event->flushes = flushes;
    event->on = on;
    if (faults & LATE_WAIT) event_list(event, stream);
    if (twinned) event->twin = twin;
    else if (twin) shadow_release(twin);
    if (faults & WAIT_NEWEST_RECORD && twinned) hold_event_until(event, twin);
    pthread_mutex_unlock(&state);
  }
  stream_give(stream);
  return code;
}

static void publish(struct event *event) {
  event->published = true;
  event_unlist(event);
  if (event->shadow) shadow_release(event->shadow);
  event->shadow = NULL;
}

/* The events before a new wait that are seen complete stay so. The stream is locked, `state` is not. */
static void settle(struct api *api, struct stream *stream) {
  pthread_mutex_lock(&state);
  struct shadow *tail = stream->first && stream->first->shadow ? stream->tail : NULL;
  if (tail) {
    ++tail->refs;
    pthread_mutex_unlock(&state);
    /* Tails are recorded with the stream locked alone: so this is of the latest wait. */
    int code = quiet_query(api, tail->event);
    pthread_mutex_lock(&state);
    shadow_release(tail);
    if (code == NOT_READY) {
      pthread_mutex_unlock(&state);
      return;
    }
  }
  while (stream->first && stream->first->shadow) publish(stream->first);
  for (struct event *event; (event = stream->first);) {
    uint64_t record = event->record;
    void *handle = (void *)event->node.key[0];
    ++event->pins;
    ++event->refs;
    pthread_mutex_unlock(&state);
    int code = quiet_query(api, handle);
    pthread_mutex_lock(&state);
    if (!--event->pins) pthread_cond_broadcast(&changed);
    bool same = event->stream == stream && event->record == record;
    if (same && code != NOT_READY) publish(event);
    event_release(event);
    if (same && code == NOT_READY) break; /* and so are all behind it */
  }
  pthread_mutex_unlock(&state);
}

/* Records the stream's incomplete events again, behind the wait that was just queued. */
static void record_again(struct api *api, struct stream *stream, void *on) {
  bool blocking = false;
  pthread_mutex_lock(&state);
  for (struct event *event = stream->first; event; event = event->after) blocking |= event->blocking;
  bool any = stream->first != NULL;
  struct shadow *shadow = faults & LATE_ANY_WAIT ? stream->tail : NULL;
  if (shadow && (blocking && !shadow->blocking)) shadow = NULL;
  if (shadow) ++shadow->refs;
  pthread_mutex_unlock(&state);
  if (!any) {
    if (shadow) {
      pthread_mutex_lock(&state);
      shadow_release(shadow);
      pthread_mutex_unlock(&state);
    }
    return;
  }
  for (int tries = 0; tries < 2; ++tries) {
    if (!shadow && !(shadow = shadow_take(api, blocking))) return;
    if (quiet_record(shadow, on)) break;
    pthread_mutex_lock(&state);
    if (stream->tail == shadow) {
      stream->tail = NULL;
      shadow_release(shadow);
    }
    shadow_release(shadow);
    pthread_mutex_unlock(&state);
    shadow = NULL;
  }
  if (!shadow) return;
  pthread_mutex_lock(&state);
  ++shadow->generation;
  for (struct event *event = stream->first, *next; event; event = next) {
    next = event->after;
    note(RECORDED_AGAIN);
    if (event->shadow) shadow_release(event->shadow);
    event->shadow = shadow;
    ++shadow->refs;
    if (faults & LATE_NEXT_WAIT) event_unlist(event);
  }
  if (faults & LATE_ANY_WAIT) {
    if (stream->tail) shadow_release(stream->tail);
    stream->tail = shadow;
  } else {
    shadow_release(shadow);
  }
  pthread_mutex_unlock(&state);
}

/* After a wait was queued: work that a fault holds back by it. */
static void hold_back(struct api *api, struct stream *stream, void *on, void *handle, bool pending) {
  struct slot slot;
  bool placed = faults & WAIT_NEWEST_RECORD && hold_place(api, on, &slot);
  pthread_mutex_lock(&state);
  struct event *event = event_find(handle);
  if (event && placed) slots_push(&event->slots, slot);
  /* A wait on the stream's own past holds nothing up. */
  if (event && faults & HELD_BY_WAIT && pending && event->twin && event->on != on)
    hold_stream_until(stream, event->twin);
  pthread_mutex_unlock(&state);
}

int on_wait(struct api *api, void *on, void *handle, unsigned flags) {
  if (ALONE) return pass_wait(api, on, handle, flags);
  struct stream *stream = stream_take(api, on);
  pthread_mutex_lock(&state);
  struct event *event = event_find(handle);
  bool recorded = event && event->recorded, captured = event && event->captured;
  pthread_mutex_unlock(&state);
  int code = OK;
  if (captured || is_capturing(api, on)) {
    note(CAPTURED);
    code = pass_wait(api, on, handle, flags);
  } else if (faults & WAIT_DROPPED && recorded) {
    note(DROPPED_WAITS);
  } else {
    bool pending = faults & (LATE_WAIT | HELD_BY_WAIT) && quiet_query(api, handle) == NOT_READY;
    if (pending) note(SEEN_PENDING);
    if (pending && faults & LATE_WAIT) settle(api, stream);
    code = pass_wait(api, on, handle, flags);
    if (!code && pending && faults & LATE_WAIT) record_again(api, stream, on);
    /* The newest record may be one that is still to be made. */
    if (!code && (faults & WAIT_NEWEST_RECORD || (recorded && faults & HELD_BY_WAIT)))
      hold_back(api, stream, on, handle, pending);
  }
  stream_give(stream);
  return code;
}

/* Does the host see it complete, the real event being complete? `state` is held, and given up meanwhile. */
static int shown(struct api *api, struct event *event) {
  if (faults & LATE_SYNC && event->flushes == flushes) return NOT_READY;
  if (!event->shadow) return OK;
  struct shadow *shadow = event->shadow;
  uint64_t record = event->record;
  ++shadow->refs;
  ++event->refs;
  pthread_mutex_unlock(&state);
  int code = PASS(api, QUERY, (void *), shadow->event);
  pthread_mutex_lock(&state);
  if (code != NOT_READY && event->record == record) publish(event);
  shadow_release(shadow);
  event_release(event);
  return code == NOT_READY ? NOT_READY : OK;
}

static struct event *judged(void *handle) {
  struct event *event = event_find(handle);
  return event && event->recorded && !event->captured ? event : NULL;
}

int on_query(struct api *api, void *handle) {
  int code = PASS(api, QUERY, (void *), handle);
  if (ALONE || (code && code != NOT_READY)) return code;
  pthread_mutex_lock(&state);
  struct event *event = judged(handle);
  if (event && faults & QUERY_ALWAYS_TRUE) {
    pthread_mutex_unlock(&state);
    if (code == NOT_READY) {
      note(TRUE_ANSWERS);
      if (api->names[PEEK] && CALL(api, PEEK, (void)) == NOT_READY) CALL(api, LAST, (void));
    }
    return OK;
  }
  if (event && !code) {
    code = shown(api, event);
    if (code == NOT_READY) note(LATE_ANSWERS);
  }
  pthread_mutex_unlock(&state);
  return code;
}

/* A synchronize that has returned goes on until the host may see the event. */
static void go_on(struct api *api, struct event *event, uint64_t record) {
  bool noted = false;
  while (event->record == record && !event->captured && !event->published) {
    if (faults & LATE_SYNC && event->flushes == flushes) {
      if (!noted) note(LATE_RETURNS);
      noted = true;
      pthread_cond_wait(&changed, &state);
      continue;
    }
    struct shadow *shadow = event->shadow;
    if (!shadow) return;
    unsigned long generation = shadow->generation;
    ++shadow->refs;
    pthread_mutex_unlock(&state);
    if (!noted && PASS(api, QUERY, (void *), shadow->event) == NOT_READY) {
      note(LATE_RETURNS);
      noted = true;
    }
    int code = PASS(api, SYNC, (void *), shadow->event);
    pthread_mutex_lock(&state);
    bool same = event->record == record && event->shadow == shadow;
    if (same && (code || shadow->generation == generation)) publish(event);
    shadow_release(shadow);
  }
}

int on_sync(struct api *api, void *handle) {
  if (ALONE) return PASS(api, SYNC, (void *), handle);
  pthread_mutex_lock(&state);
  struct event *event = judged(handle);
  uint64_t record = event ? event->record : 0;
  if (event) ++event->refs;
  pthread_mutex_unlock(&state);
  int code = OK;
  if (event && faults & SYNC_NOOP) note(SKIPPED_SYNCS);
  else code = PASS(api, SYNC, (void *), handle);
  if (!event) return code;
  pthread_mutex_lock(&state);
  if (!code && !(faults & SYNC_NOOP)) go_on(api, event, record);
  event_release(event);
  pthread_mutex_unlock(&state);
  return code;
}

int on_elapsed(struct api *api, enum role role, float *ms, void *start, void *end) {
  int code = PASS(api, role, (float *, void *, void *), ms, start, end);
  if (ALONE || code || !(faults & (LATE_WAIT | LATE_SYNC))) return code;
  void *both[] = {start, end};
  pthread_mutex_lock(&state);
  for (int i = 0; i < 2 && !code; ++i) {
    struct event *event = judged(both[i]);
    if (event) code = shown(api, event);
  }
  pthread_mutex_unlock(&state);
  return code;
}

int on_create(struct api *api, void **handle, unsigned flags, bool with_flags) {
  int code = with_flags ? PASS(api, CREATE_FLAGS, (void **, unsigned), handle, flags)
                        : PASS(api, CREATE, (void **), handle);
  if (ALONE || code) return code;
  pthread_mutex_lock(&state);
  struct event *stale = event_find(*handle); /* destroyed where we did not see it */
  if (stale) event_forget(stale);
  event_get(*handle)->blocking = flags & 1;
  pthread_mutex_unlock(&state);
  return code;
}

int on_destroy(struct api *api, void *handle) {
  if (!ALONE) {
    pthread_mutex_lock(&state);
    struct event *event = event_find(handle);
    if (event) event_forget(event);
    pthread_mutex_unlock(&state);
  }
  return PASS(api, DESTROY, (void *), handle);
}

int on_stream_query(struct api *api, void *stream) { return PASS(api, STREAM_QUERY, (void *), stream); }

void flush(void) {
  if (ALONE || !(faults & LATE_SYNC)) return;
  pthread_mutex_lock(&state);
  ++flushes;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&state);
}

int on_stream_sync(struct api *api, void *stream) {
  flush();
  return PASS(api, STREAM_SYNC, (void *), stream);
}

int on_device_sync(struct api *api) {
  flush();
  return PASS(api, DEVICE_SYNC, (void));
}

int on_stream_destroy(struct api *api, void *stream) {
  if (!ALONE) stream_forget(api, stream);
  return PASS(api, STREAM_DESTROY, (void *), stream);
}

/* Nothing of ours may keep the device from coming to an end, or ask about an event that ends with it. */
void before_reset(void) {
  if (ALONE) return;
  flush();
  holds_stop();
}

void after_reset(bool gone) {
  if (ALONE) return;
  pthread_mutex_lock(&state);
  if (gone) forget_all();
  pthread_mutex_unlock(&state);
  holds_go_on(gone);
}

int on_reset(struct api *api) {
  before_reset();
  int code = PASS(api, RESET, (void));
  after_reset(true);
  return code;
}

void before_copy(struct api *api, void *on) {
  struct slot slot;
  if (ALONE || !(faults & HELD_BY_WAIT)) return;
  struct stream *stream = stream_take(api, on);
  if (is_capturing(api, on)) {
    note(CAPTURED);
  } else {
    bool idle = quiet_idle(api, on);
    bool placed = hold_place(api, on, &slot);
    pthread_mutex_lock(&state);
    if (idle) stream->slots.count = stream->slots.first = 0; /* all of them have been passed */
    if (placed) slots_push(&stream->slots, slot);
    pthread_mutex_unlock(&state);
  }
  stream_give(stream);
}
