// D = A B for Hopper.  A is m x k, sparse (2:4, or 1:2 for tf32) or dense.  B is stored
// as n x k, so k is contiguous in both.
//
// A block of threads computes tiles of TILE_M x TILE_N of D, one after the other.
// One thread (the producer) keeps a ring of STAGES filled by bulk copies.  The other
// warpgroups (the consumers) multiply, each of them BLOCKS m64 blocks, and store.  They
// share a tile by rows; with TURNS they take whole tiles alternately, and one stores
// while the other multiplies.
//
// Counted in bytes, the kernel is the same for all types.  A slab is 128 bytes of each
// row of B.  An instruction reads 32 stored bytes of each row of A, and from each row of
// B the 32 (dense) or 64 (sparse) bytes that they are multiplied with.  A stage is SLABS
// slabs: the slabs of small tiles have little arithmetic, so several share one barrier.
//
// With SPLIT, so many blocks of a cluster share a tile along k.  Each sums its part of
// the stages.  Then they exchange their sums through shared memory, and each adds and
// stores some columns: the parts are always added in ascending k.
//
// The weights of a layer do not depend on the kernel that ran before.  If the launcher
// says so, a kernel starts before that one has ended, and copies the first stages of A.
//
// GROUPED, the product has an A for each expert; see experts.cuh.
//
// The launcher defines TILE_M TILE_N STAGES SLABS STAGING_ROOM CLUSTER SPLIT CONSUMERS
// TURNS BLOCKS; SPARSE, WORDS (metadata words per lane and slab), PAIRED (whether two
// instructions share a word); ACCUMULATOR OUTPUT, BOX_WIDE and BOX_HIGH (bytes and rows of
// D that a copy stores); PROMOTE SCALED TRANSPOSED XOR; GROUPED and MOST_EXPERTS;
// FOUR_BITS, and with it GROUPS GROUP_SCALES SETS (four_bits.cuh); and the function
// `multiply` around one wgmma.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int ROW_A = SPARSE ? 64 : 128;  // stored bytes of a row of A in a slab
constexpr int ROW_B = 128;
#if FOUR_BITS  // a slab is 128 columns of k: in 16 bits, two boxes of B beside each other
constexpr int BOXES = FOUR_BITS == 8 ? 1 : 2;
constexpr int STEPS = 2 * BOXES;  // instructions along k in a slab
constexpr int BLOCK_VALUES = 64 * 32;
constexpr int BLOCK_SCALES = GROUP_SCALES ? 64 * 2 * GROUPS : 0;
#else
constexpr int BOXES = 1;
constexpr int STEPS = ROW_A / 32;
constexpr int BLOCK_VALUES = 64 * ROW_A;
constexpr int BLOCK_SCALES = 0;
#endif
// 64 rows of A in a slab; the metadata follows the sparse values.
constexpr int BLOCK_A = BLOCK_VALUES + (SPARSE ? 128 * WORDS * 4 : 0) + BLOCK_SCALES;
constexpr int BYTES_A = TILE_M / 64 * BLOCK_A;
constexpr int BYTES_B = TILE_N * ROW_B * BOXES;
#if FOUR_BITS  // all of A, one m64 block after the other, and then all of B
constexpr int OFFSET_B = (SLABS * BYTES_A + 1023) / 1024 * 1024;
constexpr int SLAB = BYTES_B;  // from one slab of B to the next
constexpr int STAGE = OFFSET_B + SLABS * BYTES_B;
#else
constexpr int OFFSET_B = (BYTES_A + 1023) / 1024 * 1024;
constexpr int SLAB = OFFSET_B + BYTES_B;
constexpr int STAGE = SLABS * SLAB;
#endif
constexpr int ACCUMULATORS = TILE_N / 2;  // per lane and m64 block
constexpr int CODES = SPARSE ? BLOCKS * WORDS : 1;
constexpr int GROUP = 8;       // rows of tiles whose A stays in the L2 together
constexpr int PACKED_M = 256;  // rows of A whose slabs are adjacent in memory
// From one slab of a packed A to the next: those of an m64 block of integers are adjacent.
constexpr int PACKED_SLAB = (FOUR_BITS ? 1 : PACKED_M / 64) * BLOCK_A;
constexpr int WARPS = 4 * CONSUMERS;
constexpr int TEAM = TURNS ? 1 : CONSUMERS;  // consumers that share a tile

static_assert(TILE_M == 64 * TEAM * BLOCKS, "consumers share a tile by rows");
static_assert(!TURNS || CONSUMERS == 2, "two take turns");
static_assert(!PROMOTE || SLABS == 1, "what a slab gives is added outside");
static_assert(TILE_N % (8 * CLUSTER) == 0, "a block brings whole swizzle patterns");
static_assert(!GROUPED || (SPARSE && TRANSPOSED && !TURNS), "columns are tokens");
static_assert(SPLIT == 1 || !TURNS, "blocks that share a tile compute no other one");

struct alignas(64) TensorMap { char opaque[128]; };

#include "copies.cuh"
#include "experts.cuh"
#include "ring.cuh"
#include "result.cuh"
#include "producer.cuh"
#include "consumer.cuh"

extern "C" __global__ void __cluster_dims__(CLUSTER * SPLIT, 1, 1)
__launch_bounds__(128 * CONSUMERS + 128, 1) gemm(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
    const __grid_constant__ TensorMap map_d, const char* __restrict__ packed,
    const __grid_constant__ Epilogue e, int m, int n, int slabs_k
#if GROUPED
    , const int* ends, int experts, char* d, int pitch, int settled
#endif
) {
    extern __shared__ __align__(1024) char memory[];
    __shared__ alignas(8) u64 bars[2 * STAGES + 4];
    Room room;
    room.stages = (shared_address(memory) + 1023) & ~1023u;
    room.full = shared_address(bars), room.empty = room.full + 8 * STAGES;
    room.turns = room.empty + 8 * STAGES, room.stores = room.turns + 16;
    int warp = threadIdx.x / 32;
    Place place(CLUSTER * SPLIT > 1 ? cluster_rank() : 0, slabs_k);

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(room.full + 8 * s, 1);
            barrier_init(room.empty + 8 * s, 4 * TEAM * (CLUSTER + (SPARSE ? 32 : 0)));
        }
        for (int c = 0; c < 2; c++) {
            barrier_init(room.turns + 8 * c, 4);
            barrier_init(room.stores + 8 * c, 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
#if GROUPED
    __shared__ int bounds[MOST_EXPERTS + 1], columns[MOST_EXPERTS + 1];
    if (warp == 1) {
        if (!settled) previous_wait();
        list_experts(bounds, columns, ends, experts, n);
    }
#endif
    if (CLUSTER * SPLIT > 1) cluster_sync(); else __syncthreads();

    Tiles tiles(m, n);
#if GROUPED
    tiles.experts = {bounds, columns, experts}, tiles.d = d, tiles.pitch = pitch;
    tiles.count = columns[experts] * tiles.tall, tiles.settled = settled;
#endif
    if (warp >= WARPS) {
        if constexpr (CONSUMERS == 2)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == WARPS && elected())
            produce(room, tiles, place, &map_a, &map_b, packed, m, slabs_k);
        __syncwarp();
        if (!GROUPED || tiles.first < tiles.count)
            if constexpr (SPLIT > 1) cluster_sync(), cluster_sync();  // see add_parts
    } else {
        if constexpr (CONSUMERS == 2)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume(room, tiles, place, e, &map_d, warp / 4, m, n);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    __syncwarp();
    if (CLUSTER > 1 && SPLIT == 1)
        cluster_sync();  // no block may exit while others still signal it
}
