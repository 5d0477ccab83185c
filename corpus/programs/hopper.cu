// GEMMs of CUTLASS for Hopper, one for each number KIND, and what their host code gives
// the kernel: the program prints the bytes of the parameter and each tensor map.

#include <cstdio>
#include <cstring>
#include <cuda.h>
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;
namespace gemm = cutlass::gemm;
namespace epilogue = cutlass::epilogue;

#if KIND == 0  // one tile for each block, a warpgroup that copies
using Element = cutlass::half_t;
using TileShape = Shape<_64, _128, _64>;
using ClusterShape = Shape<_1, _1, _1>;
using Mainloop = gemm::KernelTmaWarpSpecialized;
using Epilogue = epilogue::TmaWarpSpecialized;
#elif KIND == 1  // persistent, two warpgroups take turns
using Element = cutlass::bfloat16_t;
using TileShape = Shape<_64, _64, _64>;
using ClusterShape = Shape<_2, _1, _1>;
using Mainloop = gemm::KernelTmaWarpSpecializedPingpong;
using Epilogue = epilogue::TmaWarpSpecialized;
#elif KIND == 3  // with a number for each row, and no negative results
using Element = cutlass::half_t;
using TileShape = Shape<_128, _64, _64>;
using ClusterShape = Shape<_1, _1, _1>;
using Mainloop = gemm::KernelTmaWarpSpecializedCooperative;
using Epilogue = epilogue::TmaWarpSpecializedCooperative;
#else  // persistent, two warpgroups share a tile
using Element = cutlass::float_e4m3_t;
using TileShape = Shape<_128, _64, _128>;
using ClusterShape = Shape<_1, _2, _1>;
using Mainloop = gemm::KernelTmaWarpSpecializedCooperative;
using Epilogue = epilogue::TmaWarpSpecializedCooperative;
#endif
using Output = cutlass::half_t;
#if KIND == 3
using Fusion = epilogue::fusion::LinCombPerRowBiasEltAct<
    cutlass::epilogue::thread::ReLu, Output, float, float>;
#else
using Fusion = epilogue::fusion::LinearCombination<Output, float>;
#endif
constexpr int ALIGNMENT = 128 / cutlass::sizeof_bits<Element>::value;

using CollectiveEpilogue = typename epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    epilogue::collective::EpilogueTileAuto, float, float,
    Output, cutlass::layout::RowMajor, 8, Output, cutlass::layout::RowMajor, 8,
    Epilogue, Fusion>::CollectiveOp;
using CollectiveMainloop = typename gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,
    Element, cutlass::layout::RowMajor, ALIGNMENT,
    Element, cutlass::layout::ColumnMajor, ALIGNMENT, float, TileShape, ClusterShape,
    gemm::collective::StageCountAutoCarveout<
        static_cast<int>(sizeof(typename CollectiveEpilogue::SharedStorage))>,
    Mainloop>::CollectiveOp;
using Kernel = gemm::kernel::GemmUniversal<
    Shape<int, int, int, int>, CollectiveMainloop, CollectiveEpilogue>;

extern "C" __global__ void
__launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)
cutlass_gemm(CUTLASS_GRID_CONSTANT typename Kernel::Params const params) {
  extern __shared__ char shared[];
  Kernel kernel;
  kernel(params, shared);
}

static void hex(void const* data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    printf("%02x", static_cast<unsigned char const*>(data)[i]);
}

// Stands for the driver: a map is its number, and what it was made of is printed.
extern "C" CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    cuuint64_t const* sizes, cuuint64_t const* strides, cuuint32_t const* box,
    cuuint32_t const* steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill) {
  static unsigned char number = 0;
  memset(map, 0xc0 + number++, sizeof *map);
  printf("map %llx %d %d %d %d", (unsigned long long)address, type, (int)swizzle,
         (int)interleave, (int)fill);
  for (unsigned i = 0; i < rank; ++i)
    printf(" %llu %llu %u %u", (unsigned long long)sizes[i],
           i ? (unsigned long long)strides[i - 1] : 0ULL, box[i], steps[i]);
  printf("\n");
  return CUDA_SUCCESS;
}

template <class Stride>
Stride packed(int rows, int columns) {
  return cutlass::make_cute_packed_stride(Stride{}, make_shape(rows, columns, 1));
}

int main(int count, char** given) {
  int m = atoi(given[1]), n = atoi(given[2]), k = atoi(given[3]);
  auto a = reinterpret_cast<Element const*>(0x7100000000);
  auto b = reinterpret_cast<Element const*>(0x7200000000);
  auto c = reinterpret_cast<Output const*>(0x7300000000);
  auto d = reinterpret_cast<Output*>(0x7400000000);
  cutlass::KernelHardwareInfo hardware{0, 4, 2};
  typename Kernel::Arguments arguments{
      gemm::GemmUniversalMode::kGemm, {m, n, k, 1},
      {a, packed<typename Kernel::StrideA>(m, k), b, packed<typename Kernel::StrideB>(n, k)},
      {{1.5f, -0.5f}, c, packed<typename Kernel::StrideC>(m, n),
       d, packed<typename Kernel::StrideD>(m, n)},
      hardware};
#if KIND == 3
  arguments.epilogue.thread.bias_ptr = reinterpret_cast<float const*>(0x7500000000);
#endif
  if (Kernel::can_implement(arguments) == false) return 2;
  auto params = Kernel::to_underlying_arguments(arguments, nullptr);
  dim3 grid = Kernel::get_grid_shape(params), block = Kernel::get_block_shape();
  printf("grid %u %u %u\nblock %u\ncluster %d %d %d\nshared %d\nparams ", grid.x, grid.y,
         grid.z, block.x, (int)size<0>(ClusterShape{}), (int)size<1>(ClusterShape{}), 1,
         (int)Kernel::SharedStorageSize);
  hex(&params, sizeof params);
  printf("\n");
  return 0;
}
