// A program of each shape: every function of the runtime that programs can call.
// Each part prints "right NAME" if what it computed and was told is right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

extern "C" cudaError_t cudaProfilerStart();  // their header is in another wheel
extern "C" cudaError_t cudaProfilerStop();

#define DO(call) do { cudaError_t code = (call); if (code != cudaSuccess) { \
    printf("wrong %s: %s\n", #call, cudaGetErrorName(code)); exit(3); } } while (0)
#define SAYS(call, wanted) do { cudaError_t code = (call); if (code != wanted) { \
    printf("wrong %s: %s\n", #call, cudaGetErrorName(code)); exit(3); } cudaGetLastError(); } while (0)
#define HOLDS(what) do { if (!(what)) { printf("wrong %s\n", #what); exit(3); } } while (0)

constexpr int N = 96;
__device__ int counter = 5;
__device__ int table[4] = {1, 2, 3, 4};
__constant__ int factor = 3;
__managed__ int managed = 7;
struct Pair { int *where; int add; };

__global__ void scale(int *a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] = a[i] * factor + table[i & 3]; }
__global__ void count() { atomicAdd(&counter, 1); }
__global__ void add(Pair pair) { pair.where[threadIdx.x] += pair.add; }
__global__ void through(int **pointers) { pointers[blockIdx.x][threadIdx.x] += 1; }
__global__ void more() { if (!threadIdx.x) managed += 1; }
__global__ void dynamic(int *out) { extern __shared__ int part[]; part[threadIdx.x] = threadIdx.x; __syncthreads(); out[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x]; }
__global__ void __cluster_dims__(2, 1, 1) pairs(int *out) { if (!threadIdx.x) out[blockIdx.x] = __clusterRelativeBlockRank(); }
__global__ void ranks(int *out) { if (!threadIdx.x) out[blockIdx.x] = __clusterSizeInBlocks(); }
__device__ unsigned arrived;
__global__ void together(int *out) {
    if (threadIdx.x) return;
    out[blockIdx.x] = blockIdx.x;
    __threadfence();
    atomicAdd(&arrived, 1);
    while (*(volatile unsigned *)&arrived < gridDim.x) {}
    __threadfence();
    out[blockIdx.x + gridDim.x] = out[gridDim.x - 1 - blockIdx.x];
}
__global__ void greet() { printf("hello from %d\n", threadIdx.x); }

static int host[N], other[N];
static void zero() { memset(other, 0, sizeof other); }
static int *filled() { int *a; DO(cudaMalloc(&a, sizeof host)); for (int i = 0; i < N; i++) host[i] = i; DO(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice)); zero(); return a; }
static bool scaled(int times = 1) { for (int i = 0; i < N; i++) { int v = i; for (int t = 0; t < times; t++) v = v * 3 + (i & 3) + 1; if (other[i] != v) return false; } return true; }
static void fetch(int *a) { DO(cudaMemcpy(other, a, sizeof other, cudaMemcpyDeviceToHost)); }

static void launches() {
    int *a = filled();
    scale<<<3, 32>>>(a, N);
    DO(cudaGetLastError());
    fetch(a);
    HOLDS(scaled());
    Pair pair{a, 10};
    add<<<1, 32>>>(pair);
    int **list;
    int *both[2] = {a, a + 32};
    DO(cudaMalloc(&list, sizeof both));
    DO(cudaMemcpy(list, both, sizeof both, cudaMemcpyDefault));
    through<<<2, 32>>>(list);
    fetch(a);
    HOLDS(other[1] == 5 + 10 + 1 && other[40] == 121 + 1 && other[70] == 213);
    int *out;
    DO(cudaMalloc(&out, 64 * 4));
    dynamic<<<1, 64, 64 * 4>>>(out);
    DO(cudaMemcpy(other, out, 64 * 4, cudaMemcpyDeviceToHost));
    HOLDS(other[0] == 63 && other[63] == 0);
    void *arguments[] = {&a, new int(N)};
    DO(cudaLaunchKernel((void *)scale, dim3(3), dim3(32), arguments, 0, 0));
    SAYS(cudaLaunchKernel((void *)host, dim3(1), dim3(1), arguments, 0, 0), cudaErrorInvalidDeviceFunction);
    scale<<<1, 2048>>>(a, N);
    SAYS(cudaPeekAtLastError(), cudaErrorInvalidValue);
    dynamic<<<1, 64, 100000>>>(out);
    SAYS(cudaGetLastError(), cudaErrorInvalidValue);
    DO(cudaFuncSetAttribute((void *)dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
    dynamic<<<1, 64, 100000>>>(out);
    DO(cudaDeviceSynchronize());
    DO(cudaFree(list)); DO(cudaFree(out)); DO(cudaFree(a));
}

static void clusters() {
    int *out;
    DO(cudaMalloc(&out, 16));
    pairs<<<4, 32>>>(out);
    DO(cudaMemcpy(other, out, 16, cudaMemcpyDeviceToHost));
    HOLDS(other[0] == 0 && other[1] == 1 && other[2] == 0 && other[3] == 1);
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {4, 1, 1};
    config.gridDim = 4, config.blockDim = 32, config.attrs = &attribute, config.numAttrs = 1;
    void *arguments[] = {&out};
    DO(cudaLaunchKernelExC(&config, (void *)ranks, arguments));
    DO(cudaMemcpy(other, out, 16, cudaMemcpyDeviceToHost));
    HOLDS(other[0] == 4 && other[3] == 4);
    int number;
    DO(cudaOccupancyMaxActiveClusters(&number, (void *)ranks, &config));
    HOLDS(number > 0);
    DO(cudaOccupancyMaxPotentialClusterSize(&number, (void *)ranks, &config));
    HOLDS(number == 8);
}

static void cooperative() {
    int *out;
    DO(cudaMalloc(&out, 8 * 4));
    void *arguments[] = {&out};
    DO(cudaLaunchCooperativeKernel((void *)together, dim3(4), dim3(32), arguments, 0, 0));
    DO(cudaMemcpy(other, out, 32, cudaMemcpyDeviceToHost));
    HOLDS(other[4] == 3 && other[7] == 0);
    SAYS(cudaLaunchCooperativeKernel((void *)together, dim3(1 << 20), dim3(32), arguments, 0, 0), cudaErrorCooperativeLaunchTooLarge);
}

static void memory() {
    int *a = filled(), *b, *c, *d;
    DO(cudaMallocHost(&b, sizeof host));
    DO(cudaHostAlloc(&c, sizeof host, cudaHostAllocMapped));
    DO(cudaMallocManaged(&d, sizeof host));
    memcpy(b, host, sizeof host), memcpy(c, host, sizeof host), memcpy(d, host, sizeof host);
    for (int *each : {b, c, d}) {
        scale<<<3, 32>>>(each, N);
        DO(cudaDeviceSynchronize());
        memcpy(other, each, sizeof other);
        HOLDS(scaled());
    }
    int *same;
    DO(cudaHostGetDevicePointer(&same, c, 0));
    HOLDS(same == c);
    unsigned flags;
    DO(cudaHostGetFlags(&flags, c));
    cudaPointerAttributes about;
    DO(cudaPointerGetAttributes(&about, a + 1));
    HOLDS(about.type == cudaMemoryTypeDevice && about.devicePointer == a + 1 && !about.hostPointer);
    DO(cudaPointerGetAttributes(&about, b));
    HOLDS(about.type == cudaMemoryTypeHost);
    DO(cudaPointerGetAttributes(&about, d));
    HOLDS(about.type == cudaMemoryTypeManaged);
    DO(cudaPointerGetAttributes(&about, host));
    HOLDS(about.type == cudaMemoryTypeUnregistered);
    DO(cudaHostRegister(host, sizeof host, 0));
    SAYS(cudaHostRegister(host, sizeof host, 0), cudaErrorHostMemoryAlreadyRegistered);
    DO(cudaHostUnregister(host));
    SAYS(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
    cudaMemLocation location{cudaMemLocationTypeDevice, 0};
    DO(cudaMemAdvise(d, sizeof host, cudaMemAdviseSetReadMostly, location));
    DO(cudaMemPrefetchAsync(d, sizeof host, location, 0, 0));
    DO(cudaStreamAttachMemAsync(0, d, 0, cudaMemAttachGlobal));
    size_t before, after, total;
    DO(cudaMemGetInfo(&before, &total));
    DO(cudaFree(a));
    DO(cudaMemGetInfo(&after, &total));
    HOLDS(after == before + sizeof host && after < total);
    SAYS(cudaFree((char *)d + 8), cudaErrorInvalidValue);
    DO(cudaFree(0));
    DO(cudaFreeHost(b)); DO(cudaFreeHost(c)); DO(cudaFree(d));
    SAYS(cudaMalloc(&a, (size_t)1 << 50), cudaErrorMemoryAllocation);
    cudaMemPool_t pool;
    cudaMemPoolProps wanted{};
    DO(cudaDeviceGetDefaultMemPool(&pool, 0));
    DO(cudaDeviceGetMemPool(&pool, 0));
    DO(cudaDeviceSetMemPool(0, pool));
    uint64_t threshold = 0;
    DO(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    DO(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &threshold));
    DO(cudaMallocAsync(&a, sizeof host, (cudaStream_t)0));
    DO(cudaMemcpyAsync(a, host, sizeof host, cudaMemcpyHostToDevice, 0));
    DO(cudaFreeAsync(a, 0));
    DO(cudaMemPoolCreate(&pool, &wanted));
    DO(cudaMallocFromPoolAsync(&a, sizeof host, pool, (cudaStream_t)0));
    DO(cudaFreeAsync(a, 0));
    DO(cudaMemPoolSetAccess(pool, nullptr, 0));
    DO(cudaMemPoolTrimTo(pool, 0));
    DO(cudaMemPoolDestroy(pool));
}

static void copies() {
    int *a = filled(), *b;
    DO(cudaMalloc(&b, sizeof host));
    DO(cudaMemcpy(b, a, sizeof host, cudaMemcpyDeviceToDevice));
    fetch(b);
    HOLDS(!memcmp(other, host, sizeof host));
    SAYS(cudaMemcpy(b + 1, a, sizeof host, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    SAYS(cudaMemcpy(other, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    SAYS(cudaMemcpy(other, host, 4, (cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    DO(cudaMemcpyPeer(b, 0, a, 0, 4));
    DO(cudaMemcpyPeerAsync(b, 0, a, 0, 4, 0));
    DO(cudaMemset(b, 1, sizeof host));
    DO(cudaMemsetAsync(b, 2, 4, 0));
    fetch(b);
    HOLDS(other[0] == 0x02020202 && other[1] == 0x01010101);
    char *p;
    size_t pitch;
    DO(cudaMallocPitch(&p, &pitch, 24, 4));
    HOLDS(pitch >= 24 && pitch % 512 == 0);
    DO(cudaMemset2D(p, pitch, 0, 24, 4));
    DO(cudaMemset2DAsync(p, pitch, 7, 4, 2, 0));
    DO(cudaMemcpy2D(p + 4, pitch, host, 24, 20, 4, cudaMemcpyHostToDevice));
    zero();
    DO(cudaMemcpy2DAsync(other, 24, p, pitch, 24, 4, cudaMemcpyDeviceToHost, 0));
    HOLDS(other[0] == 0x07070707 && other[1] == host[0] && other[7] == host[6] && other[12] == 0);
    SAYS(cudaMemcpy2D(p, 4, host, 24, 20, 4, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    cudaPitchedPtr volume;
    DO(cudaMalloc3D(&volume, make_cudaExtent(16, 3, 2)));
    DO(cudaMemset3D(volume, 1, make_cudaExtent(16, 3, 2)));
    DO(cudaMemset3DAsync(volume, 2, make_cudaExtent(4, 1, 2), 0));
    cudaMemcpy3DParms parts{};
    parts.srcPtr = volume, parts.dstPtr = make_cudaPitchedPtr(other, 16, 16, 3);
    parts.extent = make_cudaExtent(16, 3, 2), parts.kind = cudaMemcpyDeviceToHost;
    DO(cudaMemcpy3D(&parts));
    HOLDS(other[0] == 0x02020202 && other[1] == 0x01010101 && other[12] == 0x02020202);
    DO(cudaMemcpy3DAsync(&parts, 0));
}

static void symbols() {
    void *where;
    size_t size;
    DO(cudaGetSymbolAddress(&where, counter));
    DO(cudaGetSymbolSize(&size, table));
    HOLDS(size == 16);
    int value;
    DO(cudaMemcpyFromSymbol(&value, counter, 4));
    HOLDS(value == 5);
    count<<<2, 32>>>();
    DO(cudaMemcpyFromSymbolAsync(&value, counter, 4, 0, cudaMemcpyDeviceToHost, 0));
    HOLDS(value == 69);
    DO(cudaMemcpy(&value, where, 4, cudaMemcpyDeviceToHost));
    HOLDS(value == 69);
    int tens[2] = {30, 40};
    DO(cudaMemcpyToSymbol(table, tens, 8, 8));
    DO(cudaMemcpyToSymbolAsync(factor, &tens[0], 4, 0, cudaMemcpyHostToDevice, 0));
    SAYS(cudaMemcpyToSymbol(table, tens, 8, 12), cudaErrorInvalidValue);
    int *a = filled();
    scale<<<3, 32>>>(a, N);
    fetch(a);
    HOLDS(other[1] == 32 && other[3] == 130);
    int *alone;
    DO(cudaGetSymbolAddress((void **)&alone, table));
    add<<<1, 4>>>(Pair{alone, 100});
    DO(cudaMemcpyFromSymbol(tens, table, 8));
    HOLDS(tens[0] == 101);
    HOLDS(managed == 7);
    more<<<1, 32>>>();
    DO(cudaDeviceSynchronize());
    HOLDS(managed == 8);
    SAYS(cudaGetSymbolSize(&size, (const void *)host), cudaErrorInvalidSymbol);
}

static void noted(void *data) { ++*(int *)data; }
static void told(cudaStream_t, cudaError_t status, void *data) { *(int *)data += status == cudaSuccess ? 10 : 100; }

static void streams() {
    cudaStream_t s, t;
    cudaEvent_t e, f;
    DO(cudaStreamCreate(&s));
    DO(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    DO(cudaEventCreate(&e));
    DO(cudaEventCreateWithFlags(&f, cudaEventDefault));
    int *a = filled(), done = 0, least, most, number;
    DO(cudaEventRecord(e, s));
    scale<<<3, 32, 0, s>>>(a, N);
    DO(cudaEventRecordWithFlags(f, s, 0));
    DO(cudaStreamWaitEvent(t, f, 0));
    DO(cudaMemcpyAsync(other, a, sizeof other, cudaMemcpyDeviceToHost, t));
    DO(cudaLaunchHostFunc(t, noted, &done));
    DO(cudaStreamAddCallback(t, told, &done, 0));
    DO(cudaStreamQuery(t));
    DO(cudaStreamSynchronize(t));
    DO(cudaEventQuery(f));
    DO(cudaEventSynchronize(f));
    HOLDS(scaled() && done == 11);
    float time = -1;
    DO(cudaEventElapsedTime(&time, e, f));
    HOLDS(time > 0);
    DO(cudaDeviceGetStreamPriorityRange(&least, &most));
    HOLDS(least > most);
    unsigned flags;
    unsigned long long id, id2;
    DO(cudaStreamGetFlags(t, &flags));
    HOLDS(flags == cudaStreamNonBlocking);
    DO(cudaStreamDestroy(t));
    DO(cudaStreamCreateWithPriority(&t, 0, most));
    DO(cudaStreamGetPriority(t, &number));
    HOLDS(number == most);
    DO(cudaStreamGetId(s, &id)); DO(cudaStreamGetId(t, &id2));
    HOLDS(id != id2);
    DO(cudaStreamGetDevice(s, &number));
    DO(cudaStreamCopyAttributes(s, t));
    cudaStreamAttrValue nothing{};
    DO(cudaStreamSetAttribute(s, cudaLaunchAttributeSynchronizationPolicy, &nothing));
    DO(cudaEventDestroy(e)); DO(cudaEventDestroy(f)); DO(cudaStreamDestroy(s));
    SAYS(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
}

static void graphs() {
    cudaStream_t s, t;
    cudaEvent_t e, f;
    DO(cudaStreamCreate(&s)); DO(cudaStreamCreate(&t)); DO(cudaEventCreate(&e)); DO(cudaEventCreate(&f));
    int *a = filled();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    DO(cudaThreadExchangeStreamCaptureMode(&mode));
    DO(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    scale<<<3, 32, 0, s>>>(a, N);
    DO(cudaEventRecord(e, s));
    DO(cudaStreamWaitEvent(t, e, 0));
    scale<<<3, 32, 0, t>>>(a, N);
    DO(cudaEventRecord(f, t));
    DO(cudaStreamWaitEvent(s, f, 0));
    DO(cudaMemcpyAsync(other, a, sizeof other, cudaMemcpyDeviceToHost, s));
    cudaStreamCaptureStatus status;
    DO(cudaStreamIsCapturing(t, &status));
    HOLDS(status == cudaStreamCaptureStatusActive);
    unsigned long long id;
    DO(cudaStreamGetCaptureInfo(s, &status, &id));
    DO(cudaStreamEndCapture(s, &graph));
    DO(cudaStreamIsCapturing(t, &status));
    HOLDS(status == cudaStreamCaptureStatusNone && other[1] == 0);
    size_t nodes = 0, roots = 0, edges = 0;
    DO(cudaGraphGetNodes(graph, nullptr, &nodes));
    DO(cudaGraphGetRootNodes(graph, nullptr, &roots));
    DO(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    HOLDS(nodes == 3 && roots == 1 && edges == 3);
    DO(cudaGraphInstantiate(&ready, graph, 0));
    DO(cudaGraphUpload(ready, s));
    DO(cudaGraphLaunch(ready, s));
    DO(cudaStreamSynchronize(s));
    HOLDS(scaled(2));
    DO(cudaGraphLaunch(ready, s));
    HOLDS(scaled(4));
    DO(cudaGraphExecDestroy(ready)); DO(cudaGraphDestroy(graph));

    int called = 0, count = N;
    void *arguments[] = {&a, &count};
    cudaGraphNode_t copied, filled_, kernel, back, hosted, empty, child, recorded, waited;
    cudaKernelNodeParams k{(void *)scale, dim3(3), dim3(32), 0, arguments, nullptr};
    cudaMemsetParams m{a, 0, 0, 4, N, 1};
    cudaHostNodeParams h{noted, &called};
    DO(cudaGraphCreate(&graph, 0));
    DO(cudaGraphAddMemsetNode(&filled_, graph, nullptr, 0, &m));
    DO(cudaGraphAddMemcpyNode1D(&back, graph, nullptr, 0, other, a, sizeof other, cudaMemcpyDeviceToHost));
    DO(cudaGraphAddMemcpyNode1D(&copied, graph, &filled_, 1, a, host, sizeof host, cudaMemcpyHostToDevice));
    DO(cudaGraphAddKernelNode(&kernel, graph, &copied, 1, &k));
    DO(cudaGraphAddDependencies(graph, &kernel, &back, nullptr, 1));
    DO(cudaGraphAddHostNode(&hosted, graph, &back, 1, &h));
    DO(cudaGraphAddEmptyNode(&empty, graph, &hosted, 1));
    DO(cudaGraphAddEventRecordNode(&recorded, graph, &empty, 1, e));
    DO(cudaGraphAddEventWaitNode(&waited, graph, &recorded, 1, e));
    cudaGraph_t inner;
    DO(cudaGraphCreate(&inner, 0));
    DO(cudaGraphAddHostNode(&hosted, inner, nullptr, 0, &h));
    DO(cudaGraphAddChildGraphNode(&child, graph, &waited, 1, inner));
    cudaGraphNodeType type;
    DO(cudaGraphNodeGetType(kernel, &type));
    HOLDS(type == cudaGraphNodeTypeKernel);
    size_t before = 0;
    DO(cudaGraphNodeGetDependencies(kernel, nullptr, nullptr, &before));
    HOLDS(before == 1);
    DO(cudaGraphDebugDotPrint(graph, "graph.dot", 0));
    DO(cudaGraphInstantiateWithFlags(&ready, graph, 0));
    DO(cudaGraphLaunch(ready, s));
    HOLDS(scaled() && called == 2);
    int half = 48;
    arguments[1] = &half;
    DO(cudaGraphExecKernelNodeSetParams(ready, kernel, &k));
    DO(cudaGraphLaunch(ready, s));
    HOLDS(other[47] == 47 * 3 + 4 && other[48] == 48);
    DO(cudaGraphKernelNodeSetParams(kernel, &k));
    DO(cudaGraphHostNodeSetParams(hosted, &h));
    DO(cudaGraphExecHostNodeSetParams(ready, hosted, &h));
    DO(cudaGraphMemsetNodeSetParams(filled_, &m));
    DO(cudaGraphExecMemsetNodeSetParams(ready, filled_, &m));
    DO(cudaGraphExecMemcpyNodeSetParams1D(ready, back, other, a, 4, cudaMemcpyDeviceToHost));
    cudaMemcpy3DParms parts{};
    parts.srcPtr = make_cudaPitchedPtr(host, 16, 16, 1), parts.dstPtr = make_cudaPitchedPtr(a, 16, 16, 1);
    parts.extent = make_cudaExtent(16, 1, 1), parts.kind = cudaMemcpyHostToDevice;
    DO(cudaGraphExecMemcpyNodeSetParams(ready, copied, &parts));
    DO(cudaGraphMemcpyNodeSetParams(copied, &parts));
    DO(cudaGraphAddMemcpyNode(&copied, graph, nullptr, 0, &parts));
    DO(cudaGraphExecChildGraphNodeSetParams(ready, child, inner));
    cudaGraph_t again;
    DO(cudaGraphClone(&again, graph));
    cudaGraphExec_t other_ready;
    cudaGraphInstantiateParams how{};
    DO(cudaGraphInstantiateWithParams(&other_ready, again, &how));
    cudaGraphExecUpdateResultInfo result;
    DO(cudaGraphExecUpdate(other_ready, again, &result));
    SAYS(cudaGraphExecUpdate(other_ready, inner, &result), cudaErrorGraphExecUpdateFailure);
    cudaMemAllocNodeParams room{};
    room.bytesize = 64;
    DO(cudaGraphAddMemAllocNode(&empty, again, nullptr, 0, &room));
    HOLDS(room.dptr != nullptr);
    DO(cudaGraphAddMemFreeNode(&empty, again, nullptr, 0, room.dptr));
    DO(cudaDeviceGraphMemTrim(0));
    DO(cudaStreamBeginCaptureToGraph(s, inner, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    DO(cudaLaunchHostFunc(s, noted, &called));
    DO(cudaStreamEndCapture(s, &again));
    int *inside;
    DO(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    DO(cudaMallocAsync(&inside, sizeof host, s));
    DO(cudaMemcpyAsync(inside, host, sizeof host, cudaMemcpyHostToDevice, s));
    DO(cudaFreeAsync(inside, s));
    DO(cudaStreamEndCapture(s, &again));
    DO(cudaGraphInstantiate(&ready, again, 0));
    DO(cudaGraphLaunch(ready, s)); DO(cudaGraphLaunch(ready, s));
    SAYS(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    SAYS(cudaStreamEndCapture(s, &again), cudaErrorIllegalState);
}

static size_t some(int) { return 0; }

static void device() {
    int number, value;
    cudaDeviceProp about;
    DO(cudaGetDeviceCount(&number));
    HOLDS(number == 1);
    DO(cudaSetDevice(0));
    DO(cudaInitDevice(0, 0, 0));
    DO(cudaGetDevice(&number));
    SAYS(cudaSetDevice(1), cudaErrorInvalidDevice);
    DO(cudaSetValidDevices(&number, 1));
    DO(cudaGetDeviceProperties(&about, 0));
    DO(cudaChooseDevice(&number, &about));
    DO(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    HOLDS(!strcmp(about.name, "NVIDIA H100 80GB HBM3") && about.major == 9 && value == 132 && about.multiProcessorCount == 132);
    HOLDS(about.sharedMemPerBlockOptin == 232448 && about.maxThreadsPerMultiProcessor == 2048 && about.clusterLaunch == 1);
    HOLDS(about.warpSize == 32 && about.cooperativeLaunch == 1 && about.maxBlocksPerMultiProcessor == 32 && about.memoryPoolsSupported == 1);
    char text[32];
    DO(cudaDeviceGetPCIBusId(text, sizeof text, 0));
    DO(cudaDeviceGetByPCIBusId(&number, text));
    DO(cudaDeviceCanAccessPeer(&value, 0, 0));
    HOLDS(value == 0);
    unsigned flags;
    size_t limit;
    cudaFuncCache cache;
    cudaSharedMemConfig banks;
    DO(cudaSetDeviceFlags(0)); DO(cudaGetDeviceFlags(&flags));
    DO(cudaDeviceSetLimit(cudaLimitStackSize, 4096)); DO(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    HOLDS(limit == 4096);
    DO(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1)); DO(cudaDeviceGetCacheConfig(&cache));
    DO(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeFourByte)); DO(cudaDeviceGetSharedMemConfig(&banks));
    DO(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner));
    DO(cudaCtxResetPersistingL2Cache());
    DO(cudaProfilerStart()); DO(cudaProfilerStop());
    DO(cudaDriverGetVersion(&value)); DO(cudaRuntimeGetVersion(&value));
    HOLDS(value == 13000);
    HOLDS(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
    cudaFuncAttributes f;
    DO(cudaFuncGetAttributes(&f, (void *)dynamic));
    HOLDS(f.maxThreadsPerBlock == 1024 && f.sharedSizeBytes == 0);
    DO(cudaFuncSetCacheConfig((void *)dynamic, cudaFuncCachePreferShared));
    DO(cudaFuncSetSharedMemConfig((void *)dynamic, banks));
    const char *name;
    DO(cudaFuncGetName(&name, (void *)dynamic));
    HOLDS(strstr(name, "dynamic"));
    size_t at, size, count;
    DO(cudaFuncGetParamInfo((void *)scale, 1, &at, &size));
    HOLDS(at == 8 && size == 4);
    DO(cudaFuncGetParamCount((void *)scale, &count));
    HOLDS(count == 2);
    cudaFunction_t function;
    cudaKernel_t kernel;
    DO(cudaGetFuncBySymbol(&function, (void *)scale));
    DO(cudaGetKernel(&kernel, (void *)scale));
    DO(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 50, 0));
    int blocks, block, grid;
    DO(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, dynamic, 1024, 0));
    HOLDS(blocks == 2);
    DO(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, dynamic, 32, 100000, 0));
    HOLDS(blocks == 2);
    DO(cudaOccupancyMaxPotentialBlockSize(&grid, &block, dynamic, 0, 0));
    HOLDS(block == 1024 && grid == 264);
    DO(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, dynamic, some));
    DO(cudaOccupancyAvailableDynamicSMemPerBlock(&size, dynamic, 2, 64));
    HOLDS(size == 115712);
}

static const char *TEXT = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .u32 word = 6;\n"
    ".visible .entry set(.param .u64 p) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p]; ld.global.u32 %v, [word]; st.global.u32 [%a], %v; ret; }\n";

static void libraries() {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    int *a, value;
    DO(cudaLibraryLoadData(&library, TEXT, nullptr, nullptr, 0, nullptr, nullptr, 0));
    DO(cudaLibraryGetKernel(&kernel, library, "set"));
    SAYS(cudaLibraryGetKernel(&kernel, library, "no"), cudaErrorSymbolNotFound);
    unsigned number;
    DO(cudaLibraryGetKernelCount(&number, library));
    HOLDS(number == 1);
    DO(cudaMalloc(&a, 4));
    void *arguments[] = {&a};
    DO(cudaLaunchKernel((void *)kernel, dim3(1), dim3(1), arguments, 0, 0));
    DO(cudaMemcpy(&value, a, 4, cudaMemcpyDeviceToHost));
    HOLDS(value == 6);
    size_t size;
    int *word;
    DO(cudaLibraryGetGlobal((void **)&word, &size, library, "word"));
    HOLDS(size == 4);
    value = 9;
    DO(cudaMemcpy(word, &value, 4, cudaMemcpyHostToDevice));
    DO(cudaLaunchKernel((void *)kernel, dim3(1), dim3(1), arguments, 0, 0));
    DO(cudaMemcpy(&value, a, 4, cudaMemcpyDeviceToHost));
    HOLDS(value == 9);
    DO(cudaLibraryGetManaged((void **)&word, &size, library, "word"));
    char path[] = "/tmp/fragmenta-XXXXXX";
    int file = mkstemp(path);
    HOLDS(write(file, TEXT, strlen(TEXT)) > 0);
    close(file);
    cudaLibrary_t again;
    DO(cudaLibraryLoadFromFile(&again, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
    unlink(path);
    DO(cudaLibraryUnload(again));
    SAYS(cudaLibraryLoadData(&again, "nonsense", nullptr, nullptr, 0, nullptr, nullptr, 0), cudaErrorInvalidPtx);
    CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    cudaDriverEntryPointQueryResult found;
    DO(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
    HOLDS(found == cudaDriverEntryPointSuccess);
    CUtensorMap map;
    cuuint64_t sizes[] = {64, 64}, strides[] = {128};
    cuuint32_t box[] = {64, 8}, steps[] = {1, 1};
    void *tensor;
    DO(cudaMalloc(&tensor, 8192));
    HOLDS(!encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, tensor, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    HOLDS(*(void **)&map == tensor);
    DO(cudaGetDriverEntryPointByVersion("cuNothing", (void **)&encode, 12000, cudaEnableDefault, &found));
    HOLDS(found == cudaDriverEntryPointSymbolNotFound);
}

static void printing() {
    greet<<<1, 2>>>();
    printf("launched\n");
    DO(cudaDeviceSynchronize());
    printf("waited\n");
}

static void refusing() {
    cudaArray_t array;
    cudaChannelFormatDesc what = cudaCreateChannelDesc<float>();
    SAYS(cudaMallocArray(&array, &what, 4, 4), cudaErrorNotSupported);
    SAYS(cudaDeviceEnablePeerAccess(0, 0), cudaErrorNotSupported);
}

static void resetting() {
    int *a = filled();
    DO(cudaDeviceReset());
    SAYS(cudaMemcpy(other, a, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    a = filled();
    count<<<1, 1>>>();
    int value;
    DO(cudaMemcpyFromSymbol(&value, counter, 4));
    HOLDS(value == 6);
}

int main() {
    struct { const char *name; void (*part)(); } parts[] = {
        {"launches", launches}, {"clusters", clusters}, {"cooperative", cooperative}, {"memory", memory},
        {"copies", copies}, {"streams", streams}, {"graphs", graphs}, {"device", device},
        {"libraries", libraries}, {"printing", printing}, {"refusing", refusing}, {"symbols", symbols}, {"resetting", resetting},
    };
    for (auto &each : parts) {
        each.part();
        printf("right %s\n", each.name);
        fflush(stdout);
    }
}
