// Memory: every space, every width, every way to say it.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include "common.cuh"

KERNEL saxpy(const float *x, float *y, float a, int n) {
    for (int i = global_id(); i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

KERNEL transpose(const float *x, float *y, int width, int height) {
    __shared__ float tile[32][33];
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += blockDim.y)
        if (col < width && row + i < height) tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * width + col];
    __syncthreads();
    col = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += blockDim.y)
        if (col < height && row + i < width) y[(row + i) * height + col] = tile[threadIdx.x][threadIdx.y + i];
}

// A tile of halves is transposed by ldmatrix.trans alone.
KERNEL transpose_ldmatrix(const uint4 *x, uint32_t *y) {
    __shared__ uint4 rows[32];
    rows[lane_id()] = x[global_id()];
    __syncwarp();
    uint32_t r[4];
    ldmatrix_x4_trans(r, &rows[lane_id()]);
    for (int i = 0; i < 4; i++) y[global_id() / 32 * 128 + i * 32 + lane_id()] = r[i];
}

__constant__ float weights[7] = {0.03125f, 0.109375f, 0.21875f, 0.28125f, 0.21875f, 0.109375f, 0.03125f};
__constant__ short2 offsets[4] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};

// Blur in one dimension, with a halo in shared memory and weights in constant memory.
KERNEL stencil_1d(const float *x, float *y, int n) {
    extern __shared__ float line[];
    int i = global_id(), t = threadIdx.x;
    line[t + 3] = i < n ? x[i] : 0;
    if (t < 3) line[t] = i >= 3 ? x[i - 3] : 0;
    if (t >= blockDim.x - 3) line[t + 6] = i + 3 < n ? x[i + 3] : 0;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 7; k++) sum += weights[k] * line[t + k];
    if (i < n) y[i] = sum;
}

// Heat in a plane, several steps in one block; the neighbours come from a table.
KERNEL stencil_2d(float *plane, int width, int rounds) {
    extern __shared__ float now[];
    int col = threadIdx.x, row = threadIdx.y, at = row * width + col;
    now[at] = plane[at];
    for (int i = 0; i < rounds; i++) {
        __syncthreads();
        float sum = -4 * now[at];
        for (int k = 0; k < 4; k++) {
            int c = col + offsets[k].x, r = row + offsets[k].y;
            if (c >= 0 && c < width && r >= 0 && r < blockDim.y) sum += now[r * width + c];
        }
        __syncthreads();
        now[at] += 0.2f * sum;
    }
    plane[at] = now[at];
}

// Seven points in three dimensions; the column is kept in registers.
KERNEL stencil_3d(const double *x, double *y, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
    size_t plane = size_t(nx) * ny, at = size_t(j) * nx + i;
    double below = x[at], here = x[at + plane];
    for (int k = 1; k < nz - 1; k++) {
        at += plane;
        double above = x[at + plane];
        y[at] = 0.4 * here + 0.1 * (below + above + x[at - 1] + x[at + 1] + x[at - nx] + x[at + nx]);
        below = here, here = above;
    }
}

KERNEL matvec(const half *a, const half *x, float *y, int columns) {
    int row = blockIdx.x * (blockDim.x / 32) + warp_id();
    const uint4 *line = reinterpret_cast<const uint4 *>(a + row * columns);
    float sum = 0;
    for (int i = lane_id(); i < columns / 8; i += 32) {
        uint4 packed = __ldg(line + i), other = __ldg(reinterpret_cast<const uint4 *>(x) + i);
        const half2 *p = reinterpret_cast<half2 *>(&packed), *q = reinterpret_cast<half2 *>(&other);
        for (int e = 0; e < 4; e++) {
            float2 u = __half22float2(p[e]), v = __half22float2(q[e]);
            sum = fmaf(u.x, v.x, sum);
            sum = fmaf(u.y, v.y, sum);
        }
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane_id() == 0) y[row] = sum;
}

// Loads and stores of 1 to 16 bytes, in vectors and with every cache operator.
KERNEL vectors(const void *x, char *y) {
    int i = global_id();
    char4 c = static_cast<const char4 *>(x)[i];
    ushort2 s = static_cast<const ushort2 *>(x)[i];
    int2 w = __ldcs(static_cast<const int2 *>(x) + i);
    double2 d = __ldcg(static_cast<const double2 *>(x) + i);
    longlong2 l = __ldlu(static_cast<const longlong2 *>(x) + i);
    float4 f = __ldcv(static_cast<const float4 *>(x) + i);
    char *to = y + i * 64;
    *reinterpret_cast<char4 *>(to) = make_char4(c.w, c.z, c.y, c.x);
    *reinterpret_cast<ushort2 *>(to + 4) = make_ushort2(s.y + 1, s.x - 1);
    __stwt(reinterpret_cast<int2 *>(to + 8), make_int2(w.y, -w.x));
    __stcs(reinterpret_cast<double2 *>(to + 16), make_double2(d.y, -d.x));
    __stcg(reinterpret_cast<longlong2 *>(to + 32), make_longlong2(l.y ^ l.x, l.x - l.y));
    *reinterpret_cast<float4 *>(to + 48) = make_float4(f.w, -f.z, fabsf(f.y), f.x);
}

// A copy of any length to any address: bytes, then words, then bytes.
KERNEL copy_bytes(const unsigned char *from, unsigned char *to, int start, int length) {
    from += start, to += start;
    int head = min(length, static_cast<int>(-reinterpret_cast<uintptr_t>(to) & 15)), words = (length - head) / 16;
    for (int i = threadIdx.x; i < head; i += blockDim.x) to[i] = from[i];
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        reinterpret_cast<uint4 *>(to + head)[i] = reinterpret_cast<const uint4 *>(from + head)[i];
    for (int i = head + words * 16 + threadIdx.x; i < length; i += blockDim.x) to[i] = from[i];
}

__device__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int *some_primes[3] = {primes, primes + 3, primes + 6};
__device__ volatile int sightings;
__device__ const char *const names[4] = {"warp", "lane", "block", "grid"};
struct Node { int value; const Node *next; };
__constant__ Node node3 = {30, nullptr}, node2 = {20, &node3}, node1 = {10, &node2};

// Globals that hold addresses of globals; a list in constant memory; strings.
KERNEL globals(int *out, char *text) {
    int t = threadIdx.x, sum = 0;
    for (const Node *node = &node1; node; node = node->next) sum += node->value * (t + 1);
    out[t] = some_primes[t % 3][t % 2] + sum;
    text[t] = names[t % 4][t / 4 % 4];
    __syncthreads();
    if (t < 8) primes[t] += t;
    if (t == 9) sightings = sightings + 41;
    __syncthreads();
    if (t < 8) out[blockDim.x + t] = primes[7 - t];
    if (t == 8) out[blockDim.x + 8] = sightings;
}

// One stretch of dynamic shared memory, divided among types; and pointers of which only
// the run tells whether they are shared, local or global.
__device__ __noinline__ long long generic_sum(const long long *p, int n) {
    long long sum = 0;
    for (int i = 0; i < n; i++) sum = sum * 3 + p[i];
    return sum;
}

KERNEL generic(const long long *x, long long *y, int which) {
    extern __shared__ char bytes[];
    long long *wide = reinterpret_cast<long long *>(bytes), own[4];
    short *narrow = reinterpret_cast<short *>(wide + blockDim.x);
    int t = threadIdx.x;
    wide[t] = x[global_id()];
    narrow[t] = static_cast<short>(wide[t] * 7);
    for (int i = 0; i < 4; i++) own[i] = x[global_id()] + i * which;
    __syncthreads();
    int first = t & ~3;
    const long long *p = t % 3 == 0 ? wide + first : t % 3 == 1 ? own : x + blockIdx.x * blockDim.x + first;
    long long sum = generic_sum(p, 4);
    y[global_id()] = sum + narrow[t ^ 1] * 2 + (__isShared(p) ? 1 : __isLocal(p) ? 2 : __isGlobal(p) ? 4 : 8);
}

// Double buffering by the pipeline functions of CUDA C++, four bytes at a time.
KERNEL pipeline_sum(const float *x, float *y, int rounds) {
    __shared__ float buffer[2][64];
    int t = threadIdx.x;
    auto load = [&](int i) {
        __pipeline_memcpy_async(&buffer[i % 2][t], &x[(blockIdx.x * rounds + i) * 64 + t], 4);
        __pipeline_commit();
    };
    float sum = 0;
    load(0);
    for (int i = 0; i < rounds; i++) {
        if (i + 1 < rounds) load(i + 1);
        __pipeline_wait_prior(i + 1 < rounds ? 1 : 0);
        __syncthreads();
        sum = sum * 0.5f + buffer[i % 2][63 - t];
        __syncthreads();
    }
    y[blockIdx.x * 64 + t] = sum;
}

// Blocks and threads in three dimensions, and the special registers that say where.
KERNEL places(unsigned *out) {
    unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned lane, below;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    unsigned *to = out + (b * blockDim.x * blockDim.y * blockDim.z + t) * 4;
    to[0] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16 | lane << 24;
    to[1] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16 | warpSize << 24;
    to[2] = gridDim.x | gridDim.y << 8 | gridDim.z << 16 | blockDim.z << 24;
    to[3] = below;
}

// A matrix is turned within registers: movmatrix.
KERNEL transpose_movmatrix(const uint32_t *x, uint32_t *y) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(x[global_id()]));
    y[global_id()] = turned;
}

// Hints to the caches, which change no value: policies, prefetches, sizes of sectors.
KERNEL cache_hints(const float4 *x, float4 *y) {
    int i = global_id();
    unsigned long long policy;
    float4 v;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 0.5;" : "=l"(policy));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(x + i));
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(x + i), "l"(policy));
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(y + i), "f"(v.w), "f"(v.x),
                 "f"(v.y), "f"(v.z), "l"(policy)
                 : "memory");
}
