/* What is known of the client's events and streams, and events of our own. */
#include "inject.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t state = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct table {
  struct node **heads;
  size_t size, used;
};
static struct table events, streams;
static struct shadow *pool;

static void *make(size_t size) {
  void *made = calloc(1, size);
  if (!made) abort();
  return made;
}

static struct node **head_of(struct table *table, const uintptr_t *key) {
  uint64_t mixed = (key[0] ^ key[1] * 31 ^ key[2] * 1009) * 0x9E3779B97F4A7C15ull;
  return &table->heads[(mixed >> 20) & (table->size - 1)];
}

static struct node *find(struct table *table, const uintptr_t *key) {
  if (!table->size) return NULL;
  for (struct node *node = *head_of(table, key); node; node = node->next)
    if (!memcmp(node->key, key, sizeof node->key)) return node;
  return NULL;
}

static void add(struct table *table, struct node *node) {
  if (table->used >= table->size) {
    struct table larger = {.size = table->size ? 2 * table->size : 256, .used = table->used};
    larger.heads = make(larger.size * sizeof *larger.heads);
    for (size_t i = 0; i < table->size; ++i)
      for (struct node *moved; (moved = table->heads[i]);) {
        table->heads[i] = moved->next;
        struct node **head = head_of(&larger, moved->key);
        moved->next = *head;
        *head = moved;
      }
    free(table->heads);
    *table = larger;
  }
  struct node **head = head_of(table, node->key);
  node->next = *head;
  *head = node;
  ++table->used;
}

static void drop(struct table *table, struct node *node) {
  for (struct node **at = head_of(table, node->key); *at; at = &(*at)->next)
    if (*at == node) {
      *at = node->next;
      --table->used;
      return;
    }
}

/* Events. Handles of a runtime and of its driver are the same. */

struct event *event_find(void *handle) {
  return (struct event *)find(&events, (uintptr_t[3]){(uintptr_t)handle});
}

struct event *event_get(void *handle) {
  struct event *event = event_find(handle);
  if (event) return event;
  event = make(sizeof *event);
  event->node.key[0] = (uintptr_t)handle;
  event->refs = 1;
  add(&events, &event->node);
  return event;
}

void event_release(struct event *event) {
  if (--event->refs) return;
  free(event->slots.at);
  free(event);
}

void event_bare(struct event *event) {
  if (event->shadow) shadow_release(event->shadow);
  if (event->twin) shadow_release(event->twin);
  event->shadow = event->twin = NULL;
}

void event_forget(struct event *event) {
  drop(&events, &event->node);
  event_unlist(event);
  while (event->pins) pthread_cond_wait(&changed, &state);
  event_bare(event);
  event_release(event);
}

void event_list(struct event *event, struct stream *stream) {
  event->stream = stream;
  event->after = NULL;
  event->before = stream->last;
  *(stream->last ? &stream->last->after : &stream->first) = event;
  stream->last = event;
}

void event_unlist(struct event *event) {
  struct stream *stream = event->stream;
  if (!stream) return;
  *(event->before ? &event->before->after : &stream->first) = event->after;
  *(event->after ? &event->after->before : &stream->last) = event->before;
  event->stream = NULL;
  event->before = event->after = NULL;
}

/* Streams. The numbers that mean a default stream mean one per device, and one of them one per thread. */

static void stream_key(struct api *api, void *handle, uintptr_t *key) {
  uintptr_t number = (uintptr_t)handle;
  key[0] = number == 1 ? 0 : number;
  key[1] = key[2] = 0;
  if (number > 2) return;
  if (api->pointer_place) CALL(api, GET_PLACE, (void **), (void **)&key[1]);
  else {
    int device = 0;
    CALL(api, GET_PLACE, (int *), &device);
    key[1] = (uintptr_t)device;
  }
  if (number == 2) key[2] = (uintptr_t)pthread_self();
}

struct stream *stream_take(struct api *api, void *handle) {
  uintptr_t key[3];
  stream_key(api, handle, key);
  pthread_mutex_lock(&state);
  struct stream *stream = (struct stream *)find(&streams, key);
  if (!stream) {
    stream = make(sizeof *stream);
    memcpy(stream->node.key, key, sizeof key);
    pthread_mutex_init(&stream->lock, NULL);
    stream->refs = 1;
    add(&streams, &stream->node);
  }
  ++stream->refs;
  pthread_mutex_unlock(&state);
  pthread_mutex_lock(&stream->lock);
  return stream;
}

void stream_release(struct stream *stream) {
  if (--stream->refs) return;
  if (stream->tail) shadow_release(stream->tail);
  pthread_mutex_destroy(&stream->lock);
  free(stream->slots.at);
  free(stream);
}

void stream_give(struct stream *stream) {
  pthread_mutex_unlock(&stream->lock);
  pthread_mutex_lock(&state);
  stream_release(stream);
  pthread_mutex_unlock(&state);
}

void stream_forget(struct api *api, void *handle) {
  uintptr_t key[3];
  stream_key(api, handle, key);
  pthread_mutex_lock(&state);
  struct stream *stream = (struct stream *)find(&streams, key);
  if (stream) {
    drop(&streams, &stream->node);
    while (stream->first) event_unlist(stream->first);
    stream_release(stream);
  }
  pthread_mutex_unlock(&state);
}

void slots_push(struct slots *slots, struct slot slot) {
  enum { KEPT = 1024 };
  if (slots->count < KEPT) {
    if (slots->count == slots->room) {
      slots->room = slots->room ? 2 * slots->room : 16;
      slots->at = realloc(slots->at, slots->room * sizeof *slots->at);
      if (!slots->at) abort();
    }
    slots->at[slots->count++] = slot;
  } else {
    slots->at[slots->first] = slot;
    slots->first = (slots->first + 1) % KEPT;
  }
}

/* Our own calls. */

struct quiet {
  int mode, error;
};

static struct quiet enter(struct api *api) {
  ++inside;
  struct quiet quiet = {.mode = 2}; /* relaxed: nothing that another thread captures is disturbed */
  CALL(api, CAPTURE_MODE, (int *), &quiet.mode);
  if (api->names[PEEK]) quiet.error = CALL(api, PEEK, (void));
  return quiet;
}

/* What our call left as the thread's last error must not reach the client. */
static void leave(struct api *api, struct quiet quiet) {
  if (api->names[LAST] && !quiet.error && CALL(api, PEEK, (void))) CALL(api, LAST, (void));
  CALL(api, CAPTURE_MODE, (int *), &quiet.mode);
  --inside;
}

int quiet_query(struct api *api, void *event) {
  struct quiet quiet = enter(api);
  /* An error of the client's that is still to be fetched would be lost: do nothing instead. */
  int code = quiet.error && quiet.error != NOT_READY ? OK : CALL(api, QUERY, (void *), event);
  leave(api, quiet);
  return code;
}

bool quiet_idle(struct api *api, void *stream) {
  struct quiet quiet = enter(api);
  bool idle = quiet.error && quiet.error != NOT_READY ? false : CALL(api, STREAM_QUERY, (void *), stream) == OK;
  leave(api, quiet);
  return idle;
}

bool is_capturing(struct api *api, void *stream) {
  int status = 0;
  struct quiet quiet = enter(api);
  bool there = real_of(api, CAPTURING) != NULL;
  int code = there ? CALL(api, CAPTURING, (void *, int *), stream, &status) : OK;
  leave(api, quiet);
  return code || status; /* an error: the default stream while another one is being captured */
}

static uintptr_t place_now(struct api *api) {
  void *context = NULL;
  int device = 0;
  if (api->pointer_place) CALL(api, GET_PLACE, (void **), &context);
  else CALL(api, GET_PLACE, (int *), &device);
  return api->pointer_place ? (uintptr_t)context : (uintptr_t)device;
}

struct shadow *shadow_take(struct api *api, bool blocking) {
  struct quiet quiet = enter(api);
  uintptr_t place = place_now(api);
  pthread_mutex_lock(&state);
  struct shadow *found = NULL;
  for (struct shadow **at = &pool; *at; at = &(*at)->next)
    if ((*at)->api == api && (*at)->place == place && (*at)->blocking == blocking) {
      found = *at;
      *at = found->next;
      break;
    }
  pthread_mutex_unlock(&state);
  if (!found) {
    void *event = NULL;
    unsigned flags = 2u | blocking; /* without timing */
    if (CALL(api, CREATE_FLAGS, (void **, unsigned), &event, flags)) note(FAILED);
    else {
      found = make(sizeof *found);
      *found = (struct shadow){.event = event, .api = api, .place = place, .blocking = blocking};
    }
  }
  leave(api, quiet);
  if (found) {
    found->refs = 1;
    found->next = NULL;
  }
  return found;
}

void shadow_release(struct shadow *shadow) {
  if (--shadow->refs) return;
  if (shadow->lost || !shadow->event) free(shadow);
  else {
    shadow->next = pool;
    pool = shadow;
  }
}

static void lose(struct shadow *shadow) {
  if (shadow) shadow->lost = true;
}

/* Which of them were the ended context's is not known; those of others begin anew, as if never recorded. */
void forget_all(void) {
  for (size_t i = 0; i < events.size; ++i)
    while (events.heads[i]) {
      struct event *event = (struct event *)events.heads[i];
      lose(event->shadow);
      lose(event->twin);
      event_forget(event);
    }
  for (size_t i = 0; i < streams.size; ++i)
    for (struct node *node = streams.heads[i], *next; node; node = next) {
      struct stream *stream = (struct stream *)node;
      next = node->next;
      lose(stream->tail);
      if (stream->tail) shadow_release(stream->tail);
      stream->tail = NULL;
      stream->slots.count = stream->slots.first = 0;
      if (stream->refs > 1) continue; /* in use by a call for another device */
      drop(&streams, node);
      stream_release(stream);
    }
  for (struct shadow *next; pool; pool = next) {
    next = pool->next;
    free(pool);
  }
}

bool quiet_record(struct shadow *shadow, void *stream) {
  struct quiet quiet = enter(shadow->api);
  int code = CALL(shadow->api, RECORD, (void *, void *), shadow->event, stream);
  leave(shadow->api, quiet);
  if (!code) return true;
  note(FAILED);
  shadow->event = NULL; /* of another device, or of one that was reset: given up */
  return false;
}
