// Kernels whose counts were predicted before a GPU counted them.  No rule of counting was
// chosen with them in view.  held_out.py says how each is launched.

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define ME (blockIdx.x * blockDim.x + threadIdx.x)

__device__ static inline u32 place(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// ── global memory ───────────────────────────────────────────────────────────

struct Three { float x, y, z; };

KERNEL every_third(float *d, const float *a) { d[ME] = a[3 * ME]; }
KERNEL bytes_apart(unsigned char *d, const unsigned char *a) { d[ME] = a[16 * ME]; }
KERNEL pairs_stored_off(float2 *d, const float2 *a) { d[ME + 1] = a[ME]; }
KERNEL wrapped(float *d, const float *a) { d[ME] = a[5 * ME % 2048]; }
KERNEL triples(Three *d, const Three *a) { Three v = a[ME]; v.y += v.x; d[ME] = v; }
KERNEL some_quads(float4 *d, const float4 *a) { if (threadIdx.x % 32 < 20) d[ME] = a[ME]; }
KERNEL crossed_pairs(uint2 *d, const uint2 *__restrict__ a) { d[ME] = __ldg(a + (ME ^ 5)); }
KERNEL quads_backwards(float4 *d, const float4 *a) { d[ME] = a[ME ^ 31]; }

KERNEL turned_naively(float *d, const float *a, int wide, int high)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < wide && y < high) d[x * high + y] = a[y * wide + x];
}
KERNEL narrow_rows(float *d, const float *a, int pitch)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    d[row * 24 + threadIdx.x] = a[row * pitch + threadIdx.x];
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

THROUGH(shared_5, float, 1280, 5 * t, 5 * (t ^ 64))
THROUGH(shared_12, float, 3072, 12 * t, 12 * (t ^ 64))
THROUGH(shared_u16_3, unsigned short, 768, 3 * t, 3 * (t ^ 64))
THROUGH(shared_quads_3, float4, 768, 3 * t, 3 * (t ^ 64))
THROUGH(shared_quads_crossed, float4, 256, t ^ 3, t ^ 67)
THROUGH(shared_f64_5, double, 1280, 5 * t, 5 * (t ^ 64))
THROUGH(shared_fours, float, 256, t, t / 4 * 3)

KERNEL turned_swizzled(float *d, const float *a)
{
    __shared__ float tile[32][32];
    int x = threadIdx.x, at = blockIdx.x * 1024;
    for (int y = threadIdx.y; y < 32; y += 8) tile[y][x ^ y] = a[at + y * 32 + x];
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += 8) d[at + y * 32 + x] = tile[x][y ^ x];
}
KERNEL tree(float *d, const float *a)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = a[ME];
    for (int step = 1; step < 256; step *= 2) {
        __syncthreads();
        if (t % (2 * step) == 0) part[t] += part[t + step];
    }
    if (t == 0) d[blockIdx.x] = part[0];
}

// ── atomics ─────────────────────────────────────────────────────────────────

KERNEL added_apart(float *d, const float *a) { atomicAdd(d + 4 * ME, a[ME]); }
KERNEL least_of_pairs(u64 *d, const u64 *a) { atomicMin(d + ME / 2, a[ME]); }
KERNEL tickets(int *d, int *old) { old[ME] = atomicAdd(d + ME / 8 % 4, (int)threadIdx.x); }
KERNEL shared_floats(float *d, const float *a, const int *i)
{
    __shared__ float bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(bins + i[ME], a[ME]);
    __syncthreads();
    if (threadIdx.x < 32) d[blockIdx.x * 32 + threadIdx.x] = bins[threadIdx.x];
}

// ── cp.async, matrices, bulk copies ─────────────────────────────────────────

KERNEL async_8(uint2 *d, const uint2 *a)
{
    __shared__ uint2 tile[128];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                 :: "r"(place(tile + threadIdx.x)), "l"(a + (ME ^ 3)) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    d[ME] = tile[threadIdx.x ^ 32];
}
KERNEL async_rows(uint4 *d, const uint4 *a)
{
    // rows of 128 bytes, with gaps of 128 bytes, to rows with gaps of 16 bytes
    __shared__ __align__(16) uint4 tile[16 * 9];
    int row = threadIdx.x / 8, x = threadIdx.x % 8;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(place(tile + row * 9 + x)), "l"(a + (blockIdx.x * 16 + row) * 16 + x)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    d[ME] = tile[row * 9 + x];
}
KERNEL async_filled(uint4 *d, const uint4 *a)
{
    __shared__ __align__(16) uint4 tile[128];
    int size = threadIdx.x % 3 ? 16 : 4;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(place(tile + threadIdx.x)), "l"(a + ME), "r"(size) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    d[ME] = tile[threadIdx.x ^ 32];
}

template <int PITCH> __device__ void matrices(u32 *d, const uint4 *a)
{
    // PITCH is that of a row, in units of 16 bytes
    __shared__ __align__(128) uint4 tile[32 * PITCH];
    int t = threadIdx.x;
    tile[t * PITCH] = a[ME];
    __syncwarp();
    u32 x, y;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(x), "=r"(y) : "r"(place(tile + t * PITCH)) : "memory");
    d[ME] = x ^ y;
}
KERNEL turned_matrices_5(u32 *d, const uint4 *a) { matrices<5>(d, a); }
KERNEL turned_matrices_4(u32 *d, const uint4 *a) { matrices<4>(d, a); }
KERNEL stored_matrices(uint4 *d, const uint4 *a)
{
    __shared__ __align__(128) uint4 tile[32 * 2];
    int t = threadIdx.x;
    uint4 v = a[ME];
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%4], {%0, %1, %2, %3};"
                 :: "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(place(tile + 2 * t))
                 : "memory");
    __syncwarp();
    d[ME] = tile[2 * t];
}

KERNEL bulk_off(char *d, const char *a)
{
    // 1008 bytes that begin in the middle of a sector
    __shared__ __align__(128) char tile[1024];
    __shared__ u64 bar;
    u32 at = place(tile), b = place(&bar);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1008;" :: "r"(b) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], 1008, [%2];" :: "r"(at), "l"(a + 1024 * blockIdx.x + 16),
                     "r"(b) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p;\nL: mbarrier.try_wait.parity.shared.b64 p, [%0], 0;\n"
                 "@!p bra L; }" :: "r"(b) : "memory");
    if (threadIdx.x < 252) ((int *)tile)[threadIdx.x] += 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1008;"
                     :: "l"(d + 1024 * blockIdx.x + 16), "r"(at) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
KERNEL bulk_added(int *d, const int *a)
{
    __shared__ __align__(128) int tile[256];
    tile[threadIdx.x] = a[ME];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 "
                     "[%0], [%1], 1024;" :: "l"(d + 256 * (blockIdx.x / 2)), "r"(place(tile))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
