// Stands for PyTorch's header: the state of the random numbers, in the same layout.
// No kernel of the corpus asks for random numbers.
#pragma once
#include <cstdint>

namespace at {
struct PhiloxCudaState {
  union Payload {
    uint64_t value;
    int64_t* pointer;
  };
  Payload seed_{}, offset_{};
  uint32_t offset_intragraph_ = 0;
  bool captured_ = false;
};
}  // namespace at
