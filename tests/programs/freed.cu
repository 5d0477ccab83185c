// Memory that is used after it was freed, in all ways, and memory that is not.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

struct Array {
    int *data;
    Array() { cudaMalloc(&data, 256); }
    ~Array() { cudaFree(data); }
};
__global__ void fill(int *to) { to[threadIdx.x] = 1; }

int main(int count, char **words) {
    int host[64] = {}, *wrong = nullptr;
    {
        Array a;
        fill<<<1, 64>>>(a.data);
        if (count > 1) wrong = a.data;
        if (count == 1) cudaMemcpy(host, a.data, 256, cudaMemcpyDeviceToHost);
    }
    if (count == 1) return printf("right %d\n", cudaFree(wrong)) < 0;
    printf("%d ", cudaFree(wrong));
    printf("%d ", cudaMemcpy(host, wrong + 4, 16, cudaMemcpyDeviceToHost));
    printf("%d ", cudaMemcpy(wrong, host, 16, cudaMemcpyDefault));
    printf("%d ", cudaMemset(wrong, 0, 16));
    printf("%d ", cudaFree(host));  // never was anything
    if (!strcmp(words[1], "kernel")) fill<<<1, 64>>>(wrong);
    printf("%d\n", cudaDeviceSynchronize());
}
