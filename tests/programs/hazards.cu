// A race in shared memory, and memory that nobody wrote.
#include <cstdio>

__global__ void racing(int *out) {
    __shared__ int part[64];
    part[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = part[63 - threadIdx.x];
}

__global__ void fine(int *out) { out[threadIdx.x] = 1; }

int main(int, char **) {
    int *out, host[64];
    cudaMalloc(&out, sizeof host);
    fine<<<1, 64>>>(out);
    for (int i = 0; i < 2; i++) racing<<<1, 64>>>(out);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    printf("the program's own words: %d\n", host[0]);
    return 0;
}
