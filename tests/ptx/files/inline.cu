// Inline PTX that declares the same registers and labels each time.
__device__ __forceinline__ unsigned wait(unsigned address, unsigned phase) {
  unsigned tries;
  asm volatile(
      "{\n.reg .pred done;\n.reg .b32 count;\nmov.u32 count, 0;\n"
      "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "@done bra DONE;\nadd.u32 count, count, 1;\nbra AGAIN;\nDONE:\nmov.u32 %0, count;\n}"
      : "=r"(tries) : "r"(address), "r"(phase) : "memory");
  return tries;
}
extern "C" __global__ void waits(unsigned* out) {
  __shared__ unsigned long long barrier;
  unsigned address = __cvta_generic_to_shared(&barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address));
  __syncthreads();
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address));
  out[threadIdx.x] = wait(address, 0) + wait(address, 1) + wait(address, 0);
}
