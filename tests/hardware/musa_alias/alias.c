/* MUSA's names over CUDA's driver and NVRTC, for a test: each function calls the one that it stands for.
 *
 * Compiled once per library, with -DDRIVER (libmusa), -DRUNTIME (libmusart) or -DCOMPILER (libmtrtc). What is
 * called lies in the libraries that $ALIAS_DRIVER and $ALIAS_COMPILER name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *real(const char *variable, const char *name) {
  const char *file = getenv(variable);
  void *library = file ? dlopen(file, RTLD_NOW) : NULL;
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) fprintf(stderr, "alias: %s has no %s: %s\n", variable, name, dlerror());
  return found;
}

#define ABSENT 500
#define AS(variable, name, other, parameters, arguments)                   \
  int name parameters {                                                    \
    static int(*function) parameters;                                      \
    if (!function) function = (int(*) parameters)real(variable, #other);   \
    return function ? function arguments : ABSENT;                         \
  }
#define DRV(name, other, parameters, arguments) AS("ALIAS_DRIVER", name, other, parameters, arguments)
#define RTC(name, other, parameters, arguments) AS("ALIAS_COMPILER", name, other, parameters, arguments)

#ifdef DRIVER
DRV(muGetErrorName, cuGetErrorName, (int code, const char **name), (code, name))
DRV(muCtxGetCurrent, cuCtxGetCurrent, (void **context), (context))
DRV(muCtxSetCurrent, cuCtxSetCurrent, (void *context), (context))
DRV(muModuleLoadData, cuModuleLoadData, (void **module, const void *image), (module, image))
DRV(muModuleGetFunction, cuModuleGetFunction, (void **function_, void *module, const char *name), (function_, module, name))
DRV(muLaunchKernel, cuLaunchKernel,
    (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
     void **parameters_, void **extra),
    (f, gx, gy, gz, bx, by, bz, shared, stream, parameters_, extra))
DRV(muStreamWaitValue32, cuStreamWaitValue32_v2, (void *s, unsigned long long at, unsigned value, unsigned flags), (s, at, value, flags))
DRV(muStreamWriteValue32, cuStreamWriteValue32_v2, (void *s, unsigned long long at, unsigned value, unsigned flags), (s, at, value, flags))
#endif

#ifdef RUNTIME
DRV(musaLaunchHostFunc, cuLaunchHostFunc, (void *s, void (*call)(void *), void *argument), (s, call, argument))
DRV(musaHostRegister, cuMemHostRegister_v2, (void *at, size_t size, unsigned flags), (at, size, flags))
DRV(musaHostUnregister, cuMemHostUnregister, (void *at), (at))
DRV(musaHostGetDevicePointer, cuMemHostGetDevicePointer_v2, (void **device, void *host, unsigned flags), (device, host, flags))
DRV(musaEventQuery, cuEventQuery, (void *event), (event))
DRV(musaDriverGetVersion, cuDriverGetVersion, (int *version), (version))
DRV(musaRuntimeGetVersion, cuDriverGetVersion, (int *version), (version))
int musaGetLastError(void) { return 0; }
#endif

#ifdef COMPILER
RTC(mtrtcCreateProgram, nvrtcCreateProgram,
    (void **program, const char *text, const char *name, int count, const char **headers, const char **names),
    (program, text, name, count, headers, names))
RTC(mtrtcDestroyProgram, nvrtcDestroyProgram, (void **program), (program))
RTC(mtrtcGetProgramLogSize, nvrtcGetProgramLogSize, (void *program, size_t *size), (program, size))
RTC(mtrtcGetProgramLog, nvrtcGetProgramLog, (void *program, char *text), (program, text))
RTC(mtrtcGetFatBinSize, nvrtcGetCUBINSize, (void *program, size_t *size), (program, size))
RTC(mtrtcGetFatBin, nvrtcGetCUBIN, (void *program, char *code), (program, code))

static RTC(compile, nvrtcCompileProgram, (void *program, int count, const char *const *options), (program, count, options))

/* mcc's spelling of the architecture becomes NVRTC's; everything else is passed on. */
int mtrtcCompileProgram(void *program, int count, const char *const *options) {
  char texts[8][64];
  const char *passed[8];
  unsigned arch;
  if (count > 8) return ABSENT;
  for (int i = 0; i < count; ++i) {
    passed[i] = options[i];
    if (sscanf(options[i], "--offload-arch=mp_%u", &arch) == 1) {
      snprintf(texts[i], sizeof texts[i], "--gpu-architecture=sm_%u", arch);
      passed[i] = texts[i];
    }
  }
  return compile(program, count, passed);
}
#endif
