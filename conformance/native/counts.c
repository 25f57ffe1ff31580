/* What was called and done, in a file that is mapped: it is there even if the process is killed.
 *
 * The file is a head and then entries of a name and a number, read by conformance/inject/counts.py. Every process
 * has one of its own, and one that was forked off begins anew.
 */
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* In the order of enum fault. */
static const char *const FAULTS[] = {"late-next-wait", "late-any-wait", "late-sync", "held-by-wait",
                                     "query-always-true", "sync-noop", "wait-dropped", "wait-newest-record",
                                     "rerecord-ignored"};
/* In the order of enum effect. */
static const char *const EFFECT_NAMES[EFFECTS] = {
    "waits_on_pending", "recorded_again", "late_answers", "late_returns", "true_answers", "skipped_synchronizes",
    "dropped_waits", "ignored_records", "held_copies", "held_waits", "expired_holds", "captured_calls",
    "failed_calls", "holds_not_made"};
/* Libraries that are noted when the process ends, so that it can be said why nothing was reached. */
static const char *const LIBRARIES[] = {"libcudart.so", "libcuda.so", "libamdhip64.so", "libmusart.so"};

enum { NAME = 40, CALLS = 96, LOADED = sizeof LIBRARIES / sizeof *LIBRARIES, ENTRIES = EFFECTS + LOADED + 1 + CALLS };
struct entry {
  char name[NAME];
  _Atomic(uint64_t) count;
};
struct page {
  char magic[8];
  int64_t pid;
  char command[48];
  struct entry entries[ENTRIES];
};

unsigned faults;
__thread int inside;

static struct page nowhere; /* what is counted before, or without, a file */
static _Atomic(struct page *) page;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static const char *kept_in;

static void fill(struct page *made) {
  memcpy(made->magic, "SCCOUNT1", 8);
  made->pid = getpid();
  strncpy(made->command, program_invocation_short_name, sizeof made->command - 1);
  for (int i = 0; i < EFFECTS; ++i) snprintf(made->entries[i].name, NAME, "effect %s", EFFECT_NAMES[i]);
  for (int i = 0; i < LOADED; ++i) snprintf(made->entries[EFFECTS + i].name, NAME, "loaded %s", LIBRARIES[i]);
  snprintf(made->entries[EFFECTS + LOADED].name, NAME, "ended");
}

static struct page *counts(void) {
  struct page *here = atomic_load_explicit(&page, memory_order_acquire);
  if (here) return here;
  pthread_mutex_lock(&making);
  if (!(here = atomic_load(&page))) {
    here = &nowhere;
    memset(here, 0, sizeof *here);
    char path[4096];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int size = kept_in ? snprintf(path, sizeof path, "%s/%ld-%lld", kept_in, (long)getpid(),
                                  (long long)now.tv_sec * 1000000000ll + now.tv_nsec)
                       : -1;
    int fd = size > 0 && (size_t)size < sizeof path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
      if (!ftruncate(fd, sizeof(struct page))) {
        void *at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) here = at;
      }
      close(fd);
    }
    fill(here);
    atomic_store_explicit(&page, here, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return here;
}

void note(enum effect effect) { atomic_fetch_add_explicit(&counts()->entries[effect].count, 1, memory_order_relaxed); }

void note_call(const char *name, _Atomic(int) *slot) {
  struct page *here = counts();
  int at = atomic_load_explicit(slot, memory_order_acquire);
  if (at < 0 || strcmp(here->entries[at].name, name)) { /* first call, or a page made after a fork */
    pthread_mutex_lock(&making);
    for (at = EFFECTS + LOADED + 1; at < ENTRIES && here->entries[at].name[0]; ++at)
      if (!strcmp(here->entries[at].name, name)) break;
    if (at < ENTRIES) strncpy(here->entries[at].name, name, NAME - 1);
    else at = ENTRIES - 1;
    atomic_store_explicit(slot, at, memory_order_release);
    pthread_mutex_unlock(&making);
  }
  atomic_fetch_add_explicit(&here->entries[at].count, 1, memory_order_relaxed);
}

static void forked(void) {
  /* Other threads are gone, and may have held anything; no device outlives a fork. */
  pthread_mutex_init(&making, NULL);
  pthread_mutex_init(&state, NULL);
  pthread_cond_init(&changed, NULL);
  atomic_store(&page, NULL);
  holds_forked();
}

static int look_at(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  const char *base = strrchr(info->dlpi_name, '/');
  base = base ? base + 1 : info->dlpi_name;
  for (int i = 0; i < LOADED; ++i)
    if (!strncmp(base, LIBRARIES[i], strlen(LIBRARIES[i]))) ((bool *)found)[i] = true;
  return 0;
}

__attribute__((constructor)) static void begin(void) {
  kept_in = getenv("STREAM_CONFORMANCE_INJECT_COUNTS");
  const char *asked = getenv("STREAM_CONFORMANCE_INJECT");
  for (size_t i = 0; asked && i < sizeof FAULTS / sizeof *FAULTS; ++i) {
    size_t length = strlen(FAULTS[i]);
    for (const char *at = asked; (at = strstr(at, FAULTS[i])); at += length)
      if ((at == asked || at[-1] == ',') && (!at[length] || at[length] == ',')) faults |= 1u << i;
  }
  pthread_atfork(NULL, NULL, forked);
  counts();
}

__attribute__((destructor)) static void end(void) {
  bool found[LOADED] = {false};
  holds_end();
  dl_iterate_phdr(look_at, found);
  struct page *here = counts();
  for (int i = 0; i < LOADED; ++i) atomic_store(&here->entries[EFFECTS + i].count, found[i]);
  atomic_store(&here->entries[EFFECTS + LOADED].count, 1);
}
