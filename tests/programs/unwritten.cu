// Copies to the host, of memory that was written in all ways, in part, or not at all.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

struct Pair { int key; long long value; };  // four bytes between them
__global__ void pair(Pair *to) { to[threadIdx.x].key = 1; to[threadIdx.x].value = 2; }
__global__ void fill(unsigned *to, unsigned count) {
    if (threadIdx.x < count) to[threadIdx.x] = threadIdx.x;
}

int main(int count, char **words) {
    unsigned host[64] = {}, *device, *other;
    size_t pitch;
    bool wrong = count > 1 && !strcmp(words[1], "wrong");
    cudaMalloc(&device, sizeof host);
    fill<<<1, 64>>>(device, wrong ? 60 : 64);                       // bytes 240 to 255
    cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
    cudaMalloc(&other, sizeof host);
    if (!wrong) cudaMemset(other, 0, sizeof host);                  // all of it
    cudaMemcpyAsync(host, other, sizeof host, cudaMemcpyDeviceToHost, 0);
    cudaMemcpy(other, device, sizeof host, cudaMemcpyDeviceToDevice);
    cudaMemcpy(host, other, 240, cudaMemcpyDeviceToHost);           // what was written
    cudaMallocPitch(&device, &pitch, 16, 4);
    cudaMemcpy2D(device, pitch, host, 16, 16, wrong ? 3 : 4, cudaMemcpyHostToDevice);
    cudaMemcpy2D(host, 16, device, pitch, 16, 4, cudaMemcpyDeviceToHost);  // without the padding
    cudaMallocManaged(&other, 64);
    cudaMemcpy(host, other, 64, cudaMemcpyDefault);
    cudaMallocAsync(&other, 64, 0);
    cudaMemcpy(other, host, wrong ? 32 : 64, cudaMemcpyHostToDevice);
    cudaMemcpy((char *)host + 1, (char *)other + 1, 62, cudaMemcpyDeviceToHost);
    if (wrong)
        for (int round = 0; round < 3; round++) {                   // told once, as a note
            cudaMalloc(&other, 2 * sizeof(Pair));
            pair<<<1, 2>>>((Pair *)other);
            cudaMemcpy(host, other, 2 * sizeof(Pair), cudaMemcpyDeviceToHost);
        }
    printf("right %d\n", cudaDeviceSynchronize());
}
