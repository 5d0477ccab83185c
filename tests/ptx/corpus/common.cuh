// What several kernels of the corpus share: lane numbers, shared addresses, and the
// PTX instructions that CUDA C++ has no name for.
#pragma once
#include <cstdint>

#define KERNEL extern "C" __global__ void

__device__ inline unsigned lane_id() { return threadIdx.x & 31; }
__device__ inline unsigned warp_id() { return threadIdx.x >> 5; }
__device__ inline unsigned global_id() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ inline uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void copy_async16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared_address(to)),
                 "l"(from)
                 : "memory");
}

// The bytes past `valid` are filled with zeros.
__device__ inline void copy_async16_guarded(void *to, const void *from, int valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
                 "l"(from), "r"(valid)
                 : "memory");
}

__device__ inline void commit_group() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

template <int Pending> __device__ inline void wait_group() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
}

__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void ldmatrix_x2(uint32_t (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}
