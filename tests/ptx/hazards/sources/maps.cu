// Copies by tensor maps, given by the host or made on the device.
#include "hopper.cuh"

// A box of 16 x 8 words of a tensor of 32 x 16.
KERNEL box(const __grid_constant__ Map map, u32 *out, const u32 *tensor)
{
    __shared__ alignas(128) u32 tile[128];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, BUG == 2 ? 256 : 512); // 2: only what is inside the tensor
        load_box(tile, &map, 16, 12, &full);
    }
    __syncthreads();
    if (BUG != 1)
        wait(&full, 0);
    out[threadIdx.x] = get(&tile[threadIdx.x]);
    wait(&full, 0);
}

// A box is stored.
KERNEL stored_box(const __grid_constant__ Map map, u32 *tensor)
{
    __shared__ alignas(128) u32 tile[128];
    tile[threadIdx.x] = 5 * threadIdx.x;
    if (BUG == 0)
        fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(&map, 16, 12, tile);
        commit_stores();
        wait_read<0>();
    }
}

// The map is wherever the pointer says.
KERNEL pointed(const Map *map, u32 *out)
{
    __shared__ alignas(128) u32 tile[128];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 512);
        load_box(tile, map, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}

#define REPLACE(field, type, ...) \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type " [%0], " __VA_ARGS__ : "memory")

DEVICE void describe(Map *map, const u32 *tensor, u32 rows)
{
    u32 to = at(map);
    REPLACE("global_address", "b64", "%1;" ::"r"(to), "l"(__cvta_generic_to_global(tensor)));
    REPLACE("rank", "b32", "%1;" ::"r"(to), "r"(1));
    REPLACE("box_dim", "b32", "0, %1;" ::"r"(to), "r"(16));
    REPLACE("box_dim", "b32", "1, %1;" ::"r"(to), "r"(8));
    REPLACE("global_dim", "b32", "0, %1;" ::"r"(to), "r"(32));
    REPLACE("global_dim", "b32", "1, %1;" ::"r"(to), "r"(rows));
    REPLACE("global_stride", "b64", "0, %1;" ::"r"(to), "l"(128ull));
    REPLACE("element_stride", "b32", "0, %1;" ::"r"(to), "r"(1));
    REPLACE("element_stride", "b32", "1, %1;" ::"r"(to), "r"(1));
    REPLACE("elemtype", "b32", "2;" ::"r"(to));
    REPLACE("interleave_layout", "b32", "0;" ::"r"(to));
    REPLACE("swizzle_mode", "b32", "0;" ::"r"(to));
    REPLACE("fill_mode", "b32", "0;" ::"r"(to));
}
DEVICE void publish(Map *to, const Map *from)
{
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(at(from)) : "memory");
}
DEVICE void acquire(const Map *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// A map is made, published and used by one warp; then it is made anew.
KERNEL made_map(const u32 *tensor, Map *maps, u32 *out)
{
    __shared__ alignas(128) Map map;
    __shared__ alignas(128) u32 tile[2][128];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        fence_init();
    }
    map.words[threadIdx.x] = 0;
    __syncwarp();
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x == 0)
            describe(&map, tensor + 32 * 8 * i, 8 - 2 * i);
        __syncwarp();
        publish(maps, &map);
        if (BUG != 1)
            acquire(maps);
        __syncwarp();
        if (threadIdx.x == 0) {
            arrive_expect(&full[i], 512);
            load_box(tile[i], maps, 8, 0, &full[i]);
        }
        __syncwarp();
        if (BUG != 2)
            wait(&full[i], 0);
    }
    wait(&full[0], 0);
    wait(&full[1], 0);
    for (int i = 0; i < 8; i++)
        out[32 * i + threadIdx.x] = tile[i / 4][32 * (i % 4) + threadIdx.x];
}

// Loads in a bulk group: wait_group.read says that the map has been read.
KERNEL read_map(const u32 *tensor, Map *maps, u32 *out)
{
    __shared__ alignas(128) Map map;
    __shared__ alignas(128) u32 tile[128];
    for (int i = 0; i < 4; i++)
        tile[32 * i + threadIdx.x] = 32 * i + threadIdx.x;
    map.words[threadIdx.x] = 0;
    fence_async();
    __syncwarp();
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x == 0)
            describe(&map, out + 256 * i, 8);
        __syncwarp();
        publish(maps, &map);
        acquire(maps);
        __syncwarp();
        if (threadIdx.x == 0) {
            store_box(maps, 0, 0, tile);
            commit_stores();
            if (BUG == 0)
                wait_read<0>();
        }
        __syncwarp();
    }
    if (threadIdx.x == 0)
        wait_stores<0>();
}
