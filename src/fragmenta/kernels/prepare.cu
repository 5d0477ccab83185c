// Prune, compress and pack a dense matrix in one pass; count the bits of rows.
//
// Set by the launcher: ELEMENT (an unsigned type as wide as an element), SIGNED,
// MAGNITUDE (its bits), INFINITY_KEY (magnitudes above are NaN, all alike),
// ONE_OF_TWO, BLOCK_BYTES, and the tables VALUE_PLACES and CODE_PLACES: where in a
// packed block the 16-byte unit and the codes of row r, unit u go, at 4 r + u.

typedef unsigned int u32;
typedef unsigned short u16;

constexpr int ITEM = sizeof(ELEMENT);
constexpr int COUNT = 32 / ITEM;  // elements of a row that become one unit
constexpr int CHUNK = ONE_OF_TWO ? 2 : 4;
constexpr int CODE_BYTES = COUNT / CHUNK / 2;
constexpr int VALUES = 4096;  // bytes of a block before its metadata

__constant__ u16 value_places[256] = {VALUE_PLACES};
__constant__ u16 code_places[256] = {CODE_PLACES};

__device__ __forceinline__ u32 key(ELEMENT bits) {
#if SIGNED
    int value = static_cast<signed char>(bits);
    return value < 0 ? -value : value;
#else
    return min(static_cast<u32>(bits & MAGNITUDE), static_cast<u32>(INFINITY_KEY));
#endif
}

__device__ __forceinline__ bool is_value(ELEMENT bits) {
    return (bits & MAGNITUDE) != 0;
}

// The two greatest of four stay, of equals the lower; then two are stored, zeros of
// place 2 and then 3 where there are not as many.
__device__ __forceinline__ u32 two_of_four(const ELEMENT* in, ELEMENT* stored) {
    u32 k0 = key(in[0]), k1 = key(in[1]), k2 = key(in[2]), k3 = key(in[3]);
    int b01 = k1 > k0, b02 = k2 > k0, b03 = k3 > k0;
    int b12 = k2 > k1, b13 = k3 > k1, b23 = k3 > k2;
    ELEMENT p0 = b01 + b02 + b03 < 2 ? in[0] : 0;
    ELEMENT p1 = 1 - b01 + b12 + b13 < 2 ? in[1] : 0;
    ELEMENT p2 = 2 - b02 - b12 + b23 < 2 ? in[2] : 0;
    ELEMENT p3 = 3 - b03 - b13 - b23 < 2 ? in[3] : 0;
    bool has0 = is_value(p0), has1 = is_value(p1), has3 = is_value(p3);
    bool both = has0 && has1, last = has3 || !(has0 || has1);
    stored[0] = has0 ? p0 : has1 ? p1 : p2;
    stored[1] = both ? p1 : last ? p3 : p2;
    u32 first = has0 ? 0 : has1 ? 1 : 2;
    return first | (both ? 0b0100 : last ? 0b1100 : 0b1000);
}

__device__ __forceinline__ u32 one_of_two(const ELEMENT* in, ELEMENT* stored) {
    bool second = key(in[1]) > key(in[0]);
    bool has0 = !second && is_value(in[0]);
    stored[0] = has0 ? in[0] : second ? in[1] : 0;
    return has0 ? 0b0100 : 0b1110;
}

struct alignas(16) Unit { ELEMENT at[COUNT / 2]; };
struct alignas(16) Two { Unit half[2]; };

// One block of threads makes one packed block: 64 rows of one stage.
extern "C" __global__ void __launch_bounds__(256) compress(
    const char* __restrict__ matrix, long long pitch, int rows, long long width,
    char* __restrict__ packed) {
    __shared__ alignas(16) char codes_of_block[BLOCK_BYTES - VALUES];
    int row = threadIdx.x / 4, unit = threadIdx.x % 4;
    // Packed order is [256 rows][stage][64 rows].
    long long stage = blockIdx.x;
    int at_row = blockIdx.y * 64 + row;
    long long at = stage * 128 + unit * 32;
    Two in{};
    if (at_row < rows && at + 32 <= width) {
        const uint4* from = reinterpret_cast<const uint4*>(matrix + at_row * pitch + at);
        reinterpret_cast<uint4*>(&in)[0] = __ldcs(from);
        reinterpret_cast<uint4*>(&in)[1] = __ldcs(from + 1);
    } else if (at_row < rows) {
        const ELEMENT* from =
            reinterpret_cast<const ELEMENT*>(matrix + at_row * pitch + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (at + (i + 1) * ITEM <= width)
                in.half[2 * i / COUNT].at[i % (COUNT / 2)] = from[i];
    }
    Unit out;
    u32 codes = 0;
#pragma unroll
    for (int i = 0; i < COUNT / CHUNK; i++) {
        const ELEMENT* chunk = &in.half[0].at[0] + i * CHUNK;
#if ONE_OF_TWO
        codes |= one_of_two(chunk, &out.at[i]) << 4 * i;
#else
        codes |= two_of_four(chunk, &out.at[2 * i]) << 4 * i;
#endif
    }
    long long number =
        (static_cast<long long>(blockIdx.y / 4) * gridDim.x + stage) * 4 + blockIdx.y % 4;
    char* block = packed + number * BLOCK_BYTES;
    reinterpret_cast<uint4*>(block)[value_places[threadIdx.x]] =
        *reinterpret_cast<uint4*>(&out);
    char* code = codes_of_block + code_places[threadIdx.x];
    if (CODE_BYTES == 4) *reinterpret_cast<u32*>(code) = codes;
    else *reinterpret_cast<u16*>(code) = codes;
    __syncthreads();
    if (threadIdx.x < (BLOCK_BYTES - VALUES) / 16)
        reinterpret_cast<uint4*>(block + VALUES)[threadIdx.x] =
            reinterpret_cast<uint4*>(codes_of_block)[threadIdx.x];
}

// One warp counts the bits of one row; rows begin on multiples of 16 bytes.
extern "C" __global__ void __launch_bounds__(256) count_bits(
    const char* __restrict__ matrix, long long pitch, int rows, long long width,
    int* __restrict__ counts) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const char* from = matrix + row * pitch;
    int count = 0;
    for (long long i = lane * 16; i + 16 <= width; i += 512) {
        uint4 x = *reinterpret_cast<const uint4*>(from + i);
        count += __popc(x.x) + __popc(x.y) + __popc(x.z) + __popc(x.w);
    }
    for (long long i = width / 16 * 16 + lane; i < width; i += 32)
        count += __popc(static_cast<unsigned char>(from[i]));
    count = __reduce_add_sync(~0u, count);
    if (lane == 0) counts[row] = count;
}
