// Initial values, calls through pointers, printf, a jump table, dynamic shared memory.
#include <cstdio>
#include <cuda_fp16.h>
__constant__ float weights[4] = {1.f, 2.f, 3.5f, -1e-9f};
__device__ int grid[3][2] = {{1, 2}, {3, 4}, {5, 6}};
__device__ int* middle = &grid[1][1];
__device__ __managed__ int counter = 3;
struct Packed { char tag[3]; double scale; };
__device__ __noinline__ float scaled(float x, Packed s) { return x * s.scale + s.tag[1]; }
typedef float (*Function)(float, Packed);
__device__ Function table[2] = {scaled, 0};
extern __shared__ float dynamic[];
extern "C" __global__ void __launch_bounds__(256, 2)
mixed(float* out, const float* __restrict__ in, Packed s, int n) {
  __shared__ float tile[32];
  int t = threadIdx.x + blockIdx.x * blockDim.x;
  tile[threadIdx.x & 31] = in[t];
  dynamic[threadIdx.x] = t;
  __syncthreads();
  switch (n) {
    case 0: out[t] = 1; break;
    case 1: out[t] = tile[3] / 3; break;
    case 2: out[t] = weights[t & 3]; break;
    case 3: out[t] = *middle + counter; break;
    case 4: out[t] = scaled(out[t], s); break;
    case 5: out[t] = dynamic[3]; break;
    case 6: out[t] = table[t & 1](out[t], s); break;
  }
  if (t == 0) printf("%d %f\n", n, out[t]);
  half2 h = __floats2half2_rn(out[t], out[t + 1]);
  h = __hfma2(h, h, h);
  out[t] += __low2float(h);
  atomicAdd(out, 3.0f);
}
