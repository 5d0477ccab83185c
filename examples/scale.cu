// A kernel with a program around it, as people write it.
//
//     fragmenta launch examples/scale.cu --block 4 --arg arange:f32:4 --arg f32:0.5
#include <cstdio>
#include <vector>

template <typename T>
__global__ void scale(T *x, T factor)
{
    x[threadIdx.x] *= factor;
}

int main()
{
    std::vector<float> host(32, 1.0f);
    float *x;
    cudaMalloc(&x, 32 * sizeof(float));
    cudaMemcpy(x, host.data(), 32 * sizeof(float), cudaMemcpyHostToDevice);
    scale<float><<<1, 32>>>(x, 2.0f);
    cudaMemcpy(host.data(), x, 32 * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", host[0]);
}
