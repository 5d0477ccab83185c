// What CUDA answers to sizes, captures and handles that are wrong.  Each line printed is a
// call and its error; tests/golden/answers has those of a GPU.
#include <cstdio>
#include <cstring>
#include <thread>
#include <cuda_runtime.h>

__global__ void add(int *x) { x[threadIdx.x] += 1; }

static int *d;
static int h[1 << 14];
static void say(const char *what, cudaError_t code) { printf("%s: %s\n", what, cudaGetErrorName(code)); cudaGetLastError(); }

static void sizes() {
    void *p; size_t pitch; cudaPitchedPtr box;
    say("pitch 2^62 x 16", cudaMallocPitch(&p, &pitch, 1ull << 62, 16));
    say("pitch 2^63 x 1", cudaMallocPitch(&p, &pitch, 1ull << 63, 1));
    say("pitch -1 x 1", cudaMallocPitch(&p, &pitch, (size_t)-1, 1));
    say("pitch 16 x 2^60", cudaMallocPitch(&p, &pitch, 16, 1ull << 60));
    say("pitch 0 x 16", cudaMallocPitch(&p, &pitch, 0, 16));
    say("3d 2^62", cudaMalloc3D(&box, make_cudaExtent(1ull << 62, 16, 16)));
    say("3d 2^40 x 2^40", cudaMalloc3D(&box, make_cudaExtent(1ull << 40, 1ull << 40, 1)));
    say("malloc -1", cudaMalloc(&p, (size_t)-1));
    say("host -1", cudaMallocHost(&p, (size_t)-1));
    say("copy to host -1", cudaMemcpy(h, d, (size_t)-1, cudaMemcpyDeviceToHost));
    say("copy to device -1", cudaMemcpy(d, h, (size_t)-1, cudaMemcpyHostToDevice));
    say("copy on device -1", cudaMemcpy(d, d, (size_t)-1, cudaMemcpyDeviceToDevice));
    say("copy default -1", cudaMemcpy(h, d, (size_t)-1, cudaMemcpyDefault));
    say("copy 2^62", cudaMemcpy(h, d, 1ull << 62, cudaMemcpyDeviceToHost));
    say("copy one word too much", cudaMemcpy(h, d, 1028, cudaMemcpyDeviceToHost));
    say("copy far away", cudaMemcpy((char *)d + (1ull << 62), h, 4, cudaMemcpyHostToDevice));
    say("copy 2d pitch", cudaMemcpy2D(h, 1, d, 1ull << 40, 64, 1ull << 40, cudaMemcpyDeviceToHost));
    say("copy 2d width", cudaMemcpy2D(h, 64, d, 64, (size_t)-1, 1, cudaMemcpyDeviceToHost));
    say("copy 2d height", cudaMemcpy2D(h, 64, d, 64, 64, 1ull << 58, cudaMemcpyDeviceToHost));
    say("set 2^50", cudaMemset(d, 0, 1ull << 50));
    say("set null", cudaMemset(0, 0, 4));
    say("copy kind 77", cudaMemcpy(h, d, 4, (cudaMemcpyKind)77));
    say("copy null", cudaMemcpy(0, d, 4, cudaMemcpyDeviceToHost));
    say("copy the wrong way", cudaMemcpy(h, d, 4, cudaMemcpyHostToDevice));
    say("free inside", cudaFree((char *)d + 8));
    say("free host memory", cudaFree(h));
    say("free host memory as such", cudaFreeHost(h));
    say("free -1", cudaFree((void *)-1));
    add<<<0, 0>>>(d); say("no blocks", cudaGetLastError());
    add<<<1, 4096>>>(d); say("4,096 threads", cudaGetLastError());
    add<<<dim3(1, 1, 1u << 31), 1>>>(d); say("a wide grid", cudaGetLastError());
    add<<<1, 32, 1 << 30>>>(d); say("much shared memory", cudaGetLastError());
}

// Each call within a capture; whether it may still end, and whether all is well after that.
template <class Call> static void within(const char *what, Call call) {
    static const char *modes[] = {"global", "thread", "relaxed"};
    for (int mode = 0; mode < 3; mode++)
        for (unsigned flags = 0; flags < 2; flags++) {
            cudaStream_t s; cudaGraph_t g = nullptr;
            cudaStreamCreateWithFlags(&s, flags);
            cudaStreamBeginCapture(s, (cudaStreamCaptureMode)mode);
            add<<<1, 32, 0, s>>>(d);
            printf("%s, %s, %s: ", what, modes[mode], flags ? "non-blocking" : "blocking");
            printf("%s, ", cudaGetErrorName(call(s)));
            cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            printf("%s ", cudaGetErrorName(cudaStreamIsCapturing(s, &status)));
            printf("%d, ", (int)status);
            printf("%s ", cudaGetErrorName(cudaStreamEndCapture(s, &g)));
            printf("%d, ", g != nullptr);
            printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
            cudaGetLastError();
            cudaStreamDestroy(s);
        }
}

static void captures() {
    static cudaStream_t other;
    static cudaEvent_t event, idle;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreate(&event); cudaEventCreate(&idle); cudaEventRecord(idle, other);
    within("device", [](cudaStream_t) { return cudaDeviceSynchronize(); });
    within("stream", [](cudaStream_t s) { return cudaStreamSynchronize(s); });
    within("query", [](cudaStream_t s) { return cudaStreamQuery(s); });
    within("other stream", [](cudaStream_t) { return cudaStreamSynchronize(other); });
    within("other query", [](cudaStream_t) { return cudaStreamQuery(other); });
    within("malloc", [](cudaStream_t) { void *p; return cudaMalloc(&p, 16); });
    within("malloc async", [](cudaStream_t) { void *p; return cudaMallocAsync(&p, 16, other); });
    within("malloc of another thread", [](cudaStream_t) { cudaError_t e; std::thread([&] { void *p; e = cudaMalloc(&p, 16); }).join(); return e; });
    within("free", [](cudaStream_t) { return cudaFree(nullptr); });
    within("copy", [](cudaStream_t) { return cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost); });
    within("copy on other", [](cudaStream_t) { return cudaMemcpyAsync(h, d, 4, cudaMemcpyDeviceToHost, other); });
    within("set", [](cudaStream_t) { return cudaMemset(d, 0, 4); });
    within("legacy launch", [](cudaStream_t) { add<<<1, 32>>>(d); return cudaGetLastError(); });
    within("launch on other", [](cudaStream_t) { add<<<1, 32, 0, other>>>(d); return cudaGetLastError(); });
    within("legacy event", [](cudaStream_t) { return cudaEventRecord(event, 0); });
    within("event", [](cudaStream_t s) { cudaEventRecord(event, s); return cudaEventSynchronize(event); });
    within("event query", [](cudaStream_t s) { cudaEventRecord(event, s); return cudaEventQuery(event); });
    within("idle event", [](cudaStream_t) { return cudaEventSynchronize(idle); });
    within("idle query", [](cudaStream_t) { return cudaEventQuery(idle); });
    within("launch after a failure", [](cudaStream_t s) { cudaStreamSynchronize(s); cudaGetLastError(); add<<<1, 32, 0, s>>>(d); return cudaGetLastError(); });
    within("begin again", [](cudaStream_t s) { return cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal); });
    within("create", [](cudaStream_t) { cudaStream_t s; return cudaStreamCreate(&s); });
    within("relaxed thread", [](cudaStream_t) { void *p; auto mode = cudaStreamCaptureModeRelaxed; cudaThreadExchangeStreamCaptureMode(&mode); auto e = cudaMalloc(&p, 16); cudaThreadExchangeStreamCaptureMode(&mode); return e; });
}

static void handles() {
    cudaStream_t s; cudaGraph_t g; cudaGraphExec_t x;
    cudaStreamCreate(&s);
    say("end without begin", cudaStreamEndCapture(s, &g));
    say("begin legacy", cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));
    say("begin mode 9", cudaStreamBeginCapture(s, (cudaStreamCaptureMode)9));
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    add<<<1, 32, 0, s>>>(d);
    cudaStreamEndCapture(s, &g);
    say("instantiate", cudaGraphInstantiate(&x, g, 0));
    say("exec once", cudaGraphExecDestroy(x));
    say("exec twice", cudaGraphExecDestroy(x));
    say("launch of a destroyed exec", cudaGraphLaunch(x, s));
    say("graph once", cudaGraphDestroy(g));
    say("graph twice", cudaGraphDestroy(g));
    say("instantiate what was destroyed", cudaGraphInstantiate(&x, g, 0));
    say("event null", cudaEventRecord(0, 0));
    say("destroy event null", cudaEventDestroy(0));
    say("graph null", cudaGraphLaunch(0, 0));
    int v; cudaDeviceProp p;
    say("attribute 99999", cudaDeviceGetAttribute(&v, (cudaDeviceAttr)99999, 0));
    say("properties of 5", cudaGetDeviceProperties(&p, 5));
    say("device 99", cudaSetDevice(99));
    say("device -1", cudaSetDevice(-1));
}

int main() {
    cudaMalloc(&d, 1024); cudaMemset(d, 0, 1024);
    sizes(); captures(); handles();
    say("all is well", cudaDeviceSynchronize());
}
