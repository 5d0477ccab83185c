// Copies more than there is, with an argument: elements are counted as bytes, or bytes as
// elements.  It does not look at the errors.
#include <cstdio>

__global__ void fill(int *p) { p[threadIdx.x] = threadIdx.x + 1; }

int main(int count, char **) {
    int host[64] = {}, *made, more = count > 1 ? 40 : 32;
    cudaMalloc(&made, sizeof(int) * 32);
    fill<<<1, 32>>>(made);
    cudaMemcpy(host, made, sizeof(int) * more, cudaMemcpyDeviceToHost);
    cudaMemcpy(made + 32 - 8, host, sizeof(int) * (more - 24), cudaMemcpyHostToDevice);
    printf("%d\n", host[31]);
    cudaFree(made);
}
