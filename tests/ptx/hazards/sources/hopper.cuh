// The asynchronous instructions of Hopper as functions, one instruction each.
//
// Every source is compiled once for each number BUG.  0 is the kernel as it should be,
// other numbers leave something out or do something else.
#pragma once

#ifndef BUG
#define BUG 0
#endif
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;

DEVICE u32 at(const void *shared) { return (u32)__cvta_generic_to_shared(shared); }
DEVICE u32 lane() { return threadIdx.x & 31; }
DEVICE u32 warp() { return threadIdx.x >> 5; }

// Weak accesses that the compiler leaves where they are.
DEVICE void put(u32 *place, u32 value) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at(place)), "r"(value) : "memory"); }
DEVICE u32 get(const u32 *place)
{
    u32 found;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(found) : "r"(at(place)) : "memory");
    return found;
}

// mbarriers

DEVICE void init(u64 *bar, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory");
}
DEVICE void inval(u64 *bar)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at(bar)) : "memory");
}
DEVICE void arrive(u64 *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory");
}
DEVICE void arrive(u64 *bar, u32 count)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory");
}
DEVICE void arrive_remote(u32 bar)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
DEVICE void arrive_expect(u64 *bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
DEVICE bool try_wait(u64 *bar, u32 parity)
{
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory");
    return done;
}
DEVICE void wait(u64 *bar, u32 parity)
{
    while (!try_wait(bar, parity)) {}
}

// Bulk copies

DEVICE void load(void *to, const void *from, u32 bytes, u64 *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(at(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(at(bar)) : "memory");
}
DEVICE void load_many(void *to, const void *from, u32 bytes, u64 *bar, u16 mask)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;"
                 ::"r"(at(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(at(bar)), "h"(mask) : "memory");
}
DEVICE void store(void *to, const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(at(from)), "r"(bytes) : "memory");
}
DEVICE void store_add(void *to, const void *from, u32 bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(at(from)), "r"(bytes) : "memory");
}
DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_stores() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
template <int N> DEVICE void wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }

struct alignas(64) Map { u32 words[32]; };
DEVICE void load_box(void *to, const Map *map, int x, int y, u64 *bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(at(to)), "l"(map), "r"(x), "r"(y), "r"(at(bar)) : "memory");
}
DEVICE void store_box(const Map *map, int x, int y, const void *from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(map), "r"(x), "r"(y), "r"(at(from)) : "memory");
}

// cp.async

DEVICE void copy16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(at(to)), "l"(__cvta_generic_to_global(from)) : "memory");
}
DEVICE void copy4(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 ::"r"(at(to)), "l"(__cvta_generic_to_global(from)) : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
DEVICE void arrive_copies(u64 *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(bar)) : "memory");
}

// Fences and barriers

DEVICE void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
DEVICE void bar_sync(int id, int count) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"); }
DEVICE void bar_arrive(int id, int count) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"); }
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE u32 rank()
{
    u32 found;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(found));
    return found;
}
DEVICE u32 remote(const void *shared, u32 block)
{
    u32 found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(at(shared)), "r"(block));
    return found;
}
DEVICE void store_remote(u32 place, u32 value)
{
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(place), "r"(value) : "memory");
}
DEVICE u32 load_remote(u32 place)
{
    u32 found;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(found) : "r"(place) : "memory");
    return found;
}
DEVICE u32 load_acquire(const u32 *flag)
{
    u32 found;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(__cvta_generic_to_global(flag)) : "memory");
    return found;
}
DEVICE u32 load_relaxed(const u32 *flag)
{
    u32 found;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(__cvta_generic_to_global(flag)) : "memory");
    return found;
}
DEVICE void store_release(u32 *flag, u32 value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}
DEVICE void store_relaxed(u32 *flag, u32 value)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}
DEVICE void add_relaxed(u32 *flag, u32 value)
{
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}
DEVICE bool elect()
{
    u32 chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen;
}

// wgmma m64n8k16 of f16, and m64n8k32 with a sparse A: tiles of 8 rows of 16 bytes, k fastest

enum { A_BYTES = 2048, B_BYTES = 256 };
DEVICE u64 tile_of(const void *tile, u32 leading = 128, u32 stride = 256)
{
    return (u64)(at(tile) >> 4 & 0x3FFF) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
DEVICE void wgmma(float (&d)[4], u64 a, u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory");
}
DEVICE void wgmma(float (&d)[4], u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
DEVICE void wgmma_sparse(float (&d)[4], u64 a, u64 b, u32 metadata)
{
    asm volatile("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, %6, 0, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(metadata) : "memory");
}
// Four sums of each thread of a warpgroup, where they belong in a matrix of 64 x 8.
DEVICE void put(float *out, float (&d)[4])
{
    u32 thread = threadIdx.x & 127, row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    out[row * 8 + column] = d[0];
    out[row * 8 + column + 1] = d[1];
    out[(row + 8) * 8 + column] = d[2];
    out[(row + 8) * 8 + column + 1] = d[3];
}
