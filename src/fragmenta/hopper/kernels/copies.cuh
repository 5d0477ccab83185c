// Barriers, bulk copies and the order between them: one function around each instruction.

__device__ __forceinline__ u32 shared_address(const void* p) {
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}

__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(bar), "r"(parity) : "memory");
}

__device__ __forceinline__ void barrier_arrive_here(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Arrive at the barrier with the same address in another block of the cluster.
__device__ __forceinline__ void barrier_arrive(u32 bar, u32 block) {
    if constexpr (CLUSTER * SPLIT == 1) {
        barrier_arrive_here(bar);
    } else {
        asm volatile(
            "{\n"
            ".reg .b32 there;\n"
            "mapa.shared::cluster.u32 there, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
            "}\n" ::"r"(bar), "r"(block) : "memory");
    }
}

__device__ __forceinline__ void copy_tile(
    u32 to, const TensorMap* map, u32 bar, int x, int y, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "l"(policy) : "memory");
}

// Copy into these blocks of the cluster.  Data and signal have the same address in each.
__device__ __forceinline__ void copy_tile_to_all(
    u32 to, const TensorMap* map, u32 bar, int x, int y, unsigned short all,
    u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "h"(all), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void copy_bytes(
    u32 to, const void* from, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}

__device__ __forceinline__ void store_tile(
    const TensorMap* map, u32 from, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
        ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Whether this thread is the one that acts for its warp.  The assembler knows that there
// is only one, and so needs no loop over threads around each copy.
__device__ __forceinline__ bool elected() {
    u32 chosen;
    asm volatile(
        "{\n"
        ".reg .pred one;\n"
        "elect.sync _|one, 0xFFFFFFFF;\n"
        "selp.u32 %0, 1, 0, one;\n"
        "}\n" : "=r"(chosen));
    return chosen;
}

// Wait until what ran before this kernel has ended, and its results are there.
__device__ __forceinline__ void previous_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Let the next kernel start where there is room.  After previous_wait: so whatever the
// next one copies early is older than this kernel.
__device__ __forceinline__ void next_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Synchronize the 128 threads of one consumer.
__device__ __forceinline__ void group_sync(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory");
}
