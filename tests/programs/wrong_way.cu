// Copies back from the device, and names the other direction.  It does not look at the
// error.
#include <cstdio>

__global__ void fill(int *p) { p[threadIdx.x] = threadIdx.x + 1; }

int main() {
    int host[32] = {}, *made;
    cudaMalloc(&made, sizeof host);
    fill<<<1, 32>>>(made);
    cudaMemcpy(host, made, sizeof host, cudaMemcpyHostToDevice); // the wrong one
    printf("%d\n", host[31]);
    cudaFree(made);
}
