/* Finding the real functions, and answering whoever looks one of them up by name with our wrapper. */
#include "inject.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

typedef void *(*dlsym_t)(void *, const char *);

static dlsym_t real_dlsym(void) {
  static _Atomic(dlsym_t) found;
  dlsym_t at = atomic_load_explicit(&found, memory_order_relaxed);
  if (at) return at;
  /* By version, since a plain look-up would find us. In the order of glibc's ports. */
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27", "GLIBC_2.36"};
  for (size_t i = 0; !at && i < sizeof versions / sizeof *versions; ++i)
    at = (dlsym_t)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  atomic_store_explicit(&found, at, memory_order_relaxed);
  return at;
}

struct search {
  const char *library;
  char path[4096];
};

static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  struct search *search = data;
  const char *base = strrchr(info->dlpi_name, '/');
  if (!base || strncmp(base + 1, search->library, strlen(search->library))) return 0;
  snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
  return 1;
}

/* A library that a module loaded for itself alone is not among those that follow us: it is found by its file. */
void *find_real(const char *library, const char *name) {
  void *found = real_dlsym()(RTLD_NEXT, name);
  if (found) return found;
  struct search search = {.library = library};
  if (!dl_iterate_phdr(look_at, &search)) return NULL;
  void *handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return NULL;
  found = real_dlsym()(handle, name);
  dlclose(handle); /* whoever loaded it keeps it */
  const struct hook *hook = hook_named(name);
  return hook && hook->wrapper == found ? NULL : found;
}

void *find_any(const struct api *api, const char *name) {
  void *found = name ? find_real(api->library, name) : NULL;
  return found || !name ? found : find_real(api->other, name);
}

#define MISSING ((void *)-1)

void *real_of(struct api *api, enum role role) {
  void *found = atomic_load_explicit(&api->real[role], memory_order_acquire);
  if (found == MISSING || !api->names[role]) return NULL;
  if (found) return found;
  found = find_real(api->library, api->names[role]);
  /* What a client never calls may be missing for good; the rest comes with the client's library. */
  if (found || role >= CAPTURING) atomic_store_explicit(&api->real[role], found ? found : MISSING, memory_order_release);
  return found;
}

const struct hook *hook_named(const char *name) {
  if (strncmp(name, "cu", 2) && strncmp(name, "hip", 3) && strncmp(name, "musa", 4)) return NULL;
#ifdef RUNTIME
  for (const struct hook *hook = runtime_hooks; hook->name; ++hook)
    if (!strcmp(hook->name, name)) return hook;
#endif
#ifdef DRIVER
  for (const struct hook *hook = driver_hooks; hook->name; ++hook)
    if (!strcmp(hook->name, name)) return hook;
#endif
  return NULL;
}

static void *answer(void *handle, const char *name, const struct hook *hook) {
  void *found = real_dlsym()(handle, name);
  if (found != hook->wrapper) return found ? hook->wrapper : NULL;
  /* Found in us: as if we were not there, it exists only where a library behind us has it. */
  return real_dlsym()(RTLD_NEXT, name) ? hook->wrapper : NULL;
}

/* The last call must be a jump, which -O2 makes of it: what RTLD_NEXT means depends on who called. */
EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
  const struct hook *hook = handle == RTLD_NEXT ? NULL : hook_named(name);
  if (hook) return answer(handle, name, hook);
  return real_dlsym()(handle, name);
}
