// Stands for PyTorch's header: the seed and the offset of the random numbers.
#pragma once
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <cstdint>
#include <tuple>

namespace at::cuda::philox {
__host__ __device__ inline std::tuple<uint64_t, uint64_t> unpack(PhiloxCudaState state) {
  return {state.seed_.value, state.offset_.value};
}
}  // namespace at::cuda::philox
