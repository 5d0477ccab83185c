// CUDA C++ as newer programs write it: scoped atomics with memory orders, and the parts of
// the standard library that run on a device.
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/optional>
#include <cuda/std/tuple>

#include "common.cuh"

using cuda::memory_order_acquire;
using cuda::memory_order_relaxed;
using cuda::memory_order_release;

KERNEL atomic_refs(const int *x, int *sum, unsigned *most, long long *bits, float *whole) {
    int value = x[global_id()];
    cuda::atomic_ref<int, cuda::thread_scope_device>(*sum).fetch_add(value, memory_order_relaxed);
    cuda::atomic_ref<unsigned, cuda::thread_scope_system>(*most).fetch_max(value & 0xffff);
    cuda::atomic_ref<long long, cuda::thread_scope_device>(*bits).fetch_xor(1ll << (value & 63));
    cuda::atomic_ref<float, cuda::thread_scope_device>(*whole).fetch_add(value & 7, memory_order_relaxed);
}

// A ticket lock in shared memory, one thread of each warp.
KERNEL ticket_lock(const int *x, int *log, int *turns) {
    __shared__ cuda::atomic<unsigned, cuda::thread_scope_block> next, serving;
    __shared__ int sum, count;
    if (threadIdx.x == 0) new (&next) decltype(next)(0), new (&serving) decltype(serving)(0), sum = count = 0;
    __syncthreads();
    if (lane_id() == 0) {
        unsigned mine = next.fetch_add(1, memory_order_relaxed);
        while (serving.load(memory_order_acquire) != mine) __nanosleep(10);
        sum += x[global_id()];
        count += 1;
        serving.store(mine + 1, memory_order_release);
    }
    __syncthreads();
    if (threadIdx.x == 0) log[blockIdx.x] = sum, turns[blockIdx.x] = count;
}

// A queue in a ring: the first warp writes, the second reads, flags between them.
KERNEL ring(const int *x, int *y, int rounds) {
    __shared__ int words[4][32];
    __shared__ unsigned full[4], empty[4];
    if (threadIdx.x < 4) full[threadIdx.x] = 0, empty[threadIdx.x] = 0;
    __syncthreads();
    using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_block>;
    int lane = lane_id(), sum = 0;
    for (int i = 0; i < rounds; i++) {
        int slot = i % 4;
        if (warp_id() == 0) {
            while (Flag(empty[slot]).load(memory_order_acquire) < static_cast<unsigned>(i / 4)) {
            }
            words[slot][lane] = x[i * 32 + lane] + i;
            __syncwarp();
            if (lane == 0) Flag(full[slot]).fetch_add(1, memory_order_release);
        } else {
            while (Flag(full[slot]).load(memory_order_acquire) <= static_cast<unsigned>(i / 4)) {
            }
            sum = sum * 3 + words[slot][31 - lane];
            __syncwarp();
            if (lane == 0) Flag(empty[slot]).fetch_add(1, memory_order_release);
        }
    }
    if (warp_id() == 1) y[lane] = sum;
}

// Complex numbers: products, quotients, square roots and exponentials.
KERNEL complex_numbers(const float2 *x, const float2 *y, float2 *out) {
    int i = global_id();
    cuda::std::complex<float> a(x[i].x, x[i].y), b(y[i].x, y[i].y);
    cuda::std::complex<float> results[5] = {a * b, a / b, cuda::std::sqrt(a), cuda::std::exp(b * 0.25f), a};
    results[4] = {cuda::std::abs(a), cuda::std::arg(b)};
    for (int k = 0; k < 5; k++) out[i * 5 + k] = make_float2(results[k].real(), results[k].imag());
}

__device__ cuda::std::optional<int> root_of(int n) {
    int root = static_cast<int>(sqrtf(static_cast<float>(n)));
    if (n < 0 || root * root != n) return cuda::std::nullopt;
    return root;
}

KERNEL standard_library(const int *x, int *out) {
    int value = x[global_id()];
    cuda::std::array<unsigned, 5> parts{};
    for (unsigned i = 0; i < parts.size(); i++) parts[i] = cuda::std::rotl(static_cast<unsigned>(value), int(i) * 7);
    auto [low, high] = cuda::std::make_tuple(cuda::std::countl_zero(parts[1]), cuda::std::popcount(parts[3]));
    unsigned mixed = parts[value & 3] ^ static_cast<unsigned>(root_of(value & 127).value_or(-1));
    out[global_id() * 2] = low * 100 + high;
    out[global_id() * 2 + 1] = static_cast<int>(mixed + cuda::std::bit_ceil(parts[4] >> 9));
}
