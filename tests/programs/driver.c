/* A program of each shape, for the driver: compiled by the system's compiler alone. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *P;
typedef size_t S;
#define CU(name, ...) extern int name(__VA_ARGS__)
CU(cuInit, unsigned); CU(cuDriverGetVersion, int *); CU(cuGetErrorName, int, const char **); CU(cuGetErrorString, int, const char **);
CU(cuDeviceGetCount, int *); CU(cuDeviceGet, int *, int); CU(cuDeviceGetName, char *, int, int); CU(cuDeviceGetAttribute, int *, int, int);
CU(cuDeviceTotalMem_v2, S *, int); CU(cuDeviceComputeCapability, int *, int *, int); CU(cuDeviceGetUuid, char *, int); CU(cuDeviceGetUuid_v2, char *, int);
CU(cuDeviceCanAccessPeer, int *, int, int); CU(cuDeviceGetPCIBusId, char *, int, int);
CU(cuDeviceGetDefaultMemPool, P *, int); CU(cuDeviceGetMemPool, P *, int); CU(cuDeviceSetMemPool, int, P);
CU(cuDevicePrimaryCtxRetain, P *, int); CU(cuDevicePrimaryCtxRelease_v2, int); CU(cuDevicePrimaryCtxReset_v2, int);
CU(cuDevicePrimaryCtxGetState, int, unsigned *, int *); CU(cuDevicePrimaryCtxSetFlags_v2, int, unsigned);
CU(cuCtxCreate_v2, P *, unsigned, int); CU(cuCtxCreate_v3, P *, P, int, unsigned, int); CU(cuCtxCreate_v4, P *, P, unsigned, int); CU(cuCtxDestroy_v2, P);
CU(cuCtxPushCurrent_v2, P); CU(cuCtxPopCurrent_v2, P *); CU(cuCtxSetCurrent, P); CU(cuCtxGetCurrent, P *); CU(cuCtxGetDevice, int *);
CU(cuCtxGetFlags, unsigned *); CU(cuCtxGetApiVersion, P, unsigned *); CU(cuCtxGetId, P, unsigned long long *); CU(cuCtxSynchronize, void);
CU(cuCtxGetLimit, S *, int); CU(cuCtxSetLimit, int, S); CU(cuCtxGetCacheConfig, int *); CU(cuCtxSetCacheConfig, int);
CU(cuCtxGetStreamPriorityRange, int *, int *); CU(cuProfilerStart, void); CU(cuProfilerStop, void);
CU(cuMemAlloc_v2, P *, S); CU(cuMemAllocHost_v2, P *, S); CU(cuMemHostAlloc, P *, S, unsigned); CU(cuMemAllocManaged, P *, S, unsigned);
CU(cuMemAllocPitch_v2, P *, S *, S, S, unsigned); CU(cuMemAllocAsync, P *, S, P); CU(cuMemAllocFromPoolAsync, P *, S, P, P);
CU(cuMemFree_v2, P); CU(cuMemFreeHost, P); CU(cuMemFreeAsync, P, P); CU(cuMemGetInfo_v2, S *, S *); CU(cuMemGetAddressRange_v2, P *, S *, P);
CU(cuMemHostRegister_v2, P, S, unsigned); CU(cuMemHostUnregister, P); CU(cuMemHostGetDevicePointer_v2, P *, P, unsigned); CU(cuMemHostGetFlags, unsigned *, P);
CU(cuPointerGetAttribute, P, int, P); CU(cuMemAdvise, P, S, int, int); CU(cuMemAdvise_v2, P, S, int, uint64_t);
CU(cuMemPrefetchAsync, P, S, int, P); CU(cuMemPrefetchAsync_v2, P, S, uint64_t, unsigned, P); CU(cuStreamAttachMemAsync, P, P, S, unsigned);
CU(cuMemPoolCreate, P *, P); CU(cuMemPoolDestroy, P); CU(cuMemPoolSetAttribute, P, int, P); CU(cuMemPoolGetAttribute, P, int, uint64_t *); CU(cuMemPoolTrimTo, P, S);
CU(cuMemcpy, P, P, S); CU(cuMemcpyAsync, P, P, S, P); CU(cuMemcpyHtoD_v2, P, P, S); CU(cuMemcpyHtoDAsync_v2, P, P, S, P);
CU(cuMemcpyDtoH_v2, P, P, S); CU(cuMemcpyDtoHAsync_v2, P, P, S, P); CU(cuMemcpyDtoD_v2, P, P, S); CU(cuMemcpyDtoDAsync_v2, P, P, S, P);
CU(cuMemcpy2D_v2, P); CU(cuMemcpy2DUnaligned_v2, P); CU(cuMemcpy2DAsync_v2, P, P); CU(cuMemcpy3D_v2, P); CU(cuMemcpy3DAsync_v2, P, P);
CU(cuMemsetD8_v2, P, unsigned char, S); CU(cuMemsetD16_v2, P, unsigned short, S); CU(cuMemsetD32_v2, P, unsigned, S);
CU(cuMemsetD8Async, P, unsigned char, S, P); CU(cuMemsetD16Async, P, unsigned short, S, P); CU(cuMemsetD32Async, P, unsigned, S, P);
CU(cuMemsetD2D8_v2, P, S, unsigned char, S, S); CU(cuMemsetD2D32_v2, P, S, unsigned, S, S);
CU(cuModuleLoad, P *, const char *); CU(cuModuleLoadData, P *, const void *); CU(cuModuleLoadDataEx, P *, const void *, unsigned, int *, P *);
CU(cuModuleLoadFatBinary, P *, const void *); CU(cuModuleUnload, P); CU(cuModuleGetFunction, P *, P, const char *); CU(cuModuleGetFunctionCount, unsigned *, P);
CU(cuModuleGetGlobal_v2, P *, S *, P, const char *); CU(cuModuleGetLoadingMode, int *);
CU(cuLibraryLoadData, P *, const void *, int *, P *, unsigned, P, P *, unsigned); CU(cuLibraryLoadFromFile, P *, const char *, int *, P *, unsigned, P, P *, unsigned);
CU(cuLibraryUnload, P); CU(cuLibraryGetKernel, P *, P, const char *); CU(cuLibraryGetKernelCount, unsigned *, P); CU(cuLibraryGetModule, P *, P);
CU(cuLibraryGetGlobal, P *, S *, P, const char *); CU(cuLibraryGetManaged, P *, S *, P, const char *);
CU(cuKernelGetFunction, P *, P); CU(cuKernelGetAttribute, int *, int, P, int); CU(cuKernelSetAttribute, int, int, P, int); CU(cuKernelGetName, const char **, P);
CU(cuKernelGetParamInfo, P, S, S *, S *); CU(cuKernelGetLibrary, P *, P); CU(cuKernelSetCacheConfig, P, int, int);
CU(cuFuncGetAttribute, int *, int, P); CU(cuFuncSetAttribute, P, int, int); CU(cuFuncSetCacheConfig, P, int); CU(cuFuncSetSharedMemConfig, P, int);
CU(cuFuncGetModule, P *, P); CU(cuFuncGetName, const char **, P); CU(cuFuncGetParamInfo, P, S, S *, S *); CU(cuFuncIsLoaded, int *, P); CU(cuFuncLoad, P);
CU(cuLaunchKernel, P, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, P, P *, P *);
CU(cuLaunchKernelEx, P, P, P *, P *); CU(cuLaunchCooperativeKernel, P, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, P, P *);
CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *, P, int, S); CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *, P, int, S, unsigned);
CU(cuOccupancyMaxPotentialBlockSize, int *, int *, P, P, S, int); CU(cuOccupancyMaxPotentialBlockSizeWithFlags, int *, int *, P, P, S, int, unsigned);
CU(cuOccupancyAvailableDynamicSMemPerBlock, S *, P, int, int); CU(cuOccupancyMaxActiveClusters, int *, P, P); CU(cuOccupancyMaxPotentialClusterSize, int *, P, P);
CU(cuTensorMapEncodeTiled, P, int, unsigned, P, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int);
CU(cuTensorMapEncodeIm2col, P, int, unsigned, P, const uint64_t *, const uint64_t *, const int *, const int *, unsigned, unsigned, const uint32_t *, int, int, int, int);
CU(cuTensorMapReplaceAddress, P, P);
CU(cuStreamCreate, P *, unsigned); CU(cuStreamCreateWithPriority, P *, unsigned, int); CU(cuStreamDestroy_v2, P); CU(cuStreamSynchronize, P); CU(cuStreamQuery, P);
CU(cuStreamWaitEvent, P, P, unsigned); CU(cuStreamGetFlags, P, unsigned *); CU(cuStreamGetPriority, P, int *); CU(cuStreamGetId, P, unsigned long long *);
CU(cuStreamGetCtx, P, P *); CU(cuStreamGetDevice, P, int *); CU(cuStreamSetAttribute, P, int, P); CU(cuStreamAddCallback, P, void (*)(P, int, P), P, unsigned);
CU(cuLaunchHostFunc, P, void (*)(P), P); CU(cuStreamBeginCapture_v2, P, int); CU(cuStreamEndCapture, P, P *); CU(cuStreamIsCapturing, P, int *);
CU(cuStreamGetCaptureInfo_v2, P, int *, unsigned long long *, P *, P, S *); CU(cuStreamGetCaptureInfo_v3, P, int *, unsigned long long *, P *, P, P, S *);
CU(cuThreadExchangeStreamCaptureMode, int *);
CU(cuEventCreate, P *, unsigned); CU(cuEventDestroy_v2, P); CU(cuEventRecord, P, P); CU(cuEventRecordWithFlags, P, P, unsigned); CU(cuEventQuery, P);
CU(cuEventSynchronize, P); CU(cuEventElapsedTime, float *, P, P); CU(cuEventElapsedTime_v2, float *, P, P);
CU(cuGraphCreate, P *, unsigned); CU(cuGraphDestroy, P); CU(cuGraphClone, P *, P); CU(cuGraphInstantiateWithFlags, P *, P, unsigned long long);
CU(cuGraphInstantiateWithParams, P *, P, P); CU(cuGraphExecDestroy, P); CU(cuGraphUpload, P, P); CU(cuGraphLaunch, P, P);
CU(cuGraphAddEmptyNode, P *, P, P *, S); CU(cuGraphAddKernelNode_v2, P *, P, P *, S, P); CU(cuGraphAddHostNode, P *, P, P *, S, P); CU(cuGraphGetNodes, P, P *, S *);
CU(cuGetProcAddress, const char *, P *, int, uint64_t); CU(cuGetProcAddress_v2, const char *, P *, int, uint64_t, int *); CU(cuGetExportTable, const void **, const void *);

CU(cuFuncSetBlockShape, P, int, int, int); CU(cuFuncSetSharedSize, P, unsigned); CU(cuParamSetSize, P, unsigned); CU(cuParamSeti, P, int, unsigned); CU(cuParamSetf, P, int, float);
CU(cuParamSetv, P, int, P, unsigned); CU(cuLaunch, P); CU(cuLaunchGrid, P, int, int); CU(cuLaunchGridAsync, P, int, int, P); CU(cuCtxAttach, P *, unsigned); CU(cuCtxDetach, P);
CU(cuPointerGetAttributes, unsigned, int *, P *, P); CU(cuDeviceGetByPCIBusId, int *, const char *); CU(cuCtxGetDevice_v2, int *, P); CU(cuCtxSetFlags, unsigned); CU(cuCtxSynchronize_v2, P);
CU(cuCtxGetSharedMemConfig, int *); CU(cuCtxSetSharedMemConfig, int); CU(cuCtxResetPersistingL2Cache, void); CU(cuFlushGPUDirectRDMAWrites, int, int);
CU(cuMemPoolSetAccess, P, P, S); CU(cuMemGetDefaultMemPool, P *, P, int); CU(cuMemGetMemPool, P *, P, int);
CU(cuMemsetD2D16_v2, P, S, unsigned short, S, S); CU(cuMemsetD2D8Async, P, S, unsigned char, S, S, P); CU(cuMemsetD2D16Async, P, S, unsigned short, S, S, P); CU(cuMemsetD2D32Async, P, S, unsigned, S, S, P);
CU(cuKernelGetParamCount, P, S *); CU(cuFuncGetParamCount, P, S *); CU(cuStreamBeginCaptureToGraph, P, P, P *, P, S, int);
CU(cuGraphAddMemsetNode, P *, P, P *, S, P, P); CU(cuGraphAddChildGraphNode, P *, P, P *, S, P); CU(cuGraphAddMemAllocNode, P *, P, P *, S, P); CU(cuGraphAddMemFreeNode, P *, P, P *, S, P);
CU(cuGraphAddEventRecordNode, P *, P, P *, S, P); CU(cuGraphAddEventWaitNode, P *, P, P *, S, P); CU(cuGraphGetRootNodes, P, P *, S *); CU(cuGraphNodeGetType, P, int *);
CU(cuGraphDebugDotPrint, P, const char *, unsigned); CU(cuDeviceGraphMemTrim, int);

#define SAYS(call, wanted) do { int code = (call); if (code != (wanted)) { printf("wrong %s: %d\n", #call, code); exit(3); } } while (0)
#define DO(call) SAYS(call, 0)
#define HOLDS(what) do { if (!(what)) { printf("wrong %s\n", #what); exit(3); } } while (0)

static const char *TEXT =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .global .u32 word = 6;\n"
    ".visible .entry twice(.param .u64 data, .param .u32 n)\n{\n"
    "  .reg .pred %p;\n  .reg .b32 %r<5>;\n  .reg .b64 %a, %b;\n"
    "  ld.param.u64 %a, [data];\n  ld.param.u32 %r1, [n];\n  mov.u32 %r2, %tid.x;\n"
    "  setp.ge.u32 %p, %r2, %r1;\n  @%p ret;\n"
    "  mul.wide.u32 %b, %r2, 4;\n  add.s64 %a, %a, %b;\n  ld.global.u32 %r3, [%a];\n"
    "  ld.global.u32 %r4, [word];\n  mad.lo.u32 %r3, %r3, 2, %r4;\n  st.global.u32 [%a], %r3;\n  ret;\n}\n"
    ".visible .entry forever()\n{\nAGAIN:\n  bra AGAIN;\n}\n";

enum { N = 64 };
static uint32_t host[N], back[N];
static P module, twice, context;

static P filled(void) {
    P a;
    for (int i = 0; i < N; i++) host[i] = i;
    DO(cuMemAlloc_v2(&a, sizeof host));
    DO(cuMemcpyHtoD_v2(a, host, sizeof host));
    memset(back, 0, sizeof back);
    return a;
}
static int doubled(int n) { for (int i = 0; i < N; i++) if (back[i] != (uint32_t)(i < n ? 2 * i + 6 : i)) return 0; return 1; }

static void start(void) {
    int device, number;
    SAYS(cuInit(0), 0);
    DO(cuDriverGetVersion(&number)); DO(cuDeviceGetCount(&number)); HOLDS(number == 1);
    DO(cuDeviceGet(&device, 0)); SAYS(cuDeviceGet(&number, 1), 101);
    DO(cuCtxCreate_v2(&context, 0, device));
    DO(cuModuleLoadData(&module, TEXT));
    DO(cuModuleGetFunction(&twice, module, "twice"));
}

static void device_part(void) {
    char text[64];
    const char *said;
    int number, major, minor;
    unsigned flags;
    unsigned long long id;
    S size;
    P other;
    DO(cuGetErrorName(2, &said)); HOLDS(!strcmp(said, "CUDA_ERROR_OUT_OF_MEMORY"));
    DO(cuGetErrorString(0, &said)); HOLDS(!strcmp(said, "no error"));
    DO(cuDeviceGetName(text, sizeof text, 0)); HOLDS(strstr(text, "H100"));
    DO(cuDeviceGetAttribute(&number, 16, 0)); HOLDS(number == 132);
    DO(cuDeviceComputeCapability(&major, &minor, 0)); HOLDS(major == 9 && minor == 0);
    DO(cuDeviceTotalMem_v2(&size, 0)); HOLDS(size > 1 << 20);
    DO(cuDeviceGetUuid(text, 0)); DO(cuDeviceGetUuid_v2(text, 0)); DO(cuDeviceGetPCIBusId(text, sizeof text, 0));
    DO(cuDeviceCanAccessPeer(&number, 0, 0)); HOLDS(!number);
    DO(cuDeviceGetDefaultMemPool(&other, 0)); DO(cuDeviceGetMemPool(&other, 0)); DO(cuDeviceSetMemPool(0, other));
    DO(cuDevicePrimaryCtxRetain(&other, 0)); DO(cuDevicePrimaryCtxSetFlags_v2(0, 0));
    DO(cuDevicePrimaryCtxGetState(0, &flags, &number)); HOLDS(number == 1); DO(cuDevicePrimaryCtxRelease_v2(0));
    DO(cuCtxCreate_v3(&other, 0, 0, 0, 0)); DO(cuCtxCreate_v4(&other, 0, 0, 0)); DO(cuCtxDestroy_v2(other)); DO(cuCtxAttach(&other, 0)); HOLDS(other == context); DO(cuCtxDetach(other));
    DO(cuCtxPushCurrent_v2(context)); DO(cuCtxPopCurrent_v2(&other)); DO(cuCtxSetCurrent(context)); DO(cuCtxGetCurrent(&other)); HOLDS(other == context);
    DO(cuCtxGetDevice(&number)); DO(cuCtxGetFlags(&flags)); DO(cuCtxGetApiVersion(context, &flags)); DO(cuCtxGetId(context, &id));
    DO(cuCtxSetLimit(0, 2048)); DO(cuCtxGetLimit(&size, 0)); HOLDS(size == 2048);
    DO(cuCtxSetCacheConfig(0)); DO(cuCtxGetCacheConfig(&number)); DO(cuCtxGetStreamPriorityRange(&major, &minor));
    DO(cuDeviceGetByPCIBusId(&number, "0000:00:00.0")); HOLDS(!number); DO(cuCtxGetDevice_v2(&number, context)); DO(cuCtxSetFlags(0)); DO(cuCtxSynchronize_v2(context));
    DO(cuCtxSetSharedMemConfig(1)); DO(cuCtxGetSharedMemConfig(&number)); DO(cuCtxResetPersistingL2Cache()); DO(cuFlushGPUDirectRDMAWrites(0, 100));
    DO(cuProfilerStart()); DO(cuProfilerStop()); DO(cuCtxSynchronize());
}

static void memory_part(void) {
    P a = filled(), b, c, d, pool;
    S size, pitch, total;
    unsigned flags = 0, type = 0;
    uint64_t value = 0;
    SAYS(cuMemAlloc_v2(&b, 0), 1); SAYS(cuMemAlloc_v2(&b, (S)1 << 50), 2);
    DO(cuMemGetAddressRange_v2(&b, &size, (char *)a + 8)); HOLDS(b == a && size == sizeof host);
    DO(cuMemAllocHost_v2(&b, 64)); DO(cuMemHostAlloc(&c, 64, 0)); DO(cuMemAllocManaged(&d, 64, 1));
    strcpy(b, "host"); strcpy(d, "managed");
    DO(cuMemHostGetDevicePointer_v2(&c, b, 0)); HOLDS(c == b); DO(cuMemHostGetFlags(&flags, b));
    DO(cuPointerGetAttribute(&type, 2, a)); HOLDS(type == 2);
    DO(cuPointerGetAttribute(&type, 8, d)); HOLDS(type == 1);
    SAYS(cuPointerGetAttribute(&type, 2, host), 1);
    /* Several at once: of memory that is not CUDA's, all are zero. */
    int which[] = {2, 4, 8, 12};
    unsigned kind, managed;
    P at, answers[] = {&kind, &at, &managed, &size};
    DO(cuPointerGetAttributes(4, which, answers, (char *)d + 8)); HOLDS(kind == 2 && at == (char *)d + 8 && managed == 1 && size == 64);
    DO(cuPointerGetAttributes(4, which, answers, a)); HOLDS(kind == 2 && !at && !managed && size == sizeof host);
    DO(cuPointerGetAttributes(4, which, answers, host)); HOLDS(!kind && !at && !managed && !size);
    which[1] = 99; SAYS(cuPointerGetAttributes(4, which, answers, a), 1); SAYS(cuPointerGetAttribute(&size, 99, a), 1);
    DO(cuMemAdvise(d, 64, 1, 0)); DO(cuMemAdvise_v2(d, 64, 1, 0)); DO(cuMemPrefetchAsync(d, 64, 0, 0)); DO(cuMemPrefetchAsync_v2(d, 64, 0, 0, 0)); DO(cuStreamAttachMemAsync(0, d, 0, 1));
    DO(cuMemHostRegister_v2(host, sizeof host, 0)); DO(cuMemHostUnregister(host));
    DO(cuMemFreeHost(b)); DO(cuMemFree_v2(d));
    DO(cuMemAllocAsync(&b, 64, 0)); DO(cuMemFreeAsync(b, 0));
    DO(cuMemPoolCreate(&pool, 0)); DO(cuMemAllocFromPoolAsync(&b, 64, pool, 0)); DO(cuMemFreeAsync(b, 0));
    DO(cuMemPoolSetAttribute(pool, 4, &value)); DO(cuMemPoolGetAttribute(pool, 4, &value)); DO(cuMemPoolTrimTo(pool, 0)); DO(cuMemPoolDestroy(pool));
    DO(cuMemPoolSetAccess(pool, 0, 0)); DO(cuMemGetDefaultMemPool(&b, 0, 1)); DO(cuMemGetMemPool(&c, 0, 1)); HOLDS(b == c);
    DO(cuMemGetInfo_v2(&size, &total)); HOLDS(size < total);
    DO(cuMemAlloc_v2(&b, sizeof host));
    DO(cuMemcpy(b, a, 16)); DO(cuMemcpyAsync(b, a, 16, 0)); DO(cuMemcpyDtoD_v2(b, a, sizeof host)); DO(cuMemcpyDtoDAsync_v2(b, a, sizeof host, 0));
    DO(cuMemcpyHtoDAsync_v2(b, host, 4, 0)); DO(cuMemcpyDtoH_v2(back, b, sizeof back)); HOLDS(!memcmp(host, back, sizeof host));
    DO(cuMemsetD8_v2(b, 1, 4)); DO(cuMemsetD16_v2((char *)b + 4, 2, 2)); DO(cuMemsetD32_v2((char *)b + 8, 3, 1));
    DO(cuMemsetD8Async((char *)b + 12, 4, 4, 0)); DO(cuMemsetD16Async((char *)b + 16, 5, 2, 0)); DO(cuMemsetD32Async((char *)b + 20, 6, 1, 0));
    SAYS(cuMemsetD32_v2((char *)b + 1, 3, 1), 1);
    DO(cuMemcpyDtoHAsync_v2(back, b, sizeof back, 0));
    HOLDS(back[0] == 0x01010101 && back[1] == 0x00020002 && back[2] == 3 && back[3] == 0x04040404 && back[4] == 0x00050005 && back[5] == 6);
    DO(cuMemAllocPitch_v2(&c, &pitch, 16, 4, 4)); DO(cuMemsetD2D8_v2(c, pitch, 9, 16, 4)); DO(cuMemsetD2D32_v2(c, pitch, 7, 2, 4));
    struct { S x, y; int type; P host, device, array; S pitch, tx, ty; int to; P thost, tdevice, tarray; S tpitch, width, height; } two = {0, 0, 2, 0, c, 0, pitch, 0, 0, 1, back, 0, 0, 16, 16, 4};
    memset(back, 0, sizeof back);
    DO(cuMemcpy2D_v2(&two)); HOLDS(back[4] == 7 && back[6] == 0x09090909);
    DO(cuMemcpy2DUnaligned_v2(&two)); DO(cuMemcpy2DAsync_v2(&two, 0));
    struct { S x, y, z, l; int type; P host, device, array, r; S pitch, h, tx, ty, tz, tl; int to; P thost, tdevice, tarray, tr; S tpitch, th, width, height, depth; } three = {0, 0, 0, 0, 2, 0, c, 0, 0, pitch, 2, 0, 0, 0, 0, 1, back, 0, 0, 0, 8, 2, 8, 2, 2};
    DO(cuMemsetD2D16_v2(c, pitch, 2, 2, 4)); DO(cuMemsetD2D16Async((char *)c + 4, pitch, 3, 2, 4, 0)); DO(cuMemsetD2D8Async((char *)c + 8, pitch, 4, 4, 4, 0)); DO(cuMemsetD2D32Async((char *)c + 12, pitch, 5, 1, 4, 0));
    DO(cuMemcpy2D_v2(&two)); HOLDS(back[4] == 0x00020002 && back[5] == 0x00030003 && back[14] == 0x04040404 && back[15] == 5);
    DO(cuMemsetD2D32_v2(c, pitch, 7, 2, 4));
    DO(cuMemcpy3D_v2(&three)); HOLDS(back[7] == 7); DO(cuMemcpy3DAsync_v2(&three, 0));
    DO(cuMemFree_v2(a)); SAYS(cuMemFree_v2((char *)c + 8), 1);
}

static void counted(P data) { ++*(int *)data; }
static void told(P stream, int status, P data) { (void)stream; *(int *)data += status ? 100 : 10; }

static void kernels_part(void) {
    P a = filled(), other, function, library, word, kernel;
    unsigned n = N, number;
    int value, grid, block;
    const char *name;
    S size, at;
    P arguments[] = {&a, &n};
    DO(cuLaunchKernel(twice, 1, 1, 1, N, 1, 1, 0, 0, arguments, 0));
    DO(cuCtxSynchronize()); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(doubled(N));
    struct { P a; unsigned n; } packed = {filled(), 10};
    S bytes = 12;
    P extra[] = {(P)1, &packed, (P)2, &bytes, 0};
    DO(cuLaunchKernel(twice, 1, 1, 1, N, 1, 1, 0, 0, 0, extra));
    DO(cuMemcpyDtoH_v2(back, packed.a, sizeof back)); HOLDS(doubled(10));
    struct { unsigned grid[3], block[3], shared; P stream, attributes; unsigned count; } config = {{1, 1, 1}, {N, 1, 1}, 0, 0, 0, 0};
    a = filled(); DO(cuLaunchKernelEx(&config, twice, arguments, 0)); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(doubled(N));
    a = filled(); DO(cuLaunchCooperativeKernel(twice, 1, 1, 1, N, 1, 1, 0, 0, arguments)); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(doubled(N));
    /* The parts of a launch one by one, as PyCUDA does. */
    a = filled(); DO(cuFuncSetBlockShape(twice, N, 1, 1)); DO(cuFuncSetSharedSize(twice, 0)); DO(cuParamSetSize(twice, 12)); DO(cuParamSetv(twice, 0, &a, 8)); DO(cuParamSeti(twice, 8, 10));
    DO(cuLaunchGrid(twice, 1, 1)); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(doubled(10));
    a = filled(); DO(cuParamSetv(twice, 0, &a, 8)); DO(cuParamSetf(twice, 8, 1e-43f)); DO(cuLaunch(twice)); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(doubled(N));  /* 71 as an integer */
    DO(cuParamSeti(twice, 8, 0)); DO(cuLaunchGridAsync(twice, 2, 2, 0)); SAYS(cuLaunchGrid(twice, 0, 1), 1); SAYS(cuFuncSetBlockShape(twice, 0, 1, 1), 1); SAYS(cuParamSetv(twice, -4, &a, 8), 1); SAYS(cuParamSetSize(twice, 1 << 20), 1);
    SAYS(cuModuleGetFunction(&function, module, "no"), 500);
    DO(cuModuleGetFunctionCount(&number, module)); HOLDS(number == 2); DO(cuModuleGetLoadingMode(&value));
    DO(cuModuleGetGlobal_v2(&word, &size, module, "word")); HOLDS(size == 4);
    DO(cuMemsetD32_v2(word, 8, 1)); a = filled(); DO(cuLaunchKernel(twice, 1, 1, 1, N, 1, 1, 0, 0, arguments, 0));
    DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(back[1] == 10); DO(cuMemsetD32_v2(word, 6, 1));
    DO(cuModuleLoadDataEx(&other, TEXT, 0, 0, 0)); DO(cuModuleUnload(other)); DO(cuModuleLoadFatBinary(&other, TEXT));
    char path[] = "/tmp/fragmenta-XXXXXX";
    int file = mkstemp(path);
    HOLDS(write(file, TEXT, strlen(TEXT)) > 0); close(file);
    DO(cuModuleLoad(&other, path)); DO(cuLibraryLoadFromFile(&library, path, 0, 0, 0, 0, 0, 0)); unlink(path);
    SAYS(cuModuleLoad(&other, "/no such file"), 301);
    DO(cuLibraryLoadData(&library, TEXT, 0, 0, 0, 0, 0, 0)); DO(cuLibraryGetKernel(&kernel, library, "twice")); DO(cuLibraryGetKernelCount(&number, library));
    DO(cuLibraryGetModule(&other, library)); DO(cuLibraryGetGlobal(&word, &size, library, "word")); DO(cuLibraryGetManaged(&word, &size, library, "word"));
    DO(cuKernelGetFunction(&function, kernel)); DO(cuKernelGetAttribute(&value, 0, kernel, 0)); HOLDS(value == 1024);
    DO(cuKernelSetAttribute(8, 1024, kernel, 0)); DO(cuKernelGetName(&name, kernel)); HOLDS(!strcmp(name, "twice"));
    DO(cuKernelGetParamInfo(kernel, 1, &at, &size)); HOLDS(at == 8 && size == 4); DO(cuKernelGetParamCount(kernel, &size)); HOLDS(size == 2); DO(cuFuncGetParamCount(twice, &at)); HOLDS(at == 2); DO(cuKernelGetLibrary(&other, kernel)); HOLDS(other == library); DO(cuKernelSetCacheConfig(kernel, 0, 0));
    DO(cuFuncGetAttribute(&value, 5, twice)); HOLDS(value == 80); DO(cuFuncSetAttribute(twice, 8, 100000)); SAYS(cuFuncSetAttribute(twice, 8, 1 << 20), 1);
    DO(cuFuncSetCacheConfig(twice, 0)); DO(cuFuncSetSharedMemConfig(twice, 0)); DO(cuFuncGetModule(&other, twice)); HOLDS(other == module); DO(cuFuncGetName(&name, twice));
    DO(cuFuncGetParamInfo(twice, 0, &at, &size)); SAYS(cuFuncGetParamInfo(twice, 2, &at, &size), 1); DO(cuFuncIsLoaded(&value, twice)); DO(cuFuncLoad(twice)); DO(cuLibraryUnload(library));
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, twice, 1024, 0)); HOLDS(value == 2);
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, twice, 32, 0, 0)); HOLDS(value == 32);
    DO(cuOccupancyMaxPotentialBlockSize(&grid, &block, twice, 0, 0, 0)); HOLDS(block == 1024); DO(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, twice, 0, 0, 256, 0)); HOLDS(block == 256);
    DO(cuOccupancyAvailableDynamicSMemPerBlock(&size, twice, 1, 32)); DO(cuOccupancyMaxActiveClusters(&value, twice, &config)); DO(cuOccupancyMaxPotentialClusterSize(&value, twice, &config));
    static char map[128] __attribute__((aligned(64)));
    uint64_t sizes[] = {64, 64, 4, 4}, strides[] = {128, 8192, 32768};
    uint32_t box[] = {64, 8}, steps[] = {1, 1, 1, 1};
    int lower[] = {0, 0}, upper[] = {0, 0};
    DO(cuTensorMapEncodeTiled(map, 6, 2, a, sizes, strides, box, steps, 0, 3, 0, 0)); HOLDS(*(P *)map == a);
    box[0] = 63; SAYS(cuTensorMapEncodeTiled(map, 6, 2, a, sizes, strides, box, steps, 0, 3, 0, 0), 1);
    DO(cuTensorMapEncodeIm2col(map, 6, 4, a, sizes, strides, lower, upper, 64, 8, steps, 0, 0, 0, 0)); DO(cuTensorMapReplaceAddress(map, twice)); HOLDS(*(P *)map == twice);
}

static void streams_part(void) {
    P s, t, e, f, graph, ready, node, ending;
    int done = 0, value, least, most;
    unsigned flags, n = N;
    unsigned long long id;
    float time;
    S count = 0;
    DO(cuStreamCreate(&s, 0)); DO(cuCtxGetStreamPriorityRange(&least, &most)); DO(cuStreamCreateWithPriority(&t, 1, most));
    DO(cuStreamGetFlags(t, &flags)); HOLDS(flags == 1); DO(cuStreamGetPriority(t, &value)); HOLDS(value == most); DO(cuStreamGetId(s, &id)); DO(cuStreamGetCtx(s, &e)); DO(cuStreamGetDevice(s, &value)); DO(cuStreamSetAttribute(s, 3, 0));
    DO(cuEventCreate(&e, 0)); DO(cuEventCreate(&f, 0)); DO(cuEventRecord(e, s)); DO(cuEventRecordWithFlags(f, s, 0)); DO(cuStreamWaitEvent(t, f, 0));
    DO(cuLaunchHostFunc(t, counted, &done)); DO(cuStreamAddCallback(t, told, &done, 0)); DO(cuStreamSynchronize(t)); DO(cuStreamQuery(t)); HOLDS(done == 11);
    DO(cuEventQuery(e)); DO(cuEventSynchronize(f)); DO(cuEventElapsedTime(&time, e, f)); DO(cuEventElapsedTime_v2(&time, e, f)); HOLDS(time >= 0);
    P a = filled(), arguments[] = {&a, &n};
    value = 1; DO(cuThreadExchangeStreamCaptureMode(&value));
    DO(cuStreamBeginCapture_v2(s, 0)); DO(cuLaunchKernel(twice, 1, 1, 1, N, 1, 1, 0, s, arguments, 0)); DO(cuMemcpyDtoHAsync_v2(back, a, sizeof back, s));
    DO(cuStreamIsCapturing(s, &value)); HOLDS(value == 1); DO(cuStreamGetCaptureInfo_v2(s, &value, &id, &graph, 0, &count)); HOLDS(count == 1); DO(cuStreamGetCaptureInfo_v3(s, &value, &id, &graph, 0, 0, &count));
    DO(cuStreamEndCapture(s, &graph)); DO(cuGraphGetNodes(graph, 0, &count)); HOLDS(count == 2 && back[1] == 0);
    DO(cuGraphInstantiateWithFlags(&ready, graph, 0)); DO(cuGraphUpload(ready, s)); DO(cuGraphLaunch(ready, s)); HOLDS(doubled(N)); DO(cuGraphExecDestroy(ready)); DO(cuGraphDestroy(graph));
    DO(cuGraphCreate(&graph, 0));
    struct { P function; unsigned grid[3], block[3], shared; P *arguments, *extra; } kernel = {twice, {1, 1, 1}, {N, 1, 1}, 0, arguments, 0};
    struct { void (*function)(P); P data; } called = {counted, &done};
    a = filled();
    DO(cuGraphAddKernelNode_v2(&node, graph, 0, 0, &kernel)); DO(cuGraphAddHostNode(&ending, graph, &node, 1, &called)); DO(cuGraphAddEmptyNode(&node, graph, &ending, 1));
    DO(cuGraphClone(&graph, graph)); DO(cuGraphInstantiateWithParams(&ready, graph, 0)); DO(cuGraphLaunch(ready, s)); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(doubled(N) && done == 12);
    P outer, first, last;
    DO(cuGraphCreate(&outer, 0));
    struct { P to; S pitch; unsigned value, element; S width, height; } fill = {a, 0, 9, 4, N, 1};
    struct { char pool[88]; P access; S count, bytes; P pointer; } alloc = {{1}, 0, 0, 64, 0};
    DO(cuGraphAddMemsetNode(&first, outer, 0, 0, &fill, 0)); DO(cuGraphAddChildGraphNode(&last, outer, &first, 1, graph)); DO(cuGraphAddEventRecordNode(&node, outer, &last, 1, e)); DO(cuGraphAddEventWaitNode(&last, outer, &node, 1, e));
    DO(cuGraphAddMemAllocNode(&node, outer, &last, 1, &alloc)); HOLDS(alloc.pointer != 0); DO(cuGraphAddMemFreeNode(&last, outer, &node, 1, alloc.pointer));
    count = 1; DO(cuGraphGetRootNodes(outer, &node, &count)); HOLDS(count == 1 && node == first); DO(cuGraphNodeGetType(first, &value)); HOLDS(value == 2); DO(cuGraphDebugDotPrint(outer, "", 0)); DO(cuDeviceGraphMemTrim(0));
    DO(cuGraphInstantiateWithFlags(&ready, outer, 0)); DO(cuGraphLaunch(ready, s)); DO(cuMemcpyDtoH_v2(back, a, sizeof back)); HOLDS(back[0] == 24 && back[N - 1] == 24 && done == 13);
    DO(cuGraphCreate(&graph, 0)); DO(cuStreamBeginCaptureToGraph(s, graph, 0, 0, 0, 0)); DO(cuMemsetD8Async(a, 0, 4, s)); DO(cuStreamEndCapture(s, &graph)); DO(cuGraphGetNodes(graph, 0, &count)); HOLDS(count == 1);
    DO(cuEventDestroy_v2(e)); DO(cuEventDestroy_v2(f)); DO(cuStreamDestroy_v2(s)); SAYS(cuStreamDestroy_v2(s), 400);
}

static void names_part(void) {
    P function;
    const void *table;
    int status;
    DO(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status)); HOLDS(function == (P)cuMemAlloc_v2 && !status);
    DO(cuGetProcAddress("cuCtxCreate", &function, 13000, 0)); HOLDS(function == (P)cuCtxCreate_v4);
    DO(cuGetProcAddress("cuCtxCreate", &function, 11000, 0)); HOLDS(function == (P)cuCtxCreate_v2);
    SAYS(cuGetProcAddress("cuNothing", &function, 12000, 0), 500);
    SAYS(cuGetExportTable(&table, "0123456789abcdef"), 801);
}

static void *threaded(void *data) {
    for (int round = 0; round < 4; round++) {
        uint32_t own[N];
        P a;
        unsigned n = N;
        DO(cuMemAlloc_v2(&a, sizeof own));
        for (int i = 0; i < N; i++) own[i] = i + *(int *)data;
        DO(cuMemcpyHtoD_v2(a, own, sizeof own));
        P arguments[] = {&a, &n};
        DO(cuLaunchKernel(twice, 1, 1, 1, N, 1, 1, 0, 0, arguments, 0));
        DO(cuMemcpyDtoH_v2(own, a, sizeof own));
        for (int i = 0; i < N; i++) HOLDS(own[i] == 2 * (uint32_t)(i + *(int *)data) + 6);
        DO(cuMemFree_v2(a));
    }
    return 0;
}

static void threads_part(void) {
    pthread_t threads[6];
    int numbers[6];
    for (int i = 0; i < 6; i++) numbers[i] = 100 * i, pthread_create(&threads[i], 0, threaded, &numbers[i]);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
}

static void fork_part(void) {
    P a;
    int status;
    if (!fork()) { SAYS(cuMemAlloc_v2(&a, 4), 3); exit(7); }
    wait(&status);
    HOLDS(WEXITSTATUS(status) == 7);
    DO(cuMemAlloc_v2(&a, 4));
}

/* The process that serves this one: another child of the same parent. */
static int server(void) {
    char path[64], line[512];
    for (int pid = 1; pid < 1 << 22; pid++) {
        int parent, group, session;  // what removes the folder has a session of its own
        char state;
        sprintf(path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        int got = fgets(line, sizeof line, file) != 0;
        fclose(file);
        char *end = got ? strrchr(line, ')') : 0;
        if (end && sscanf(end + 1, " %c %d %d %d", &state, &parent, &group, &session) == 4 && parent == getppid() && session == getsid(0) && pid != getpid()) return pid;
    }
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "all";
    if (!strcmp(what, "early fork")) {  /* each process has a device of its own */
        int status, child = fork();
        start();
        threaded(&(int){child ? 1 : 2});
        if (!child) return 0;
        wait(&status);
        HOLDS(!status);
        puts("right early fork");
        return 0;
    }
    start();
    puts("started"); fflush(stdout);
    if (!strcmp(what, "killed")) raise(SIGKILL);
    if (!strcmp(what, "status")) return 42;
    if (!strcmp(what, "reads device memory")) return *(volatile int *)filled();
    if (!strcmp(what, "waits")) { pause(); return 5; }
    if (!strcmp(what, "launches and waits")) { threaded(&(int){1}); puts("launched"); fflush(stdout); pause(); return 5; }
    if (!strcmp(what, "endless")) { P k; DO(cuModuleGetFunction(&k, module, "forever")); int code = cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0); return code ? code : cuCtxSynchronize() == 702 ? 0 : 9; }
    if (!strcmp(what, "faults")) {
        P a = (P)0x123456789000, b;
        unsigned n = 1;
        P arguments[] = {&a, &n};
        DO(cuLaunchKernel(twice, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
        SAYS(cuCtxSynchronize(), 700); SAYS(cuMemAlloc_v2(&b, 4), 700);
        return 0;
    }
    if (!strcmp(what, "loses the server")) {
        P a;
        kill(server(), SIGKILL);
        SAYS(cuMemAlloc_v2(&a, 4), 999); SAYS(cuCtxSynchronize(), 999);
        return 0;
    }
    device_part(); puts("right device");
    memory_part(); puts("right memory");
    kernels_part(); puts("right kernels");
    streams_part(); puts("right streams");
    names_part(); puts("right names");
    threads_part(); puts("right threads");
    fflush(stdout);
    fork_part(); puts("right fork");
    DO(cuDevicePrimaryCtxReset_v2(0));
    puts("right reset");
    return 0;
}
