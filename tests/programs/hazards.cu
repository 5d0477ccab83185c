// A race in shared memory, and memory that nobody wrote.
#include <cstdio>

__global__ void racing(int *out) {
    __shared__ int part[64];
    part[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = part[63 - threadIdx.x];
}

__global__ void unwritten(const int *in, int *out) { atomicAdd(out, in[threadIdx.x]); }

__global__ void fine(int *out) { out[threadIdx.x] = 1; }

int main(int, char **) {
    int *in, *out, host[64];
    cudaMalloc(&in, sizeof host);
    cudaMemset(in, 0, sizeof host / 2);
    cudaMalloc(&out, sizeof host);
    fine<<<1, 64>>>(out);
    for (int i = 0; i < 2; i++) racing<<<1, 64>>>(out);
    unwritten<<<1, 64>>>(in, out);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    printf("the program's own words: %d\n", host[0]);
    return 0;
}
