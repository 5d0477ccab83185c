// Mixtures of experts: one launch multiplies the weights of all experts with their tokens.
//
// The rows of B are tokens, sorted by expert.  `ends` has the number of tokens up to and
// with each expert.  It is read on the device: nobody has to know it before the launch.
// A column of tiles has tokens of one expert only, so the last one of an expert may be
// narrower than others.  What it reads beyond its end are tokens of the next expert.
// Their products are not stored.
//
// If the launcher says that the previous kernel does not write `ends`, they are read
// before it has ended, and so are the first stages of A.
//
// Numbers that do not ascend, or that are outside of B, are bounded: no address is wrong.

#if GROUPED
constexpr int EXPERTS_PER_LANE = (MOST_EXPERTS + 31) / 32;

// Where the experts are; in shared memory, and complete after the block's first barrier.
struct Experts {
    const int* bounds;   // the first token of each expert, and the end of the last one
    const int* columns;  // the columns of tiles before each expert, and all of them
    int count;
};

// What one warp does before: each lane adds the columns of some experts.
__device__ __forceinline__ void list_experts(
    int* bounds, int* columns, const int* ends, int experts, int tokens) {
    int lane = threadIdx.x % 32, per = (experts + 31) / 32, from = lane * per;
    auto end_of = [&](int expert) {  // all loads are on their way together
        bool there = expert >= 0 && expert < experts;
        return there ? min(max(((const volatile int*)ends)[expert], 0), tokens) : 0;
    };
    int before = end_of(from - 1), end[EXPERTS_PER_LANE], sum = 0;
#pragma unroll
    for (int i = 0; i < EXPERTS_PER_LANE; i++)
        end[i] = end_of(i < per ? from + i : experts);
#pragma unroll
    for (int i = 0; i < EXPERTS_PER_LANE; i++) {
        if (i >= per || from + i >= experts) continue;
        bounds[from + i + 1] = end[i];
        sum += (max(end[i] - before, 0) + TILE_N - 1) / TILE_N;
        before = end[i];
        end[i] = sum;
    }
    int all = sum;
#pragma unroll
    for (int x = 1; x < 32; x *= 2) {
        int other = __shfl_up_sync(~0u, all, x);
        if (lane >= x) all += other;
    }
#pragma unroll
    for (int i = 0; i < EXPERTS_PER_LANE; i++)
        if (i < per && from + i < experts) columns[from + i + 1] = all - sum + end[i];
    if (lane == 0) bounds[0] = 0, columns[0] = 0;
}

// The expert of a column of tiles: so many experts end at or before it.
__device__ __forceinline__ int expert_at(const Experts& experts, int column) {
    int low = 0, high = experts.count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (experts.columns[middle + 1] <= column) low = middle + 1;
        else high = middle;
    }
    return low;
}
#endif
