// Small kernels, each with one pattern of memory accesses, conflicts, atomics or branches.
// cases.py says how each is launched; docs/counters.md compares their counts with a GPU's.

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define ME (blockIdx.x * blockDim.x + threadIdx.x)

__device__ static inline u32 place(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// ── global memory ───────────────────────────────────────────────────────────

KERNEL copy_u8(unsigned char *d, const unsigned char *a) { d[ME] = a[ME]; }
KERNEL copy_u16(unsigned short *d, const unsigned short *a) { d[ME] = a[ME]; }
KERNEL copy_f32(float *d, const float *a) { d[ME] = a[ME]; }
KERNEL copy_f32x2(float2 *d, const float2 *a) { d[ME] = a[ME]; }
KERNEL copy_f32x4(float4 *d, const float4 *a) { d[ME] = a[ME]; }
KERNEL copy_f64(double *d, const double *a) { d[ME] = a[ME]; }
KERNEL copy_shifted(float *d, const float *a) { d[ME] = a[ME + 1]; }
KERNEL copy_shifted_x4(float4 *d, const float4 *a) { d[ME] = a[ME + 1]; }
KERNEL copy_some(float *d, const float *a, int n) { if (ME < n) d[ME] = a[ME]; }
KERNEL copy_volatile(volatile float *d, const volatile float *a) { d[ME] = a[ME]; }
KERNEL copy_nc(float *d, const float *__restrict__ a) { d[ME] = __ldg(a + ME); }
KERNEL load_stride_2(float *d, const float *a) { d[ME] = a[2 * ME]; }
KERNEL load_stride_8(float *d, const float *a) { d[ME] = a[8 * ME]; }
KERNEL load_stride_33(float *d, const float *a) { d[ME] = a[33 * ME]; }
KERNEL load_stride_2_x2(float2 *d, const float2 *a) { d[ME] = a[2 * ME]; }
KERNEL load_stride_2_x4(float4 *d, const float4 *a) { d[ME] = a[2 * ME]; }
KERNEL load_reversed(float *d, const float *a) { d[ME] = a[ME ^ 31]; }
KERNEL load_same(float *d, const float *a) { d[ME] = a[blockIdx.x]; }
KERNEL load_same_x4(float4 *d, const float4 *a) { d[ME] = a[blockIdx.x]; }
KERNEL load_pairs_x4(float4 *d, const float4 *a) { d[ME] = a[ME / 2]; }
KERNEL load_turns_x4(float4 *d, const float4 *a) { d[ME] = a[ME % 8]; }
KERNEL load_turns_x2(float2 *d, const float2 *a) { d[ME] = a[ME % 16]; }
KERNEL load_odd_lanes(float *d, const float *a) { if (threadIdx.x & 1) d[ME] = a[ME]; }
KERNEL gather(float *d, const float *a, const int *i) { d[ME] = a[i[ME]]; }
KERNEL gather_x4(float4 *d, const float4 *a, const int *i) { d[ME] = a[i[ME]]; }
KERNEL scatter(float *d, const float *a, const int *i) { d[i[ME]] = a[ME]; }
KERNEL scatter_x2(float2 *d, const float2 *a, const int *i) { d[i[ME]] = a[ME]; }
KERNEL store_stride_8(float *d, const float *a) { d[8 * ME] = a[ME]; }
KERNEL store_same(int *d) { d[blockIdx.x] = 7; }
KERNEL sum_rows(float *d, const float *a, int n)
{
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += a[blockIdx.x * n + i];
    for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (threadIdx.x == 0) d[blockIdx.x] = sum;
}
KERNEL read_twice(float *d, const float *a)
{
    d[ME] = a[ME] + a[ME ^ 64];
}

// ── shared memory ───────────────────────────────────────────────────────────

#define THROUGH(NAME, TYPE, COUNT, TO, OF)                                                   \
    KERNEL NAME(TYPE *d, const TYPE *a)                                                      \
    {                                                                                        \
        __shared__ TYPE tile[COUNT];                                                         \
        int t = threadIdx.x;                                                                 \
        tile[TO] = a[ME];                                                                    \
        __syncthreads();                                                                     \
        d[ME] = tile[OF];                                                                    \
    }

THROUGH(shared_plain, float, 256, t, t ^ 32)
THROUGH(shared_stride_2, float, 512, 2 * t, 2 * (t ^ 32))
THROUGH(shared_stride_32, float, 8192, 32 * t, 32 * (t ^ 32))
THROUGH(shared_same, float, 256, t, t / 32 * 32)
THROUGH(shared_pairs, float, 256, t, t / 2)
THROUGH(shared_u8, unsigned char, 256, t, t ^ 32)
THROUGH(shared_u16_stride_2, unsigned short, 512, 2 * t, 2 * (t ^ 32))
THROUGH(shared_x2, float2, 256, t, t ^ 32)
THROUGH(shared_x2_stride_3, float2, 768, 3 * t, 3 * (t ^ 32))
THROUGH(shared_x2_stride_2, float2, 512, 2 * t, 2 * (t ^ 32))
THROUGH(shared_x4, float4, 256, t, t ^ 32)
THROUGH(shared_x4_stride_2, float4, 512, 2 * t, 2 * (t ^ 32))
THROUGH(shared_x4_same, float4, 256, t, t / 32 * 32)
THROUGH(shared_x4_pairs, float4, 256, t, t / 2)
THROUGH(shared_x4_turns, float4, 256, t, t % 8)
THROUGH(shared_x2_halves, float2, 256, t, t % 16)
THROUGH(shared_f64_stride_2, double, 512, 2 * t, 2 * (t ^ 32))

template <int PITCH> __device__ void transposed(float *d, const float *a)
{
    __shared__ float tile[32 * PITCH];
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int i = y; i < 32; i += 8) tile[i * PITCH + x] = a[blockIdx.x * 1024 + i * 32 + x];
    __syncthreads();
    for (int i = y; i < 32; i += 8) d[blockIdx.x * 1024 + i * 32 + x] = tile[x * PITCH + i];
}
KERNEL transpose_32(float *d, const float *a) { transposed<32>(d, a); }
KERNEL transpose_33(float *d, const float *a) { transposed<33>(d, a); }

KERNEL shared_gather(float *d, const float *a, const int *i)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = a[ME];
    __syncthreads();
    d[ME] = tile[i[ME]];
}

template <int PITCH, int SWIZZLE> __device__ void matrices(uint4 *d, const uint4 *a)
{
    // PITCH is that of a row, in units of 16 bytes
    __shared__ __align__(128) uint4 tile[32 * PITCH];
    int t = threadIdx.x;
    tile[t * PITCH + (SWIZZLE ? t % 8 : 0)] = a[ME];
    __syncwarp();
    u32 at = place(tile + t * PITCH + (SWIZZLE ? t % 8 : 0));
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(at) : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};"
                 :: "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w), "r"(at) : "memory");
    __syncwarp();
    d[ME] = tile[t * PITCH + (SWIZZLE ? t % 8 : 0)];
}
KERNEL ldmatrix_dense(uint4 *d, const uint4 *a) { matrices<1, 0>(d, a); }
KERNEL ldmatrix_rows(uint4 *d, const uint4 *a) { matrices<8, 0>(d, a); }
KERNEL ldmatrix_swizzled(uint4 *d, const uint4 *a) { matrices<8, 1>(d, a); }
KERNEL ldmatrix_x1(u32 *d, const uint4 *a)
{
    __shared__ __align__(128) uint4 tile[64];
    int t = threadIdx.x;
    tile[2 * t] = a[ME];
    __syncwarp();
    u32 r, at = place(tile + 2 * (t % 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r) : "r"(at) : "memory");
    d[ME] = r;
}

// ── cp.async and bulk copies ────────────────────────────────────────────────

template <int BYTES, int STEP> __device__ void copied(char *d, const char *a)
{
    __shared__ __align__(16) char tile[128 * BYTES];
    u32 at = place(tile + threadIdx.x * BYTES);
    const char *of = a + (size_t)ME * BYTES * STEP;
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(of) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     :: "r"(at), "l"(of), "n"(BYTES) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if (BYTES == 16)
        ((uint4 *)d)[ME] = ((uint4 *)tile)[threadIdx.x ^ 32];
    else
        ((u32 *)d)[ME] = ((u32 *)tile)[threadIdx.x ^ 32];
}
KERNEL async_16(char *d, const char *a) { copied<16, 1>(d, a); }
KERNEL async_16_stride_2(char *d, const char *a) { copied<16, 2>(d, a); }
KERNEL async_4(char *d, const char *a) { copied<4, 1>(d, a); }
KERNEL async_4_stride_8(char *d, const char *a) { copied<4, 8>(d, a); }

KERNEL bulk(uint4 *d, const uint4 *a)
{
    __shared__ __align__(128) uint4 tile[256];
    __shared__ u64 bar;
    u32 at = place(tile), b = place(&bar);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" :: "r"(b) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], 4096, [%2];" :: "r"(at), "l"(a + blockIdx.x * 256), "r"(b)
                     : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p;\nL: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n"
                 "@!p bra L; }" :: "r"(b) : "memory");
    tile[threadIdx.x].x += 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;"
                     :: "l"(d + blockIdx.x * 256), "r"(at) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// ── atomics ─────────────────────────────────────────────────────────────────

KERNEL red_each(int *d, const int *a) { atomicAdd(d + ME, a[ME]); }
KERNEL red_bins(int *d, const int *i) { atomicAdd(d + i[ME], 3); }
KERNEL red_float(float *d, const int *i) { atomicAdd(d + i[ME], 1.5f); }
KERNEL red_max(int *d, const int *a) { atomicMax(d + blockIdx.x, a[ME]); }
KERNEL atom_bins(int *d, const int *i, int *old) { old[ME] = atomicAdd(d + i[ME], 3); }
KERNEL atom_cas(int *d, const int *i, int *old) { old[ME] = atomicCAS(d + i[ME], 0, (int)ME); }
KERNEL atom_u64(u64 *d, const int *i, u64 *old) { old[ME] = atomicExch(d + i[ME], (u64)ME); }
KERNEL atom_shared(int *d, const int *i)
{
    __shared__ int bins[64];
    if (threadIdx.x < 64) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(bins + i[ME] % 64, 1);
    __syncthreads();
    if (threadIdx.x < 64) d[blockIdx.x * 64 + threadIdx.x] = bins[threadIdx.x];
}

// ── branches and calculations ───────────────────────────────────────────────

KERNEL two_ways(float *d, const float *a)
{
    float x = a[ME];
    if (threadIdx.x & 1) {
#pragma unroll 1
        for (int i = 0; i < 8; i++) x = __fmaf_rn(x, 1.5f, 0.25f);
    } else {
#pragma unroll 1
        for (int i = 0; i < 8; i++) x = __fsqrt_rn(x) - 0.5f;
    }
    d[ME] = x;
}
KERNEL long_loops(int *d, const int *a)
{
    int x = a[ME], steps = 0;
#pragma unroll 1
    while (x > 1) {
        x = x & 1 ? 3 * x + 1 : x / 2;
        steps++;
    }
    d[ME] = steps;
}
KERNEL early_exit(float *d, const float *a, int n)
{
    if (ME >= n) return;
    float x = a[ME];
#pragma unroll 1
    for (int i = 0; i < 100; i++) x = __fmaf_rn(x, x, 0.1f);
    d[ME] = x;
}
KERNEL sines(float *d, const float *a)
{
    d[ME] = __sinf(a[ME]) * __expf(a[ME]);
}
KERNEL doubles(double *d, const double *a)
{
    double x = a[ME];
#pragma unroll 1
    for (int i = 0; i < 16; i++) x = __fma_rn(x, x, 0.1);
    d[ME] = x;
}
KERNEL local_array(int *d, const int *a, int n)
{
    int kept[16];
#pragma unroll 1
    for (int i = 0; i < 16; i++) kept[i] = a[ME] * i;
    d[ME] = kept[(a[ME] + n) & 15];
}
