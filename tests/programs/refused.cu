// Launches that CUDA refuses: the program asks for the error, or it does not.
#include <cstdio>
#include <cstring>

__global__ void one(float *y) { y[threadIdx.x] = 1; }

int main(int, char **words)
{
    float *y;
    cudaMalloc(&y, 4096 * sizeof(float));
    one<<<1, 2048>>>(y);
    if (!strcmp(words[1], "asks")) printf("%d\n", (int)cudaGetLastError());
    cudaFree(y);
}
