// A stream of one device waits for an event of device 0 that another process shared. Plain CUDA, no library.
//   nvcc -o ipc_across ipc_across.cu && ./ipc_across 1 plain
// OWN is the device of the waiting stream (0: the event's own, as a control). MODE: gated (the record stands behind a
// kernel that ends after 1 s) or plain (the event is complete). Right: the token comes, and the child ends with status 0.
// Seen with OWN 1 in both modes on driver 580.159.04: status 11, the child was ended by SIGSEGV in cudaStreamWaitEvent.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <time.h>
#include <sys/wait.h>
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
#define C(x) do { cudaError_t e_ = (x); if (e_) { printf("[%d] %s: %s\n", getpid(), #x, cudaGetErrorName(e_)); fflush(stdout); } } while (0)
__global__ void gate(volatile int *open, long long limit) {
  long long t0, t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0));
  do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); } while (!*open && t - t0 < limit);
}
int child(int own, int in, int out) {
  cudaStream_t s; cudaEvent_t e; int *d, *h; char b; double t;
  C(cudaSetDevice(0)); C(cudaFree(0)); C(cudaSetDevice(own)); C(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  C(cudaMalloc(&d, 64)); C(cudaHostAlloc(&h, 64, cudaHostAllocDefault)); *h = 0;
  C(cudaMemsetAsync(d, 1, 4, s)); C(cudaMemcpyAsync(h, d, 4, cudaMemcpyDeviceToHost, s)); C(cudaStreamSynchronize(s));
  C(cudaMemset(d, 2, 4)); *h = 0;
  write(out, "r", 1);
  cudaIpcEventHandle_t k; if (read(in, &k, sizeof k) != sizeof k) return 1;
  C(cudaSetDevice(0)); C(cudaIpcOpenEventHandle(&e, k)); C(cudaSetDevice(own));
  write(out, "o", 1); read(in, &b, 1); // recorded by now
  t = now(); int q = cudaEventQuery(e); printf("  child query %d %.3f ms\n", q, (now() - t) * 1e3); fflush(stdout);
  t = now(); C(cudaStreamWaitEvent(s, e, 0)); printf("  child cudaStreamWaitEvent: %.3f ms\n", (now() - t) * 1e3); fflush(stdout);
  t = now(); C(cudaMemcpyAsync(h, d, 4, cudaMemcpyDeviceToHost, s)); printf("  child copy queued: %.3f ms, token %#x\n", (now() - t) * 1e3, *h); fflush(stdout);
  write(out, "q", 1);
  t = now(); while (cudaStreamQuery(s) == cudaErrorNotReady && now() - t < 6) usleep(500);
  printf("  child token %#x after %.1f ms, stream %d\n", *h, (now() - t) * 1e3, cudaStreamQuery(s)); fflush(stdout);
  _exit(0);
}
int main(int n, char **v) {
  if (n > 3) return child(atoi(v[1]), atoi(v[3]), atoi(v[4]));
  int a[2], b[2]; char c; pipe(a); pipe(b); pid_t p = fork();
  if (!p) { char x[9], y[9]; sprintf(x, "%d", a[0]); sprintf(y, "%d", b[1]); close(a[1]); close(b[0]); execl("/proc/self/exe", v[0], v[1], v[2], x, y, (char *)0); _exit(1); }
  cudaStream_t s; cudaEvent_t e; int *open; cudaIpcEventHandle_t k;
  C(cudaSetDevice(0)); C(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); C(cudaHostAlloc(&open, 64, cudaHostAllocMapped)); *open = 1;
  gate<<<1, 1, 0, s>>>(open, 1000); C(cudaStreamSynchronize(s)); *open = 0;
  C(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventInterprocess)); C(cudaIpcGetEventHandle(&k, e));
  close(a[0]); close(b[1]); alarm(20); read(b[0], &c, 1); write(a[1], &k, sizeof k); read(b[0], &c, 1);
  bool gated = strcmp(v[2], "plain");
  printf("own %s %s\n", v[1], v[2]); fflush(stdout);
  if (gated) gate<<<1, 1, 0, s>>>(open, 5000000000ll);
  C(cudaEventRecord(e, s)); if (!gated) C(cudaStreamSynchronize(s));
  double t = now(); write(a[1], "x", 1);
  usleep(1000000); *open = 1; printf("  parent opens at %.0f ms\n", (now() - t) * 1e3); fflush(stdout);
  C(cudaStreamSynchronize(s)); int st = 0; waitpid(p, &st, 0); printf("  child ended %.0f ms, status %d\n", (now() - t) * 1e3, st);
  return 0;
}
