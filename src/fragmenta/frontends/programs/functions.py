"""The functions of CUDA's runtime and driver that programs can call.

A row is a function of CUDA's binary interface: its name, its parameters, and what it
does, as one expression of C++.  The expressions call what ``client/core.h`` declares.
The client is written from these tables, the documentation lists them, and the tests call
them.  ``[12]`` or ``[13]`` at the end of a row is the one CUDA whose runtime has it so.

Every other name of the two libraries is refused with a reason: :data:`REFUSED`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fragmenta.base.arrays.lazy_dataclass import dataclass

RUNTIME = """
# errors and versions
cudaGetLastError() = last(true)
cudaPeekAtLastError() = last(false)
const char *cudaGetErrorName(int code) = error_name(code)
const char *cudaGetErrorString(int code) = error_words(code)
cudaDriverGetVersion(int *v) = put(v, DRIVER_VERSION)
cudaRuntimeGetVersion(int *v) = put(v, CUDART_VERSION)

# the device
cudaGetDeviceCount(int *n) = ready() ? (put(n, 0), ready()) : put(n, 1)
cudaGetDevice(int *d) = put(d, 0)
cudaSetDevice(int d) = present(d)
cudaInitDevice(int d, unsigned, unsigned) = present(d)
cudaSetValidDevices(int *d, int n) = OK
cudaChooseDevice(int *d, const void *) = put(d, 0)
cudaGetDeviceProperties(void *p, int d) = properties(p, 13, d) [13]
cudaGetDeviceProperties_v2(void *p, int d) = properties(p, 12, d) [12]
cudaDeviceGetAttribute(int *v, int number, int d) = attribute(v, number, d)
cudaDeviceGetByPCIBusId(int *d, const char *) = put(d, 0)
cudaDeviceGetPCIBusId(char *p, int n, int d) = (snprintf(p, n, "0000:00:00.0"), present(d))
cudaDeviceSynchronize() = synchronize()
cudaThreadSynchronize() = synchronize()
cudaDeviceReset() = reset()
cudaThreadExit() = reset()
cudaDeviceCanAccessPeer(int *v, int, int) = put(v, 0)
cudaSetDeviceFlags(unsigned) = OK
cudaGetDeviceFlags(unsigned *f) = put(f, 0)
cudaDeviceGetLimit(size_t *v, int which) = limit(v, which)
cudaDeviceSetLimit(int which, size_t v) = set_limit(which, v)
cudaDeviceGetCacheConfig(int *v) = put(v, 0)
cudaDeviceSetCacheConfig(int) = OK
cudaDeviceGetSharedMemConfig(int *v) = put(v, 1)
cudaDeviceSetSharedMemConfig(int) = OK
cudaDeviceGetStreamPriorityRange(int *least, int *most) = (put(least, 0), put(most, -5), OK)
cudaDeviceFlushGPUDirectRDMAWrites(int, int) = OK
cudaCtxResetPersistingL2Cache() = OK
cudaProfilerStart() = OK
cudaProfilerStop() = OK

# memory
cudaMalloc(void **p, size_t n) = allocate(p, n, DEVICE)
cudaMallocHost(void **p, size_t n) = allocate(p, n, HOST)
cudaHostAlloc(void **p, size_t n, unsigned) = allocate(p, n, HOST)
cudaMallocManaged(void **p, size_t n, unsigned) = allocate(p, n, MANAGED)
cudaMallocPitch(void **p, size_t *pitch, size_t w, size_t h) = allocate_pitch(p, pitch, w, h)
cudaMalloc3D(Pitched *p, Extent e) = allocate_3d(p, e.x, e.y, e.z)
cudaFree(void *p) = release(p)
cudaFreeHost(void *p) = release_host(p)
cudaMallocAsync(void **p, size_t n, Stream *t) = allocate_async(p, n, t)
cudaMallocFromPoolAsync(void **p, size_t n, void *, Stream *t) = allocate_async(p, n, t)
cudaFreeAsync(void *p, Stream *s) = later(s, release, p)
cudaMemGetInfo(size_t *free, size_t *total) = memory_info(free, total)
cudaHostRegister(void *p, size_t n, unsigned) = host_register(p, n)
cudaHostUnregister(void *p) = host_unregister(p)
cudaHostGetDevicePointer(void **d, void *p, unsigned) = device_pointer(d, p)
cudaHostGetFlags(unsigned *f, void *) = put(f, 0)
cudaPointerGetAttributes(PointerAttributes *a, const void *p) = pointer_attributes(a, p)
cudaMemAdvise(const void *, size_t, int, int) = failed()
cudaMemAdvise_v2(const void *, size_t, int, uint64_t) = failed()
cudaMemPrefetchAsync(const void *, size_t, uint64_t, unsigned, Stream *) = failed()
cudaMemPrefetchAsync_v2(const void *, size_t, uint64_t, unsigned, Stream *) = failed()
cudaStreamAttachMemAsync(Stream *, void *, size_t, unsigned) = failed()
cudaDeviceGetDefaultMemPool(void **p, int d) = (put(p, (void *)1), present(d))
cudaDeviceGetMemPool(void **p, int d) = (put(p, (void *)1), present(d))
cudaDeviceSetMemPool(int d, void *) = present(d)
cudaMemPoolCreate(void **p, const void *) = put(p, (void *)2)
cudaMemPoolDestroy(void *) = OK
cudaMemPoolSetAttribute(void *, int, void *) = OK
cudaMemPoolGetAttribute(void *, int, uint64_t *v) = put(v, 0)
cudaMemPoolSetAccess(void *, const void *, size_t) = OK
cudaMemPoolTrimTo(void *, size_t) = OK

Channel cudaCreateChannelDesc(int x, int y, int z, int w, int f) = Channel{x, y, z, w, f}

# copies
cudaMemcpy(void *d, const void *s, size_t n, int kind) = copy(d, s, n, kind, nullptr)
cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, Stream *t) = copy(d, s, n, kind, t)
cudaMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int) = copy_2d(d, dp, s, sp, w, h, nullptr)
cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int, Stream *t) = copy_2d(d, dp, s, sp, w, h, t)
cudaMemcpy3D(const Copy3 *c) = copy_3d(c, nullptr)
cudaMemcpy3DAsync(const Copy3 *c, Stream *t) = copy_3d(c, t)
cudaMemcpyPeer(void *d, int, const void *s, int, size_t n) = copy(d, s, n, 4, nullptr)
cudaMemcpyPeerAsync(void *d, int, const void *s, int, size_t n, Stream *t) = copy(d, s, n, 4, t)
cudaMemset(void *d, int v, size_t n) = fill(d, v, 1, n, nullptr)
cudaMemsetAsync(void *d, int v, size_t n, Stream *t) = fill(d, v, 1, n, t)
cudaMemset2D(void *d, size_t p, int v, size_t w, size_t h) = fill_2d(d, p, v, 1, w, h, nullptr)
cudaMemset2DAsync(void *d, size_t p, int v, size_t w, size_t h, Stream *t) = fill_2d(d, p, v, 1, w, h, t)
cudaMemset3D(Pitched d, int v, Extent e) = fill_3d(d, v, e, nullptr)
cudaMemset3DAsync(Pitched d, int v, Extent e, Stream *t) = fill_3d(d, v, e, t)
cudaMemcpyToSymbol(const void *y, const void *s, size_t n, size_t at, int) = copy_to_symbol(y, s, n, at, nullptr)
cudaMemcpyToSymbolAsync(const void *y, const void *s, size_t n, size_t at, int, Stream *t) = copy_to_symbol(y, s, n, at, t)
cudaMemcpyFromSymbol(void *d, const void *y, size_t n, size_t at, int) = copy_from_symbol(d, y, n, at, nullptr)
cudaMemcpyFromSymbolAsync(void *d, const void *y, size_t n, size_t at, int, Stream *t) = copy_from_symbol(d, y, n, at, t)
cudaGetSymbolAddress(void **p, const void *y) = symbol(p, nullptr, y)
cudaGetSymbolSize(size_t *n, const void *y) = symbol(nullptr, n, y)

# what nvcc writes into programs
void **__cudaRegisterFatBinary(void *w) = register_fat_binary(w)
void __cudaRegisterFatBinaryEnd(void **) = (void)0
void __cudaUnregisterFatBinary(void **m) = unregister(m)
void __cudaRegisterFunction(void **m, const void *h, char *, const char *name, int, void *, void *, void *, void *, int *) = register_function(m, h, name)
void __cudaRegisterVar(void **m, void *h, char *, const char *name, int, size_t, int, int) = register_variable(m, h, name, nullptr)
void __cudaRegisterManagedVar(void **m, void **h, char *, const char *name, int, size_t, int, int) = register_variable(m, h, name, h)
void __cudaRegisterHostVar(void **, const char *, char *, size_t) = (void)0
char __cudaInitModule(void **) = (prepare_managed(), (char)1)
unsigned __cudaPushCallConfiguration(Three g, Three b, size_t shared, Stream *t) = push(g, b, shared, t)
__cudaPopCallConfiguration(Three *g, Three *b, size_t *shared, Stream **t) = pop(g, b, shared, t)
__cudaGetKernel(Function **k, const void *y) = kernel_of(k, y)
__cudaLaunchKernel(const void *k, Three g, Three b, void **a, size_t shared, Stream *t) = launch(k, g, b, a, shared, t)

# kernels
cudaLaunchKernel(const void *k, Three g, Three b, void **a, size_t shared, Stream *t) = launch(k, g, b, a, shared, t)
cudaLaunchKernelExC(const Config *c, const void *k, void **a) = launch_config(c, k, a)
cudaLaunchCooperativeKernel(const void *k, Three g, Three b, void **a, size_t shared, Stream *t) = launch(k, g, b, a, shared, t, true)
cudaFuncGetAttributes(FunctionAttributes *f, const void *k) = function_attributes(f, k)
cudaFuncSetAttribute(const void *k, int which, int v) = set_function_attribute(k, which, v)
cudaFuncSetCacheConfig(const void *, int) = OK
cudaFuncSetSharedMemConfig(const void *, int) = OK
cudaFuncGetName(const char **name, const void *k) = function_name(name, k)
cudaFuncGetParamCount(const void *k, size_t *n) = parameter_count(k, n)
cudaFuncGetParamInfo(const void *k, size_t i, size_t *at, size_t *n) = parameter_info(k, i, at, n)
cudaGetFuncBySymbol(Function **k, const void *y) = kernel_of(k, y)
cudaGetKernel(Function **k, const void *y) = kernel_of(k, y)
cudaKernelSetAttributeForDevice(Function *k, int which, int v, int) = set_function_attribute(k, which, v)
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *k, int threads, size_t shared) = occupancy(n, k, threads, shared)
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *k, int threads, size_t shared, unsigned) = occupancy(n, k, threads, shared)
cudaOccupancyAvailableDynamicSMemPerBlock(size_t *n, const void *k, int blocks, int threads) = dynamic_memory(n, k, blocks, threads)
cudaOccupancyMaxActiveClusters(int *n, const void *k, const Config *c) = clusters(n, k, c->block, c->shared, c->attributes, c->count)
cudaOccupancyMaxPotentialClusterSize(int *n, const void *, const Config *) = put(n, 8)
cudaLibraryLoadData(Module **m, const void *image, int *, void **, unsigned, void *, void **, unsigned) = load(m, image)
cudaLibraryLoadFromFile(Module **m, const char *path, int *, void **, unsigned, void *, void **, unsigned) = load_file(m, path)
cudaLibraryUnload(Module *m) = unload(m)
cudaLibraryGetKernel(Function **k, Module *m, const char *name) = find_kernel(k, m, name)
cudaLibraryGetKernelCount(unsigned *n, Module *m) = count_kernels(n, m)
cudaLibraryGetGlobal(void **p, size_t *n, Module *m, const char *name) = find_variable(p, n, m, name)
cudaLibraryGetManaged(void **p, size_t *n, Module *m, const char *name) = find_variable(p, n, m, name)

# streams
cudaStreamCreate(Stream **t) = create(t, 0, 0)
cudaStreamCreateWithFlags(Stream **t, unsigned f) = create(t, f, 0)
cudaStreamCreateWithPriority(Stream **t, unsigned f, int p) = create(t, f, p)
cudaStreamDestroy(Stream *t) = destroy(t)
cudaStreamSynchronize(Stream *t) = synchronize(t)
cudaStreamQuery(Stream *t) = synchronize(t)
cudaStreamWaitEvent(Stream *t, Event *e, unsigned) = wait(t, e)
cudaStreamGetFlags(Stream *t, unsigned *f) = stream_flags(f, t)
cudaStreamGetPriority(Stream *t, int *p) = stream_priority(p, t)
cudaStreamGetId(Stream *t, unsigned long long *n) = stream_number(n, t)
cudaStreamGetDevice(Stream *, int *d) = put(d, 0)
cudaStreamSetAttribute(Stream *, int, const void *) = OK
cudaStreamCopyAttributes(Stream *, Stream *) = OK
cudaStreamAddCallback(Stream *t, Callback f, void *data, unsigned) = call_back(t, f, data)
cudaLaunchHostFunc(Stream *t, void (*f)(void *), void *data) = call_host(t, f, data)
cudaStreamBeginCapture(Stream *t, int mode) = begin_capture(t, nullptr, mode)
cudaStreamBeginCaptureToGraph(Stream *t, Graph *g, Node *const *, const void *, size_t, int mode) = begin_capture(t, g, mode)
cudaStreamEndCapture(Stream *t, Graph **g) = end_capture(t, g)
cudaStreamIsCapturing(Stream *t, int *status) = capture_status(t, status, nullptr, nullptr, nullptr, nullptr)
cudaStreamGetCaptureInfo(Stream *t, int *status, unsigned long long *n, Graph **g, const Node ***after, const void **, size_t *count) = capture_status(t, status, n, g, after, count) [13]
cudaStreamGetCaptureInfo(Stream *t, int *status, unsigned long long *n) = capture_status(t, status, n, nullptr, nullptr, nullptr) [12]
cudaStreamGetCaptureInfo_v2(Stream *t, int *status, unsigned long long *n, Graph **g, const Node ***after, size_t *count) = capture_status(t, status, n, g, after, count) [12]
cudaStreamGetCaptureInfo_v3(Stream *t, int *status, unsigned long long *n, Graph **g, const Node ***after, const void **, size_t *count) = capture_status(t, status, n, g, after, count) [12]
cudaThreadExchangeStreamCaptureMode(int *mode) = exchange_mode(mode)

# events
cudaEventCreate(Event **e) = create(e, 0)
cudaEventCreateWithFlags(Event **e, unsigned f) = create(e, f)
cudaEventDestroy(Event *e) = destroy(e)
cudaEventRecord(Event *e, Stream *t) = record(e, t)
cudaEventRecordWithFlags(Event *e, Stream *t, unsigned) = record(e, t)
cudaEventQuery(Event *e) = query(e)
cudaEventSynchronize(Event *e) = query(e)
cudaEventElapsedTime(float *ms, Event *from, Event *to) = elapsed(ms, from, to)
cudaEventElapsedTime_v2(float *ms, Event *from, Event *to) = elapsed(ms, from, to)

# graphs
cudaGraphCreate(Graph **g, unsigned) = create(g)
cudaGraphDestroy(Graph *g) = destroy(g)
cudaGraphClone(Graph **g, Graph *of) = clone(g, of)
cudaGraphInstantiate(Exec **x, Graph *g, unsigned long long) = instantiate(x, g)
cudaGraphInstantiateWithFlags(Exec **x, Graph *g, unsigned long long) = instantiate(x, g)
cudaGraphInstantiateWithParams(Exec **x, Graph *g, void *) = instantiate(x, g)
cudaGraphExecDestroy(Exec *x) = destroy(x)
cudaGraphExecUpdate(Exec *x, Graph *g, void *result) = update(x, g)
cudaGraphUpload(Exec *, Stream *) = OK
cudaGraphLaunch(Exec *x, Stream *t) = run(x, t)
cudaGraphAddDependencies(Graph *g, Node *const *from, Node *const *to, size_t n) = add_edges(g, from, to, n) [12]
cudaGraphAddDependencies(Graph *g, Node *const *from, Node *const *to, const void *, size_t n) = add_edges(g, from, to, n) [13]
cudaGraphAddEmptyNode(Node **x, Graph *g, Node *const *after, size_t n) = add_empty(x, g, after, n)
cudaGraphAddKernelNode(Node **x, Graph *g, Node *const *after, size_t n, const KernelNode *w) = add_kernel(x, g, after, n, w)
cudaGraphAddMemcpyNode(Node **x, Graph *g, Node *const *after, size_t n, const Copy3 *w) = add_copy(x, g, after, n, w)
cudaGraphAddMemcpyNode1D(Node **x, Graph *g, Node *const *after, size_t n, void *d, const void *s, size_t bytes, int) = add_copy_1d(x, g, after, n, d, s, bytes)
cudaGraphAddMemsetNode(Node **x, Graph *g, Node *const *after, size_t n, const MemsetNode *w) = add_fill(x, g, after, n, w)
cudaGraphAddHostNode(Node **x, Graph *g, Node *const *after, size_t n, const HostNode *w) = add_host(x, g, after, n, w)
cudaGraphAddChildGraphNode(Node **x, Graph *g, Node *const *after, size_t n, Graph *child) = add_child(x, g, after, n, child)
cudaGraphAddMemAllocNode(Node **x, Graph *g, Node *const *after, size_t n, AllocNode *w) = add_alloc(x, g, after, n, w)
cudaGraphAddMemFreeNode(Node **x, Graph *g, Node *const *after, size_t n, void *p) = add_free(x, g, after, n, p)
cudaGraphAddEventRecordNode(Node **x, Graph *g, Node *const *after, size_t n, Event *e) = add_record(x, g, after, n, e)
cudaGraphAddEventWaitNode(Node **x, Graph *g, Node *const *after, size_t n, Event *) = add_empty(x, g, after, n)
cudaGraphKernelNodeSetParams(Node *x, const KernelNode *w) = set_kernel(nullptr, x, w)
cudaGraphMemcpyNodeSetParams(Node *x, const Copy3 *w) = set_copy(nullptr, x, w)
cudaGraphMemsetNodeSetParams(Node *x, const MemsetNode *w) = set_fill(nullptr, x, w)
cudaGraphHostNodeSetParams(Node *x, const HostNode *w) = set_host(nullptr, x, w)
cudaGraphExecKernelNodeSetParams(Exec *e, Node *x, const KernelNode *w) = set_kernel(e, x, w)
cudaGraphExecMemcpyNodeSetParams(Exec *e, Node *x, const Copy3 *w) = set_copy(e, x, w)
cudaGraphExecMemcpyNodeSetParams1D(Exec *e, Node *x, void *d, const void *s, size_t n, int) = set_copy_1d(e, x, d, s, n)
cudaGraphExecMemsetNodeSetParams(Exec *e, Node *x, const MemsetNode *w) = set_fill(e, x, w)
cudaGraphExecHostNodeSetParams(Exec *e, Node *x, const HostNode *w) = set_host(e, x, w)
cudaGraphExecChildGraphNodeSetParams(Exec *e, Node *x, Graph *child) = set_child(e, x, child)
cudaGraphGetNodes(Graph *g, Node **x, size_t *n) = get_nodes(g, x, n, false)
cudaGraphGetRootNodes(Graph *g, Node **x, size_t *n) = get_nodes(g, x, n, true)
cudaGraphGetEdges(Graph *g, Node **from, Node **to, size_t *n) = get_edges(g, from, to, n) [12]
cudaGraphGetEdges(Graph *g, Node **from, Node **to, void *, size_t *n) = get_edges(g, from, to, n) [13]
cudaGraphNodeGetDependencies(Node *x, Node **found, size_t *n) = get_after(x, found, n) [12]
cudaGraphNodeGetDependencies(Node *x, Node **found, void *, size_t *n) = get_after(x, found, n) [13]
cudaGraphNodeGetType(Node *x, int *type) = node_type(type, x)
cudaGraphDebugDotPrint(Graph *, const char *, unsigned) = OK
cudaDeviceGraphMemTrim(int) = OK

# functions by name
cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long, int *status) = entry_point(name, f, CUDART_VERSION, status)
cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version, unsigned long long, int *status) = entry_point(name, f, version, status)
"""

DRIVER = """
# errors and versions
cuInit(unsigned) = ready()
cuDriverGetVersion(int *v) = put(v, DRIVER_VERSION)
cuGetErrorName(int code, const char **text) = put(text, driver_error_name(code))
cuGetErrorString(int code, const char **text) = put(text, error_words(code))

# the device
cuDeviceGetCount(int *n) = ready() ? ready() : put(n, 1)
cuDeviceGet(int *d, int number) = present(number) ? present(number) : put(d, number)
cuDeviceGetName(char *name, int n, int) = device_name(name, n)
cuDeviceGetAttribute(int *v, int number, int d) = attribute(v, number, d)
cuDeviceTotalMem_v2(size_t *n, int) = total_memory(n)
cuDeviceComputeCapability(int *major, int *minor, int d) = (attribute(major, 75, d), attribute(minor, 76, d))
cuDeviceGetUuid(char *uuid, int d) = (memset(uuid, 0, 16), present(d))
cuDeviceGetUuid_v2(char *uuid, int d) = (memset(uuid, 0, 16), present(d))
cuDeviceCanAccessPeer(int *v, int, int) = put(v, 0)
cuDeviceGetPCIBusId(char *p, int n, int d) = (snprintf(p, n, "0000:00:00.0"), present(d))
cuDeviceGetByPCIBusId(int *d, const char *) = put(d, 0)
cuDeviceGetDefaultMemPool(void **p, int d) = (put(p, (void *)1), present(d))
cuDeviceGetMemPool(void **p, int d) = (put(p, (void *)1), present(d))
cuDeviceSetMemPool(int d, void *) = present(d)
cuDevicePrimaryCtxRetain(void **c, int d) = (put(c, &state), present(d))
cuDevicePrimaryCtxRelease_v2(int d) = present(d)
cuDevicePrimaryCtxReset_v2(int d) = reset()
cuDevicePrimaryCtxGetState(int, unsigned *f, int *active) = (put(f, 0), put(active, 1))
cuDevicePrimaryCtxSetFlags_v2(int d, unsigned) = present(d)
cuCtxCreate_v2(void **c, unsigned, int d) = (put(c, &state), present(d))
cuCtxCreate_v3(void **c, void *, int, unsigned, int d) = (put(c, &state), present(d))
cuCtxCreate_v4(void **c, void *, unsigned, int d) = (put(c, &state), present(d))
cuCtxDestroy_v2(void *) = OK
cuCtxAttach(void **c, unsigned) = put(c, &state)
cuCtxDetach(void *) = OK
cuCtxPushCurrent_v2(void *) = ready()
cuCtxPopCurrent_v2(void **c) = (put(c, &state), OK)
cuCtxSetCurrent(void *) = ready()
cuCtxGetCurrent(void **c) = put(c, state.file < 0 ? nullptr : &state)
cuCtxGetDevice(int *d) = put(d, 0)
cuCtxGetDevice_v2(int *d, void *) = put(d, 0)
cuCtxGetFlags(unsigned *f) = put(f, 0)
cuCtxSetFlags(unsigned) = OK
cuCtxGetApiVersion(void *, unsigned *v) = put(v, DRIVER_VERSION)
cuCtxGetId(void *, unsigned long long *n) = put(n, 1)
cuCtxSynchronize() = synchronize()
cuCtxSynchronize_v2(void *) = synchronize()
cuCtxGetLimit(size_t *v, int which) = limit(v, which)
cuCtxSetLimit(int which, size_t v) = set_limit(which, v)
cuCtxGetCacheConfig(int *v) = put(v, 0)
cuCtxSetCacheConfig(int) = OK
cuCtxGetSharedMemConfig(int *v) = put(v, 1)
cuCtxSetSharedMemConfig(int) = OK
cuCtxResetPersistingL2Cache() = OK
cuFlushGPUDirectRDMAWrites(int, int) = OK
cuCtxGetStreamPriorityRange(int *least, int *most) = (put(least, 0), put(most, -5), OK)
cuProfilerStart() = OK
cuProfilerStop() = OK

# memory
cuMemAlloc_v2(void **p, size_t n) = n ? allocate(p, n, DEVICE) : INVALID_VALUE
cuMemAllocHost_v2(void **p, size_t n) = allocate(p, n, HOST)
cuMemHostAlloc(void **p, size_t n, unsigned) = allocate(p, n, HOST)
cuMemAllocManaged(void **p, size_t n, unsigned) = allocate(p, n, MANAGED)
cuMemAllocPitch_v2(void **p, size_t *pitch, size_t w, size_t h, unsigned) = allocate_pitch(p, pitch, w, h)
cuMemAllocAsync(void **p, size_t n, Stream *t) = allocate_async(p, n, t)
cuMemAllocFromPoolAsync(void **p, size_t n, void *, Stream *t) = allocate_async(p, n, t)
cuMemFree_v2(void *p) = release(p)
cuMemFreeHost(void *p) = release_host(p)
cuMemFreeAsync(void *p, Stream *s) = later(s, release, p)
cuMemGetInfo_v2(size_t *free, size_t *total) = memory_info(free, total)
cuMemGetAddressRange_v2(void **p, size_t *n, const void *at) = range(p, n, at)
cuMemHostRegister_v2(void *p, size_t n, unsigned) = host_register(p, n)
cuMemHostUnregister(void *p) = host_unregister(p)
cuMemHostGetDevicePointer_v2(void **d, void *p, unsigned) = device_pointer(d, p)
cuMemHostGetFlags(unsigned *f, void *) = put(f, 0)
cuPointerGetAttribute(void *v, int which, const void *p) = pointer_attribute(v, which, p)
cuPointerGetAttributes(unsigned n, int *which, void **v, const void *p) = pointer_attributes(n, which, v, p)
cuMemAdvise(const void *, size_t, int, int) = failed()
cuMemAdvise_v2(const void *, size_t, int, uint64_t) = failed()
cuMemPrefetchAsync(const void *, size_t, int, Stream *) = failed()
cuMemPrefetchAsync_v2(const void *, size_t, uint64_t, unsigned, Stream *) = failed()
cuStreamAttachMemAsync(Stream *, void *, size_t, unsigned) = failed()
cuMemPoolCreate(void **p, const void *) = put(p, (void *)2)
cuMemPoolDestroy(void *) = OK
cuMemPoolSetAttribute(void *, int, void *) = OK
cuMemPoolGetAttribute(void *, int, uint64_t *v) = put(v, 0)
cuMemPoolSetAccess(void *, const void *, size_t) = OK
cuMemGetDefaultMemPool(void **p, const void *, int) = put(p, (void *)1)
cuMemGetMemPool(void **p, const void *, int) = put(p, (void *)1)
cuMemPoolTrimTo(void *, size_t) = OK

# copies
cuMemcpy(void *d, const void *s, size_t n) = copy(d, s, n, 4, nullptr)
cuMemcpyAsync(void *d, const void *s, size_t n, Stream *t) = copy(d, s, n, 4, t)
cuMemcpyHtoD_v2(void *d, const void *s, size_t n) = copy(d, s, n, 1, nullptr)
cuMemcpyHtoDAsync_v2(void *d, const void *s, size_t n, Stream *t) = copy(d, s, n, 1, t)
cuMemcpyDtoH_v2(void *d, const void *s, size_t n) = copy(d, s, n, 2, nullptr)
cuMemcpyDtoHAsync_v2(void *d, const void *s, size_t n, Stream *t) = copy(d, s, n, 2, t)
cuMemcpyDtoD_v2(void *d, const void *s, size_t n) = copy(d, s, n, 3, nullptr)
cuMemcpyDtoDAsync_v2(void *d, const void *s, size_t n, Stream *t) = copy(d, s, n, 3, t)
cuMemcpy2D_v2(const DriverCopy2 *c) = copy_driver_2d(c, nullptr)
cuMemcpy2DUnaligned_v2(const DriverCopy2 *c) = copy_driver_2d(c, nullptr)
cuMemcpy2DAsync_v2(const DriverCopy2 *c, Stream *t) = copy_driver_2d(c, t)
cuMemcpy3D_v2(const DriverCopy3 *c) = copy_driver_3d(c, nullptr)
cuMemcpy3DAsync_v2(const DriverCopy3 *c, Stream *t) = copy_driver_3d(c, t)
cuMemsetD8_v2(void *d, unsigned char v, size_t n) = fill(d, v, 1, n, nullptr)
cuMemsetD16_v2(void *d, unsigned short v, size_t n) = fill(d, v, 2, n, nullptr)
cuMemsetD32_v2(void *d, unsigned v, size_t n) = fill(d, v, 4, n, nullptr)
cuMemsetD8Async(void *d, unsigned char v, size_t n, Stream *t) = fill(d, v, 1, n, t)
cuMemsetD16Async(void *d, unsigned short v, size_t n, Stream *t) = fill(d, v, 2, n, t)
cuMemsetD32Async(void *d, unsigned v, size_t n, Stream *t) = fill(d, v, 4, n, t)
cuMemsetD2D8_v2(void *d, size_t p, unsigned char v, size_t w, size_t h) = fill_2d(d, p, v, 1, w, h, nullptr)
cuMemsetD2D32_v2(void *d, size_t p, unsigned v, size_t w, size_t h) = fill_2d(d, p, v, 4, w, h, nullptr)
cuMemsetD2D16_v2(void *d, size_t p, unsigned short v, size_t w, size_t h) = fill_2d(d, p, v, 2, w, h, nullptr)
cuMemsetD2D8Async(void *d, size_t p, unsigned char v, size_t w, size_t h, Stream *t) = fill_2d(d, p, v, 1, w, h, t)
cuMemsetD2D16Async(void *d, size_t p, unsigned short v, size_t w, size_t h, Stream *t) = fill_2d(d, p, v, 2, w, h, t)
cuMemsetD2D32Async(void *d, size_t p, unsigned v, size_t w, size_t h, Stream *t) = fill_2d(d, p, v, 4, w, h, t)

# kernels
cuModuleLoad(Module **m, const char *path) = load_file(m, path)
cuModuleLoadData(Module **m, const void *image) = load(m, image)
cuModuleLoadDataEx(Module **m, const void *image, unsigned, int *, void **) = load(m, image)
cuModuleLoadFatBinary(Module **m, const void *image) = load(m, image)
cuModuleUnload(Module *m) = unload(m)
cuModuleGetFunction(Function **k, Module *m, const char *name) = find_kernel(k, m, name)
cuModuleGetFunctionCount(unsigned *n, Module *m) = count_kernels(n, m)
cuModuleGetGlobal_v2(void **p, size_t *n, Module *m, const char *name) = find_variable(p, n, m, name)
cuModuleGetLoadingMode(int *mode) = put(mode, 2)
cuLibraryLoadData(Module **m, const void *image, int *, void **, unsigned, void *, void **, unsigned) = load(m, image)
cuLibraryLoadFromFile(Module **m, const char *path, int *, void **, unsigned, void *, void **, unsigned) = load_file(m, path)
cuLibraryUnload(Module *m) = unload(m)
cuLibraryGetKernel(Function **k, Module *m, const char *name) = find_kernel(k, m, name)
cuLibraryGetKernelCount(unsigned *n, Module *m) = count_kernels(n, m)
cuLibraryGetModule(Module **n, Module *m) = put(n, m)
cuLibraryGetGlobal(void **p, size_t *n, Module *m, const char *name) = find_variable(p, n, m, name)
cuLibraryGetManaged(void **p, size_t *n, Module *m, const char *name) = find_variable(p, n, m, name)
cuKernelGetFunction(Function **f, Function *k) = put(f, k)
cuKernelGetAttribute(int *v, int which, Function *k, int) = function_attribute(v, which, k)
cuKernelSetAttribute(int which, int v, Function *k, int) = set_function_attribute(k, which, v)
cuKernelGetName(const char **name, Function *k) = function_name(name, k)
cuKernelGetParamInfo(Function *k, size_t i, size_t *at, size_t *n) = parameter_info(k, i, at, n)
cuKernelGetParamCount(Function *k, size_t *n) = parameter_count(k, n)
cuKernelGetLibrary(Module **m, Function *k) = function_module(m, k)
cuKernelSetCacheConfig(Function *, int, int) = OK
cuFuncGetAttribute(int *v, int which, Function *k) = function_attribute(v, which, k)
cuFuncSetAttribute(Function *k, int which, int v) = set_function_attribute(k, which, v)
cuFuncSetCacheConfig(Function *, int) = OK
cuFuncSetSharedMemConfig(Function *, int) = OK
cuFuncGetModule(Module **m, Function *k) = function_module(m, k)
cuFuncGetName(const char **name, Function *k) = function_name(name, k)
cuFuncGetParamInfo(Function *k, size_t i, size_t *at, size_t *n) = parameter_info(k, i, at, n)
cuFuncGetParamCount(Function *k, size_t *n) = parameter_count(k, n)
cuFuncIsLoaded(int *v, Function *) = put(v, 1)
cuFuncLoad(Function *) = OK
cuLaunchKernel(Function *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *t, void **a, void **extra) = launch(k, {gx, gy, gz}, {bx, by, bz}, a, shared, t, false, extra)
cuLaunchKernelEx(const DriverConfig *c, Function *k, void **a, void **extra) = launch_driver_config(c, k, a, extra)
cuLaunchCooperativeKernel(Function *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *t, void **a) = launch(k, {gx, gy, gz}, {bx, by, bz}, a, shared, t, true)
cuFuncSetBlockShape(Function *k, int x, int y, int z) = set_block(k, x, y, z)
cuFuncSetSharedSize(Function *k, unsigned n) = set_shared(k, n)
cuParamSetSize(Function *k, unsigned n) = set_parameters_size(k, n)
cuParamSeti(Function *k, int at, unsigned v) = set_parameter(k, at, &v, 4)
cuParamSetf(Function *k, int at, float v) = set_parameter(k, at, &v, 4)
cuParamSetv(Function *k, int at, void *v, unsigned n) = set_parameter(k, at, v, n)
cuLaunch(Function *k) = launch_set(k, 1, 1, nullptr)
cuLaunchGrid(Function *k, int w, int h) = launch_set(k, w, h, nullptr)
cuLaunchGridAsync(Function *k, int w, int h, Stream *t) = launch_set(k, w, h, t)
cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, Function *k, int threads, size_t shared) = occupancy(n, k, threads, shared)
cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, Function *k, int threads, size_t shared, unsigned) = occupancy(n, k, threads, shared)
cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Function *k, size_t (*of)(int), size_t shared, int most) = potential_block(grid, block, k, of, shared, most)
cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, Function *k, size_t (*of)(int), size_t shared, int most, unsigned) = potential_block(grid, block, k, of, shared, most)
cuOccupancyAvailableDynamicSMemPerBlock(size_t *n, Function *k, int blocks, int threads) = dynamic_memory(n, k, blocks, threads)
cuOccupancyMaxActiveClusters(int *n, Function *k, const DriverConfig *c) = clusters(n, k, c->block, c->shared, c->attributes, c->count)
cuOccupancyMaxPotentialClusterSize(int *n, Function *, const DriverConfig *) = put(n, 8)
cuTensorMapEncodeTiled(void *m, int type, unsigned rank, void *p, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) = encode_tiled(m, type, rank, p, sizes, strides, box, steps, interleave, swizzle, promotion, fill)
cuTensorMapEncodeIm2col(void *m, int type, unsigned rank, void *p, const uint64_t *sizes, const uint64_t *strides, const int *lower, const int *upper, unsigned channels, unsigned pixels, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) = encode_im2col(m, type, rank, p, sizes, strides, lower, upper, channels, pixels, steps, interleave, swizzle, promotion, fill)
cuTensorMapReplaceAddress(void *m, void *p) = replace_address(m, p)

# streams
cuStreamCreate(Stream **t, unsigned f) = create(t, f, 0)
cuStreamCreateWithPriority(Stream **t, unsigned f, int p) = create(t, f, p)
cuStreamDestroy_v2(Stream *t) = destroy(t)
cuStreamSynchronize(Stream *t) = synchronize(t)
cuStreamQuery(Stream *t) = synchronize(t)
cuStreamWaitEvent(Stream *t, Event *e, unsigned) = wait(t, e)
cuStreamGetFlags(Stream *t, unsigned *f) = stream_flags(f, t)
cuStreamGetPriority(Stream *t, int *p) = stream_priority(p, t)
cuStreamGetId(Stream *t, unsigned long long *n) = stream_number(n, t)
cuStreamGetCtx(Stream *, void **c) = put(c, &state)
cuStreamGetDevice(Stream *, int *d) = put(d, 0)
cuStreamSetAttribute(Stream *, int, const void *) = OK
cuStreamAddCallback(Stream *t, Callback f, void *data, unsigned) = call_back(t, f, data)
cuLaunchHostFunc(Stream *t, void (*f)(void *), void *data) = call_host(t, f, data)
cuStreamBeginCapture_v2(Stream *t, int mode) = begin_capture(t, nullptr, mode)
cuStreamBeginCaptureToGraph(Stream *t, Graph *g, Node *const *, const void *, size_t, int mode) = begin_capture(t, g, mode)
cuStreamEndCapture(Stream *t, Graph **g) = end_capture(t, g)
cuStreamIsCapturing(Stream *t, int *status) = capture_status(t, status, nullptr, nullptr, nullptr, nullptr)
cuStreamGetCaptureInfo_v2(Stream *t, int *status, unsigned long long *n, Graph **g, const Node ***after, size_t *count) = capture_status(t, status, n, g, after, count)
cuStreamGetCaptureInfo_v3(Stream *t, int *status, unsigned long long *n, Graph **g, const Node ***after, const void **, size_t *count) = capture_status(t, status, n, g, after, count)
cuThreadExchangeStreamCaptureMode(int *mode) = exchange_mode(mode)

# events
cuEventCreate(Event **e, unsigned f) = create(e, f)
cuEventDestroy_v2(Event *e) = destroy(e)
cuEventRecord(Event *e, Stream *t) = record(e, t)
cuEventRecordWithFlags(Event *e, Stream *t, unsigned) = record(e, t)
cuEventQuery(Event *e) = query(e)
cuEventSynchronize(Event *e) = query(e)
cuEventElapsedTime(float *ms, Event *from, Event *to) = elapsed(ms, from, to)
cuEventElapsedTime_v2(float *ms, Event *from, Event *to) = elapsed(ms, from, to)

# graphs
cuGraphCreate(Graph **g, unsigned) = create(g)
cuGraphDestroy(Graph *g) = destroy(g)
cuGraphClone(Graph **g, Graph *of) = clone(g, of)
cuGraphInstantiateWithFlags(Exec **x, Graph *g, unsigned long long) = instantiate(x, g)
cuGraphInstantiateWithParams(Exec **x, Graph *g, void *) = instantiate(x, g)
cuGraphExecDestroy(Exec *x) = destroy(x)
cuGraphUpload(Exec *, Stream *) = OK
cuGraphLaunch(Exec *x, Stream *t) = run(x, t)
cuGraphAddEmptyNode(Node **x, Graph *g, Node *const *after, size_t n) = add_empty(x, g, after, n)
cuGraphAddKernelNode_v2(Node **x, Graph *g, Node *const *after, size_t n, const KernelNode *w) = add_kernel(x, g, after, n, w)
cuGraphAddHostNode(Node **x, Graph *g, Node *const *after, size_t n, const HostNode *w) = add_host(x, g, after, n, w)
cuGraphAddMemsetNode(Node **x, Graph *g, Node *const *after, size_t n, const MemsetNode *w, void *) = add_fill(x, g, after, n, w)
cuGraphAddChildGraphNode(Node **x, Graph *g, Node *const *after, size_t n, Graph *child) = add_child(x, g, after, n, child)
cuGraphAddMemAllocNode(Node **x, Graph *g, Node *const *after, size_t n, AllocNode *w) = add_alloc(x, g, after, n, w)
cuGraphAddMemFreeNode(Node **x, Graph *g, Node *const *after, size_t n, void *) = add_empty(x, g, after, n)
cuGraphAddEventRecordNode(Node **x, Graph *g, Node *const *after, size_t n, Event *e) = add_record(x, g, after, n, e)
cuGraphAddEventWaitNode(Node **x, Graph *g, Node *const *after, size_t n, Event *) = add_empty(x, g, after, n)
cuGraphGetNodes(Graph *g, Node **x, size_t *n) = get_nodes(g, x, n, false)
cuGraphGetRootNodes(Graph *g, Node **x, size_t *n) = get_nodes(g, x, n, true)
cuGraphNodeGetType(Node *x, int *type) = node_type(type, x)
cuGraphDebugDotPrint(Graph *, const char *, unsigned) = OK
cuDeviceGraphMemTrim(int) = OK

# functions by name
cuGetProcAddress(const char *name, void **f, int version, uint64_t) = entry_point(name, f, version, nullptr)
cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t, int *status) = entry_point(name, f, version, status)
cuGetExportTable(const void **table, const void *) = private_table(table, __builtin_return_address(0))
"""

DRIVER_VERSION = 13040
"""The CUDA whose PTX the driver takes; compilers of Python warn of an older one."""

STATIC = (
    "the program or a library of it has the CUDA runtime in itself, which talks to the "
    "driver through private tables; link the program with nvcc -cudart shared, or give "
    "fragmenta run its .cu file"
)
"""What is said to a program with the static runtime."""

CUTE_DSL = """
cuDeviceGet cuKernelGetAttribute cuLibraryGetGlobal cuLibraryGetKernel
cuLibraryGetKernelCount cuLibraryGetManaged cuLibraryGetModule cuLibraryLoadData
cuLibraryLoadFromFile cuLibraryUnload cuTensorMapEncodeTiled cudaDeviceGetAttribute
cudaDeviceSynchronize cudaEventCreate cudaEventDestroy cudaEventElapsedTime
cudaEventRecord cudaFree cudaFreeAsync cudaFreeHost cudaFuncSetAttribute cudaGetDevice
cudaGetDeviceCount cudaGraphDestroy cudaGraphExecDestroy cudaGraphInstantiate
cudaGraphLaunch cudaKernelSetAttributeForDevice cudaLaunchKernel cudaLaunchKernelEx
cudaLibraryGetGlobal cudaLibraryGetKernel cudaLibraryGetKernelCount
cudaLibraryGetManaged cudaLibraryLoadData cudaLibraryLoadFromFile cudaLibraryUnload
cudaMalloc cudaMallocAsync cudaMallocHost cudaMallocManaged cudaMemcpy cudaMemcpyAsync
cudaMemset cudaMemsetAsync cudaOccupancyMaxActiveBlocksPerMultiprocessor
cudaProfilerStart cudaProfilerStop cudaSetDevice cudaStreamAddCallback
cudaStreamBeginCapture cudaStreamCreate cudaStreamDestroy cudaStreamEndCapture
cudaStreamSynchronize cudaStreamWaitEvent
"""
"""What the CuTe DSL compiles calls these with ``_`` before the name, in the libraries
that ``CUTE_DSL_LIBS`` names.  NVIDIA's has the static runtime in it."""

REFUSED = """
textures, surfaces and their arrays are not supported | runtime | cudaMallocArray cudaMalloc3DArray cudaMallocMipmappedArray cudaFreeArray cudaFreeMipmappedArray cudaGetMipmappedArrayLevel cudaArrayGetInfo cudaArrayGetPlane cudaArrayGetMemoryRequirements cudaArrayGetSparseProperties cudaMipmappedArrayGetMemoryRequirements cudaMipmappedArrayGetSparseProperties cudaCreateTextureObject cudaDestroyTextureObject cudaGetTextureObjectResourceDesc cudaGetTextureObjectResourceViewDesc cudaGetTextureObjectTextureDesc cudaCreateSurfaceObject cudaDestroySurfaceObject cudaGetSurfaceObjectResourceDesc cudaGetChannelDesc cudaDeviceGetTexture1DLinearMaxWidth cudaMemcpy2DToArray cudaMemcpy2DToArrayAsync cudaMemcpy2DFromArray cudaMemcpy2DFromArrayAsync cudaMemcpy2DArrayToArray cudaMemcpyToArray cudaMemcpyToArrayAsync cudaMemcpyFromArray cudaMemcpyFromArrayAsync cudaMemcpyArrayToArray
textures, surfaces and their arrays are not supported | driver | cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayDestroy cuArrayGetDescriptor_v2 cuArray3DGetDescriptor_v2 cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMipmappedArrayGetLevel cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuSurfObjectCreate cuSurfObjectDestroy cuModuleGetTexRef cuModuleGetSurfRef cuMemcpyHtoA_v2 cuMemcpyAtoH_v2 cuMemcpyDtoA_v2 cuMemcpyAtoD_v2 cuMemcpyAtoA_v2 cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties cuDeviceGetHostAtomicCapabilities cuDeviceGetP2PAtomicCapabilities cuDeviceGetTexture1DLinearMaxWidth cuExternalMemoryGetMappedMipmappedArray cuGraphicsResourceGetMappedMipmappedArray cuGraphicsSubResourceGetMappedArray cuMemMapArrayAsync cuMemcpyAtoHAsync_v2 cuMemcpyHtoAAsync_v2 cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties cuParamSetTexRef cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc cuTexRefCreate cuTexRefDestroy cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray
there is one device, so it has no peers | runtime | cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess cudaDeviceGetP2PAttribute cudaDeviceGetP2PAtomicCapabilities cudaMemcpy3DPeer cudaMemcpy3DPeerAsync cudaLaunchCooperativeKernelMultiDevice
there is one device, so it has no peers | driver | cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuDeviceGetP2PAttribute cuMemcpyPeer cuMemcpyPeerAsync cuMulticastCreate cuMulticastAddDevice cuDeviceGetCliqueCount cuDeviceGetCliqueInfo cuDeviceGetFabricClusterUuid cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr cuLogicalEndpointBindMem cuLogicalEndpointCreate cuLogicalEndpointDestroy cuLogicalEndpointExport cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease cuLogicalEndpointIdReserve cuLogicalEndpointImport cuLogicalEndpointQuery cuLogicalEndpointUnbind cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMulticastBindAddr cuMulticastBindAddr_v2 cuMulticastBindMem cuMulticastBindMem_v2 cuMulticastGetGranularity cuMulticastUnbind cuFabricCpyBatchAsync
memory of other processes and of graphics is not supported | runtime | cudaDeviceGetNvSciSyncAttributes cudaEGLStreamConsumerAcquireFrame cudaEGLStreamConsumerConnect cudaEGLStreamConsumerConnectWithFlags cudaEGLStreamConsumerDisconnect cudaEGLStreamConsumerReleaseFrame cudaEGLStreamProducerConnect cudaEGLStreamProducerDisconnect cudaEGLStreamProducerPresentFrame cudaEGLStreamProducerReturnFrame cudaEventCreateFromEGLSync cudaGLMapBufferObjectAsync cudaGLSetBufferObjectMapFlags cudaGLUnmapBufferObjectAsync cudaGraphAddExternalSemaphoresSignalNode cudaGraphAddExternalSemaphoresWaitNode cudaGraphExecExternalSemaphoresSignalNodeSetParams cudaGraphExecExternalSemaphoresWaitNodeSetParams cudaGraphExternalSemaphoresSignalNodeGetParams cudaGraphExternalSemaphoresSignalNodeSetParams cudaGraphExternalSemaphoresWaitNodeGetParams cudaGraphExternalSemaphoresWaitNodeSetParams cudaGraphicsEGLRegisterImage cudaGraphicsResourceGetMappedEglFrame cudaGraphicsResourceGetMappedMipmappedArray cudaGraphicsVDPAURegisterOutputSurface cudaGraphicsVDPAURegisterVideoSurface cudaVDPAUGetDevice cudaVDPAUSetVDPAUDevice cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle cudaIpcGetEventHandle cudaIpcOpenEventHandle cudaImportExternalMemory cudaDestroyExternalMemory cudaExternalMemoryGetMappedBuffer cudaExternalMemoryGetMappedMipmappedArray cudaImportExternalSemaphore cudaDestroyExternalSemaphore cudaSignalExternalSemaphoresAsync cudaSignalExternalSemaphoresAsync_v2 cudaWaitExternalSemaphoresAsync cudaWaitExternalSemaphoresAsync_v2 cudaGLGetDevices cudaGLSetGLDevice cudaGLRegisterBufferObject cudaGLMapBufferObject cudaGLUnmapBufferObject cudaGLUnregisterBufferObject cudaGraphicsGLRegisterBuffer cudaGraphicsGLRegisterImage cudaGraphicsMapResources cudaGraphicsUnmapResources cudaGraphicsResourceGetMappedPointer cudaGraphicsSubResourceGetMappedArray cudaGraphicsUnregisterResource cudaGraphicsResourceSetMapFlags cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer cudaMemPoolImportPointer
memory of other processes and of graphics is not supported | driver | cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle cuImportExternalMemory cuImportExternalSemaphore cuGraphicsMapResources cuGraphicsUnmapResources cuGraphicsGLRegisterBuffer cuDestroyExternalMemory cuDestroyExternalSemaphore cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes cuExternalMemoryGetMappedBuffer cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags_v2 cuGraphicsUnregisterResource cuMemExportToShareableHandle cuMemGetHandleForAddressRange cuMemImportFromShareableHandle cuMemPoolExportPointer cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerDisconnect cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame cuEventCreateFromEGLSync cuGLCtxCreate_v2 cuGLGetDevices_v2 cuGLInit cuGLMapBufferObjectAsync_v2 cuGLMapBufferObject_v2 cuGLRegisterBufferObject cuGLSetBufferObjectMapFlags cuGLUnmapBufferObject cuGLUnmapBufferObjectAsync cuGLUnregisterBufferObject cuGraphicsEGLRegisterImage cuGraphicsGLRegisterImage cuGraphicsResourceGetMappedEglFrame cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterVideoSurface cuVDPAUCtxCreate_v2 cuVDPAUGetDevice
linking in the driver is not supported; of numba-cuda, use fragmenta.frontends.numba.on_cpu | driver | cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy
it is not covered yet | runtime | __cudaGetProcAddress __cudaRegisterUnifiedTable cudaDevResourceGenerateDesc cudaDevSmResourceSplit cudaDeviceGetDevResource cudaDeviceGetExecutionCtx cudaDeviceGetHostAtomicCapabilities cudaDeviceRegisterAsyncNotification cudaDeviceUnregisterAsyncNotification cudaExecutionCtxDestroy cudaExecutionCtxGetDevResource cudaExecutionCtxGetDevice cudaExecutionCtxGetId cudaExecutionCtxRecordEvent cudaExecutionCtxSynchronize cudaExecutionCtxWaitEvent cudaGraphConditionalHandleCreate_v2 cudaGraphEventRecordNodeGetEvent cudaGraphEventRecordNodeSetEvent cudaGraphEventWaitNodeGetEvent cudaGraphEventWaitNodeSetEvent cudaGraphExecEventRecordNodeSetEvent cudaGraphExecEventWaitNodeSetEvent cudaGraphExecGetId cudaGraphExecMemcpyNodeSetParamsFromSymbol cudaGraphExecMemcpyNodeSetParamsToSymbol cudaGraphGetEdges_v2 cudaGraphGetId cudaGraphMemAllocNodeGetParams cudaGraphMemFreeNodeGetParams cudaGraphMemcpyNodeSetParamsFromSymbol cudaGraphMemcpyNodeSetParamsToSymbol cudaGraphNodeGetContainingGraph cudaGraphNodeGetDependencies_v2 cudaGraphNodeGetDependentNodes_v2 cudaGraphNodeGetLocalId cudaGraphNodeGetParams cudaGraphNodeGetToolsId cudaGraphRemoveDependencies_v2 cudaLaunchHostFunc_v2 cudaLogsCurrent cudaLogsDumpToFile cudaLogsDumpToMemory cudaLogsUnregisterCallback cudaMemGetDefaultMemPool cudaMemGetLocationInfo cudaMemGetMemPool cudaMemSetMemPool cudaMemcpy3DWithAttributesAsync cudaMemcpyWithAttributesAsync cudaSetDoubleForDevice cudaSetDoubleForHost cudaStreamBeginRecaptureToGraph cudaStreamGetDevResource cudaSubgridCreate cudaSubgridWorkerGridCreate cudaSubgridWorksetCreate cudaThreadGetCacheConfig cudaThreadGetLimit cudaThreadSetCacheConfig cudaThreadSetLimit cudaGraphAddNode cudaGraphAddNode_v2 cudaGraphAddDependencies_v2 cudaGraphAddMemcpyNodeFromSymbol cudaGraphAddMemcpyNodeToSymbol cudaGraphNodeSetParams cudaGraphExecNodeSetParams cudaGraphKernelNodeGetParams cudaGraphMemcpyNodeGetParams cudaGraphMemsetNodeGetParams cudaGraphHostNodeGetParams cudaGraphKernelNodeSetAttribute cudaGraphKernelNodeGetAttribute cudaGraphKernelNodeCopyAttributes cudaGraphMemcpyNodeSetParams1D cudaGraphRemoveDependencies cudaGraphDestroyNode cudaGraphNodeGetDependentNodes cudaGraphNodeFindInClone cudaGraphNodeGetEnabled cudaGraphNodeSetEnabled cudaGraphChildGraphNodeGetGraph cudaGraphConditionalHandleCreate cudaGraphExecGetFlags cudaGraphRetainUserObject cudaGraphReleaseUserObject cudaUserObjectCreate cudaUserObjectRelease cudaUserObjectRetain cudaDeviceGetGraphMemAttribute cudaDeviceSetGraphMemAttribute cudaStreamGetAttribute cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_v2 cudaMemcpyBatchAsync cudaMemcpy3DBatchAsync cudaMemPrefetchBatchAsync cudaMemDiscardBatchAsync cudaMemDiscardAndPrefetchBatchAsync cudaMemRangeGetAttribute cudaMemRangeGetAttributes cudaMemPoolGetAccess cudaDevSmResourceSplitByCount cudaGreenCtxCreate cudaExecutionCtxStreamCreate cudaLogsRegisterCallback cudaLibraryEnumerateKernels cudaLibraryGetUnifiedFunction cudaGetExportTable
it is not covered yet | driver | cuMemCreate cuMemMap cuMemUnmap cuMemRelease cuMemAddressReserve cuMemAddressFree cuMemSetAccess cuMemGetAllocationGranularity cuMemRangeGetAttribute cuPointerSetAttribute cuGraphAddNode_v2 cuGraphAddMemcpyNode cuGraphAddDependencies_v2 cuGraphExecKernelNodeSetParams_v2 cuGraphExecUpdate_v2 cuStreamWriteValue32_v2 cuStreamWaitValue32_v2 cuStreamWriteValue64_v2 cuStreamWaitValue64_v2 cuStreamBatchMemOp_v2 cuGreenCtxCreate cuLibraryGetUnifiedFunction cuLibraryEnumerateKernels cuModuleEnumerateFunctions cuStreamUpdateCaptureDependencies_v2 cuCoredumpSetAttribute cuCheckpointOperationComplete cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState cuCheckpointProcessLock cuCheckpointProcessRestore cuCheckpointProcessUnlock cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback cuCoredumpSetAttributeGlobal cuCtxFromGreenCtx cuCtxGetDevResource cuCtxGetExecAffinity cuCtxRecordEvent cuCtxWaitEvent cuDevResourceGenerateDesc cuDevSmResourceSplit cuDevSmResourceSplitByCount cuDeviceGetDevResource cuDeviceGetExecAffinitySupport cuDeviceGetGraphMemAttribute cuDeviceGetProperties cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute cuDeviceUnregisterAsyncNotification cuGraphAddBatchMemOpNode cuGraphAddNode_v3 cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams cuGraphChildGraphNodeGetGraph cuGraphConditionalHandleCreate cuGraphDestroyNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphExecBatchMemOpNodeSetParams cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent cuGraphExecGetFlags cuGraphExecGetId cuGraphExecHostNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuGraphExecNodeSetParams cuGraphGetEdges_v2 cuGraphGetId cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphInstantiate_v2 cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetAttribute cuGraphKernelNodeSetParams_v2 cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphNodeFindInClone cuGraphNodeGetContainingGraph cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2 cuGraphNodeGetEnabled cuGraphNodeGetLocalId cuGraphNodeGetParams cuGraphNodeGetToolsId cuGraphNodeSetEnabled cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuGraphReleaseUserObject cuGraphRemoveDependencies_v2 cuGraphRetainUserObject cuGreenCtxDestroy cuGreenCtxGetDevResource cuGreenCtxGetId cuGreenCtxRecordEvent cuGreenCtxStreamCreate cuGreenCtxWaitEvent cuLaunchCooperativeKernelMultiDevice cuLaunchHostFunc_v2 cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback cuMemBatchDecompressAsync cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync cuMemGetAccess cuMemGetAllocationPropertiesFromHandle cuMemGetLocationInfo cuMemPoolGetAccess cuMemPrefetchBatchAsync cuMemRangeGetAttributes cuMemRetainAllocationHandle cuMemSetMemPool cuMemcpy3DBatchAsync_v2 cuMemcpy3DWithAttributesAsync cuMemcpyBatchAsync_v2 cuMemcpyWithAttributesAsync cuStreamBeginCaptureToCig cuStreamBeginRecaptureToGraph cuStreamCopyAttributes cuStreamEndCaptureToCig cuStreamGetAttribute cuStreamGetCtx_v2 cuStreamGetDevResource cuStreamGetGreenCtx cuTensorMapEncodeIm2colWide cuTensorMapSetAllocationClass cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain cuProfilerInitialize
"""
"""Functions that return an error: the reason, the library, their names."""

ERRORS = """
0   | Success                  | SUCCESS                  | no error
1   | InvalidValue             | INVALID_VALUE            | invalid argument
2   | MemoryAllocation         | OUT_OF_MEMORY            | out of memory
3   | InitializationError      | NOT_INITIALIZED          | initialization error
9   | InvalidConfiguration     | INVALID_CONFIGURATION    | invalid configuration argument
12  | InvalidPitchValue        | INVALID_PITCH_VALUE      | invalid pitch argument
13  | InvalidSymbol            | INVALID_SYMBOL           | invalid device symbol
21  | InvalidMemcpyDirection   | INVALID_MEMCPY_DIRECTION | invalid copy direction for memcpy
52  | MissingConfiguration     | MISSING_CONFIGURATION    | __global__ function call is not configured
98  | InvalidDeviceFunction    | INVALID_DEVICE_FUNCTION  | invalid device function
100 | NoDevice                 | NO_DEVICE                | no CUDA-capable device is detected
101 | InvalidDevice            | INVALID_DEVICE           | invalid device ordinal
200 | InvalidKernelImage       | INVALID_IMAGE            | device kernel image is invalid
201 | DeviceUninitialized      | INVALID_CONTEXT          | invalid device context
209 | NoKernelImageForDevice   | NO_BINARY_FOR_GPU        | no kernel image is available for execution on the device
218 | InvalidPtx               | INVALID_PTX              | a PTX JIT compilation failed
301 | FileNotFound             | FILE_NOT_FOUND           | file not found
400 | InvalidResourceHandle    | INVALID_HANDLE           | invalid resource handle
401 | IllegalState             | ILLEGAL_STATE            | the operation cannot be performed in the present state
500 | SymbolNotFound           | NOT_FOUND                | named symbol not found
600 | NotReady                 | NOT_READY                | device not ready
700 | IllegalAddress           | ILLEGAL_ADDRESS          | an illegal memory access was encountered
701 | LaunchOutOfResources     | LAUNCH_OUT_OF_RESOURCES  | too many resources requested for launch
702 | LaunchTimeout            | LAUNCH_TIMEOUT           | the launch timed out and was terminated
710 | Assert                   | ASSERT                   | device-side assert triggered
712 | HostMemoryAlreadyRegistered | HOST_MEMORY_ALREADY_REGISTERED | part or all of the requested memory range is already mapped
713 | HostMemoryNotRegistered  | HOST_MEMORY_NOT_REGISTERED | pointer does not correspond to a registered memory region
715 | IllegalInstruction       | ILLEGAL_INSTRUCTION      | an illegal instruction was encountered
716 | MisalignedAddress        | MISALIGNED_ADDRESS       | misaligned address
719 | LaunchFailure            | LAUNCH_FAILED            | unspecified launch failure
720 | CooperativeLaunchTooLarge | COOPERATIVE_LAUNCH_TOO_LARGE | too many blocks in cooperative launch
801 | NotSupported             | NOT_SUPPORTED            | operation not supported
900 | StreamCaptureUnsupported | STREAM_CAPTURE_UNSUPPORTED | operation not permitted when stream is capturing
901 | StreamCaptureInvalidated | STREAM_CAPTURE_INVALIDATED | operation failed due to a previous error during capture
904 | StreamCaptureUnjoined    | STREAM_CAPTURE_UNJOINED  | capturing stream has unjoined work
906 | StreamCaptureImplicit    | STREAM_CAPTURE_IMPLICIT  | operation would make the legacy stream depend on a capturing blocking stream
907 | CapturedEvent            | CAPTURED_EVENT           | operation not permitted on an event last recorded in a capturing stream
910 | GraphExecUpdateFailure   | GRAPH_EXEC_UPDATE_FAILURE | the graph update was not performed because it included changes which violated constraints specific to instantiated graph update
999 | Unknown                  | UNKNOWN                  | unknown error
"""
"""The number of an error, its names in the runtime and the driver, and its words."""

VERSIONS = """
cuCtxCreate            | 13000 _v4 | 11040 _v3 | 0 _v2
cuGetProcAddress       | 12000 _v2 | 0
cuMemAdvise            | 12020 _v2 | 0
cuMemPrefetchAsync     | 12020 _v2 | 0
cuDeviceGetUuid        | 11040 _v2 | 0
cuEventElapsedTime     | 12080 _v2 | 0
cuStreamGetCaptureInfo | 12030 _v3 | 0 _v2
"""
"""Functions of the driver with several forms: from which CUDA on each is meant."""

_ROW = re.compile(
    r"(?P<returns>(?:\w+ [*]*)*)(?P<name>\w+)\((?P<given>.*?)\) = "
    r"(?P<does>.*?)(?: \[(?P<only>12|13)\])?"
)


@dataclass(frozen=True)
class ClientFunction:
    """A function of CUDA that the client has."""

    section: str
    name: str
    parameters: tuple[str, ...]
    returns: str
    """What it returns; empty if that is an error."""
    does: str
    only: str = ""
    """The one CUDA that has it so; empty for all."""

    @property
    def takes_stream(self) -> bool:
        """Whether it has a second form for the stream of each thread."""
        return any(each.startswith("Stream *") for each in self.parameters)


def rows(table: str) -> Iterator[ClientFunction]:
    r"""The rows of a table.

    >>> found = next(rows("# memory\ncudaFree(void *p) = release(p)"))
    >>> found.section, found.name, found.parameters, found.does
    ('memory', 'cudaFree', ('void *p',), 'release(p)')
    """
    section = ""
    for line in table.strip().splitlines():
        if line.startswith("#"):
            section = line[2:]
        elif line:
            found = _ROW.fullmatch(line)
            assert found, line
            yield ClientFunction(
                section,
                found["name"],
                tuple(_split(found["given"])),
                found["returns"].strip(),
                found["does"],
                found["only"] or "",
            )


def _split(text: str) -> Iterator[str]:
    """The parameters of a list; commas in brackets belong to one of them."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text.strip():
        yield text[start:].strip()


def refused(library: str) -> dict[str, str]:
    """The functions of a library that are refused, and why.

    >>> refused("runtime")["cudaMallocArray"]
    'textures, surfaces and their arrays are not supported'
    """
    found = {}
    for line in REFUSED.strip().splitlines():
        why, of, names = (part.strip() for part in line.split("|"))
        if of == library:
            found.update(dict.fromkeys(names.split(), why))
    return found


def errors() -> list[tuple[int, str, str, str]]:
    """The errors: number, names in the runtime and the driver, words."""
    found = []
    for line in ERRORS.strip().splitlines():
        number, runtime, driver, words = (part.strip() for part in line.split("|"))
        prefixes = ("cudaError", "CUDA_ERROR_") if int(number) else ("cuda", "CUDA_")
        names = prefixes[0] + runtime, prefixes[1] + driver
        found.append((int(number), *names, words))
    return found


def versions() -> list[tuple[str, int, str]]:
    """Forms of functions of the driver: name, first version, suffix; newest first.

    >>> versions()[0]
    ('cuCtxCreate', 13000, '_v4')
    """
    found = []
    for line in VERSIONS.strip().splitlines():
        name, *forms = (part.strip() for part in line.split("|"))
        for form in forms:
            number, _, suffix = form.partition(" ")
            found.append((name, int(number), suffix))
    return found
