// CUB's algorithms for a device and for a block, held against loops of the host.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <vector>

#define DO(call) do { cudaError_t e = (call); if (e) { printf("wrong %s: %s\n", #call, cudaGetErrorName(e)); exit(1); } } while (0)
#define HOLDS(what) do { if (!(what)) { printf("wrong %s, line %d\n", #what, __LINE__); exit(1); } } while (0)
constexpr int N = 50'003, THREADS = 128;

// An algorithm says how much memory it wants, gets it, and works.
template <class Algorithm>
void with_memory(Algorithm algorithm) {
    void *memory = nullptr;
    size_t bytes = 0;
    DO(algorithm(memory, bytes));
    DO(cudaMalloc(&memory, bytes));
    DO(algorithm(memory, bytes));
    DO(cudaDeviceSynchronize());
    DO(cudaFree(memory));
}

__global__ void sums_of_blocks(const int *in, int *out) {
    using Reduce = cub::BlockReduce<int, THREADS>;
    __shared__ typename Reduce::TempStorage storage;
    int sum = Reduce(storage).Sum(in[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

int main() {
    std::vector<int> numbers(N), got(N), expected(N);
    for (int i = 0; i < N; i++) numbers[i] = (int)(i * 2654435761u) >> 8;
    int *in, *out;
    DO(cudaMalloc(&in, N * sizeof(int)));
    DO(cudaMalloc(&out, N * sizeof(int)));
    DO(cudaMemcpy(in, numbers.data(), N * sizeof(int), cudaMemcpyHostToDevice));
    auto fetch = [&](int count) { DO(cudaMemcpy(got.data(), out, count * sizeof(int), cudaMemcpyDeviceToHost)); };

    with_memory([&](void *m, size_t &n) { return cub::DeviceReduce::Sum(m, n, in, out, N); });
    fetch(1);
    unsigned sum = 0;
    for (int each : numbers) sum += each;
    HOLDS((unsigned)got[0] == sum);
    puts("right DeviceReduce");

    with_memory([&](void *m, size_t &n) { return cub::DeviceScan::ExclusiveSum(m, n, in, out, N); });
    fetch(N);
    sum = 0;
    for (int i = 0; i < N; i++) {
        HOLDS((unsigned)got[i] == sum);
        sum += numbers[i];
    }
    puts("right DeviceScan");

    with_memory([&](void *m, size_t &n) { return cub::DeviceRadixSort::SortKeys(m, n, in, out, N); });
    fetch(N);
    expected = numbers;
    std::sort(expected.begin(), expected.end());
    HOLDS(got == expected);
    puts("right DeviceRadixSort");

    sums_of_blocks<<<N / THREADS, THREADS>>>(in, out);
    fetch(N / THREADS);
    for (int block = 0; block < N / THREADS; block++) {
        sum = 0;
        for (int i = 0; i < THREADS; i++) sum += numbers[block * THREADS + i];
        HOLDS((unsigned)got[block] == sum);
    }
    puts("right BlockReduce");
    return 0;
}
