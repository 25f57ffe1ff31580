/* Stores one word to every place of a block of pinned host memory: what a kernel tells the host without a copy.
 *
 * Compiled as gate.c is. No fence: the completion of the event behind the kernel is what must make it visible.
 * out: the block, as the device addresses it. count: its words. One block of any number of threads.
 */
extern "C" __global__ void store(unsigned int* out, unsigned int value, unsigned int count) {
  for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) out[i] = value;
}
