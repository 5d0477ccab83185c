// GEMMs of CUTLASS for Ampere, one for each number KIND, and what their host code gives
// the kernel: the program prints the bytes of the parameter.

#include <cstdio>
#include <cstdlib>
#include "cutlass/cutlass.h"
#include "cutlass/gemm/device/gemm_sparse_universal.h"
#include "cutlass/gemm/device/gemm_universal.h"

using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
template <int M, int N, int K>
using Shape = cutlass::gemm::GemmShape<M, N, K>;

#if KIND == 0  // three stages of cp.async
using Element = cutlass::half_t;
using Output = float;
using Sum = float;
using Tile = Shape<64, 64, 32>;
using Warp = Shape<32, 32, 32>;
using Instruction = Shape<16, 8, 16>;
#elif KIND == 1  // products of tf32
using Element = cutlass::tfloat32_t;
using Output = float;
using Sum = float;
using Tile = Shape<64, 64, 16>;
using Warp = Shape<32, 32, 16>;
using Instruction = Shape<16, 8, 8>;
#elif KIND == 2  // whole numbers
using Element = int8_t;
using Output = int32_t;
using Sum = int32_t;
using Tile = Shape<64, 64, 64>;
using Warp = Shape<32, 32, 64>;
using Instruction = Shape<16, 8, 32>;
#elif KIND == 3  // double precision
using Element = double;
using Output = double;
using Sum = double;
using Tile = Shape<64, 64, 16>;
using Warp = Shape<32, 32, 16>;
using Instruction = Shape<8, 8, 4>;
#else  // two of four numbers of A
using Element = cutlass::half_t;
using Output = float;
using Sum = float;
using Tile = Shape<64, 64, 64>;
using Warp = Shape<32, 32, 64>;
using Instruction = Shape<16, 8, 32>;
#endif

// The iterators of double precision take one number at a time.
constexpr int ALIGNMENT = KIND == 3 ? 1 : 128 / cutlass::sizeof_bits<Element>::value;
using Epilogue = cutlass::epilogue::thread::LinearCombination<
    Output, 128 / cutlass::sizeof_bits<Output>::value, Sum, Sum>;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>;
#if KIND == 2
using Operation = cutlass::arch::OpMultiplyAddSaturate;
#else
using Operation = cutlass::arch::OpMultiplyAdd;
#endif
#if KIND == 4
using Gemm = cutlass::gemm::device::GemmSparseUniversal<
#else
using Gemm = cutlass::gemm::device::GemmUniversal<
#endif
    Element, Row, Element, Column, Output, Row, Sum, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, Tile, Warp, Instruction, Epilogue, Swizzle, 3, ALIGNMENT,
    ALIGNMENT, Operation>;
using Kernel = typename Gemm::GemmKernel;

extern "C" __global__ void __launch_bounds__(Kernel::kThreadCount)
cutlass_gemm(__grid_constant__ typename Kernel::Params const params) {
  extern __shared__ char shared[];
  Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared));
}

static void hex(void const* data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    printf("%02x", static_cast<unsigned char const*>(data)[i]);
}

int main(int count, char** given) {
  int m = atoi(given[1]), n = atoi(given[2]), k = atoi(given[3]);
  auto a = reinterpret_cast<Element const*>(0x7100000000);
  auto b = reinterpret_cast<Element const*>(0x7200000000);
  auto c = reinterpret_cast<Output const*>(0x7300000000);
  auto d = reinterpret_cast<Output*>(0x7400000000);
  typename Epilogue::Params scale(Sum(3), Sum(-2));
#if KIND == 4
  auto e = reinterpret_cast<typename Kernel::ElementE const*>(0x7500000000);
  typename Kernel::Arguments arguments(
      cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k}, 1, scale, a, b, c, d, e,
      0, 0, 0, 0, 0, k / 2, k, n, n,
      Kernel::LayoutE::packed({m, k / 2 / Kernel::kElementsPerElementE}).stride(0));
#else
  typename Kernel::Arguments arguments(
      cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k}, 1, scale, a, b, c, d, 0, 0, 0,
      0, k, k, n, n);
#endif
  if (Kernel::can_implement(arguments) != cutlass::Status::kSuccess) return 2;
  typename Kernel::Params params(arguments, 4, 1);
  dim3 grid = params.get_grid_dims();
  printf("grid %u %u %u\nblock %d\ncluster 1 1 1\nshared %d\nparams ", grid.x, grid.y,
         grid.z, Kernel::kThreadCount, (int)sizeof(typename Kernel::SharedStorage));
  hex(&params, sizeof params);
  printf("\n");
  return 0;
}
