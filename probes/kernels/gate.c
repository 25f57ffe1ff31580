/* The gate kernel: one thread that holds its stream until the host opens it, or until its limit ends it.
 *
 * Data, not a program of ours: a vendor's run-time compiler (NVRTC, hipRTC, MTRTC) compiles it, with one
 * line put in front: #define NOW(t), the statement that reads the device's timer into t. That line is the
 * field `timer` of the vendor's record in conformance/backends/vendors.py. No header is included.
 *
 * w: a block of 64 words in pinned host memory, laid out as conformance/backends/gates/words.py says.
 * ticket: the number of this use. Words only grow, so a word of an earlier use can neither open nor end it.
 * limit: ticks of the timer. max_polls: looks at OPEN, which end the gate should the timer stand still.
 * The host alone writes w[0], in a 128-byte line of its own. `volatile` keeps the load in the loop on every
 * vendor whose C compiler we have looked at (it is Triton that drops it on AMD).
 */
extern "C" __global__ void gate(volatile unsigned int* w, unsigned int ticket, unsigned long long limit,
                                unsigned long long max_polls) {
  unsigned long long start, now, n = 0;
  NOW(start); now = start;
  w[32] = ticket; __threadfence_system();                                        /* ENTERED: the stream has reached the gate */
  for (; (int)(w[0] - ticket) < 0; ++n) {                                        /* OPEN */
    NOW(now);
    if (now - start >= limit || n >= max_polls) { w[34] = ticket; break; }       /* EXPIRED */
  }
  *(volatile unsigned long long*)(w + 36) = n;                                   /* POLLS */
  *(volatile unsigned long long*)(w + 38) = now - start;                         /* TICKS */
  __threadfence_system(); w[33] = ticket;                                        /* ENDED: after all the others */
}
