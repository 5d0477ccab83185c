// Launches whose memory is reached in every way: recorded, and replayed elsewhere.
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#define DO(call) do { cudaError_t e = (call); if (e) { printf("wrong %s: %s\n", #call, cudaGetErrorName(e)); exit(1); } } while (0)
constexpr int N = 64;

struct Node { Node *next; int value; int pad; };
struct Sums { const int *const *rows; int *out; int count; };

#ifdef ELSEWHERE  // relocatable code: both are in elsewhere.cu
extern __device__ int added[2];
__device__ int shown(int value);
#else
__device__ int added[2] = {0, 0};
static __device__ int shown(int value) { return value; }
#endif

__device__ int counter = 5;
__constant__ int factor[4] = {1, 2, 3, 4};
__device__ int *hidden;

// An array of pointers in a struct by value.
__global__ void rows(Sums s) {
    int sum = 0;
    for (int row = 0; row < s.count; row++) sum += s.rows[row][threadIdx.x];
    s.out[threadIdx.x] = shown(sum) + added[threadIdx.x % 2];
}

// A linked list; the last node gets a pointer back to the first.
__global__ void chain(Node *first, int *out) {
    int sum = 0;
    Node *last = first;
    for (Node *each = first; each; each = each->next) sum += each->value, last = each;
    out[threadIdx.x] = sum;
    __syncwarp();
    if (threadIdx.x == 0) last->next = first;
}

// Variables of the module, and memory that only a variable points to.
__global__ void variables(int *out) {
    out[threadIdx.x] = hidden[threadIdx.x] * factor[threadIdx.x % 4];
    if (threadIdx.x == 0) counter += 7;
}

// A pointer just behind the end of an allocation.
__global__ void until(const int *first, const int *end, int *out) {
    int sum = 0;
    for (const int *each = first + threadIdx.x; each < end; each += blockDim.x) sum += *each;
    out[threadIdx.x] = sum;
}

// Memory that the host has, and managed memory.
__global__ void hosts(const int *pinned, int *managed) { managed[threadIdx.x] = 3 * pinned[threadIdx.x]; }

// Other blocks' shared memory.
__global__ void __cluster_dims__(2, 1, 1) neighbours(int *out) {
    namespace cg = cooperative_groups;
    __shared__ int mine[N];
    auto cluster = cg::this_cluster();
    mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
    cluster.sync();
    int *theirs = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
    out[blockIdx.x * N + threadIdx.x] = theirs[threadIdx.x];
    cluster.sync();
}

// All blocks wait for one another.
__global__ void together(int *out) {
    auto grid = cooperative_groups::this_grid();
    out[grid.thread_rank()] = (int)grid.thread_rank();
    grid.sync();
    int other = out[(grid.thread_rank() + N) % grid.num_threads()];
    grid.sync();
    out[grid.thread_rank()] = other;
}

// A tensor map as a parameter.
__global__ void tile(const __grid_constant__ CUtensorMap map, int *out) {
    __shared__ alignas(128) int box[N];
    __shared__ alignas(8) uint64_t barrier;
    auto at = [](void *p) { return (uint32_t)__cvta_generic_to_shared(p); };
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at(&barrier)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at(&barrier)), "r"(N * 4) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at(box)),
            "l"(&map), "r"(8), "r"(2), "r"(at(&barrier))
            : "memory");
    }
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(&barrier)) : "memory");
    out[threadIdx.x] = box[threadIdx.x];
}

// A mistake: one thread writes far past the end.
__global__ void wild(int *out) { out[threadIdx.x == 7 ? 1LL << 33 : threadIdx.x] = 1; }

static int *numbers(size_t count, int start) {
    int *made, *host = (int *)malloc(count * 4);
    for (size_t i = 0; i < count; i++) host[i] = start + (int)i;
    DO(cudaMalloc(&made, count * 4));
    DO(cudaMemcpy(made, host, count * 4, cudaMemcpyHostToDevice));
    free(host);
    return made;
}

static unsigned sum = 0;

static void show(const char *name, const int *device, int count = N) {
    int host[4 * N];
    DO(cudaMemcpy(host, device, count * 4, cudaMemcpyDeviceToHost));
    sum = 0;
    for (int i = 0; i < count; i++) sum = sum * 31 + host[i];
    printf("%s %u\n", name, sum);
}

static CUtensorMap map_of(int *matrix) {
    using Encode = decltype(&cuTensorMapEncodeTiled);
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    DO(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status));
    CUtensorMap map;
    cuuint64_t sizes[] = {32, 16}, strides[] = {128};
    cuuint32_t box[] = {8, 8}, steps[] = {1, 1};
    if (((Encode)found)(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, matrix, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        printf("wrong cuTensorMapEncodeTiled\n"), exit(1);
    return map;
}

int main(int count, char **given) {
    int *out = numbers(4 * N, -1);
    const int *three[] = {numbers(N, 0), numbers(N, 1000), numbers(N, 50)};
    const int **table;
    DO(cudaMalloc(&table, sizeof three));
    DO(cudaMemcpy(table, three, sizeof three, cudaMemcpyHostToDevice));
    rows<<<1, N>>>({table, out, 3});
    show("rows", out);

    Node *nodes[5];
    for (auto &each : nodes) DO(cudaMalloc(&each, sizeof(Node)));
    for (int i = 0; i < 5; i++) {
        Node host{i < 4 ? nodes[i + 1] : nullptr, 10 * i + 1, 0};
        DO(cudaMemcpy(nodes[i], &host, sizeof host, cudaMemcpyHostToDevice));
    }
    chain<<<1, 32>>>(nodes[0], out);
    show("chain", out);

    int *kept = numbers(N, 7);
    DO(cudaMemcpyToSymbol(hidden, &kept, sizeof kept));
    variables<<<1, N>>>(out);
    show("variables", out);
    int now;
    DO(cudaMemcpyFromSymbol(&now, counter, 4));
    printf("counter %d\n", now);

    until<<<1, 32>>>(three[1], three[1] + N, out);
    show("until", out);

    int *pinned, *managed;
    DO(cudaMallocHost(&pinned, N * 4));
    DO(cudaMallocManaged(&managed, N * 4));
    for (int i = 0; i < N; i++) pinned[i] = i, managed[i] = 0;
    hosts<<<1, N>>>(pinned, managed);
    DO(cudaDeviceSynchronize());
    show("hosts", managed);

    neighbours<<<2, N>>>(out);
    show("neighbours", out, 2 * N);
    void *arguments[] = {&out};
    DO(cudaLaunchCooperativeKernel((void *)together, dim3(4), dim3(N), arguments, 0, nullptr));
    show("together", out, 4 * N);

    tile<<<1, N>>>(map_of(numbers(32 * 16, 0)), out);
    show("tile", out);

    if (count > 1 && !strcmp(given[1], "wild")) {
        wild<<<1, 32>>>(out);
        printf("wild %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        return 1;
    }
    return 0;
}
