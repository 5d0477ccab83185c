// Memory that is allocated and cleared, and of which a kernel uses little: the program
// prints how many MiB of it there are.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

__global__ void use(int *p, size_t far) { p[threadIdx.x] += 1; p[far + threadIdx.x] += 2; }

static long shared_mib() {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file)) sscanf(line, "RssShmem: %ld", &kib);
    fclose(file);
    return kib >> 10;
}

int main() {
    constexpr size_t BYTES = 1ull << 30;
    int *p, near[32], far[32];
    if (cudaMalloc(&p, BYTES) || cudaMemset(p, 0, BYTES)) return 3;
    printf("%ld MiB\n", shared_mib());
    for (int round = 0; round < 2; round++) use<<<1, 32>>>(p, BYTES / 8);
    cudaMemcpy(near, p, sizeof near, cudaMemcpyDeviceToHost);
    cudaMemcpy(far, p + BYTES / 8, sizeof far, cudaMemcpyDeviceToHost);
    printf("%d %d\n", near[31], far[31]);
    // Parts of pages are cleared as well, and nothing beside them.
    cudaMemset((char *)p + 4, 0, BYTES / 2 + 4);
    cudaMemcpy(near, p, sizeof near, cudaMemcpyDeviceToHost);
    cudaMemcpy(far, p + BYTES / 8, sizeof far, cudaMemcpyDeviceToHost);
    printf("%d %d, %d %d %d\n", near[0], near[1], far[0], far[1], far[2]);
    printf("%ld MiB\n", shared_mib());
}
