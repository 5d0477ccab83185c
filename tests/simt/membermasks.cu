// What a card gives for shfl/vote/match/redux/elect.sync whose mask lacks the caller, or whose source lane
// is outside the mask, elsewhere, or has ended.   Usage: missed_shfl FIRST  (prints one JSON object a line;
// ends with status 0 after the last case, or with status 3 after a case that hung or failed: start again at
// the next number).   See missed_shfl.sh.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>

enum Op { UP, DOWN, BFLY, IDX, ALL, ANY, UNI, BALLOT, MATCH_ANY, MATCH_ALL, MATCH_ANY64, MATCH_ALL64,
          ADD, MIN, MAXS, AND, OR, XOR, ELECT, ACTIVE, OPS };
static const char* OP_NAMES[] = {"shfl.up", "shfl.down", "shfl.bfly", "shfl.idx", "vote.all", "vote.any", "vote.uni",
    "vote.ballot", "match.any.b32", "match.all.b32", "match.any.b64", "match.all.b64", "redux.add.u32", "redux.min.u32",
    "redux.max.s32", "redux.and.b32", "redux.or.b32", "redux.xor.b32", "elect", "activemask"};
constexpr unsigned RUNTIME = 0xBADBAD00u;  // the mask comes from memory, one for each lane

#define SHFL(mode) \
    asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; shfl.sync." mode ".b32 %0|q, %2, %3, %4, %5; selp.u32 %1, 1, 0, q;}" \
                 : "+r"(d), "+r"(p) : "r"(a), "r"(step), "r"(clamp), "r"(m) : "memory")
#define SHFLC(mode) \
    asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; shfl.sync." mode ".b32 %0|q, %2, %3, %4, %5; selp.u32 %1, 1, 0, q;}" \
                 : "+r"(d), "+r"(p) : "r"(a), "r"(step), "r"(clamp), "n"(MASK) : "memory")
#define VOTE(mode) \
    asm volatile("{.reg .pred q, r; setp.ne.u32 r, %2, 0; setp.ne.u32 q, %1, 0; vote.sync." mode ".pred q, r, %3; selp.u32 %1, 1, 0, q;}" \
                 : "+r"(d), "+r"(p) : "r"(t), "r"(m) : "memory")
#define VOTEC(mode) \
    asm volatile("{.reg .pred q, r; setp.ne.u32 r, %2, 0; setp.ne.u32 q, %1, 0; vote.sync." mode ".pred q, r, %3; selp.u32 %1, 1, 0, q;}" \
                 : "+r"(d), "+r"(p) : "r"(t), "n"(MASK) : "memory")
#define PLAIN(text, with, from) asm volatile(text : "+r"(d) : with(from), "r"(m) : "memory")
#define PLAINC(text, with, from) asm volatile(text : "+r"(d) : with(from), "n"(MASK) : "memory")
#define BOTH(text, with, from) \
    if constexpr (MASK == RUNTIME) PLAIN(text, with, from); else PLAINC(text, with, from)
#define PAIRED(text, with, from) \
    if constexpr (MASK == RUNTIME) \
        asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; " text " selp.u32 %1, 1, 0, q;}" : "+r"(d), "+r"(p) : with(from), "r"(m) : "memory"); \
    else \
        asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; " text " selp.u32 %1, 1, 0, q;}" : "+r"(d), "+r"(p) : with(from), "n"(MASK) : "memory")

template <int OP, unsigned MASK>
__global__ void measure(const unsigned* masks, const int* where, const unsigned* steps, const unsigned* values,
                        unsigned* out, unsigned spin) {
    unsigned lane = threadIdx.x, m = masks[lane], step = steps[lane];
    unsigned a = 0x1000 + lane, clamp = OP == UP ? 0 : 31, t = values[lane] % 3 == 0;
    unsigned one = 1u << lane, none = ~one, number = 0x100 + lane, odd = lane & 1, same = values[32];
    int negative = (int)lane - 16;
    unsigned long long odd64 = ((unsigned long long)odd << 40) | 5, same64 = ((unsigned long long)same << 40) | 5;
    unsigned d = 0xD000 + lane, p = lane & 1;  // what an instruction that writes nothing leaves
    int there = where[lane];
    if (there == 2) { out[lane] = 0xEEEE0002; out[32 + lane] = 2; asm volatile("exit;"); }
    if (there == 1) {  // elsewhere: not at this instruction while the others execute it
        long long start = clock64();
        while (clock64() - start < spin) {}
        out[lane] = 0xEEEE0001; out[32 + lane] = 2;
        asm volatile("exit;");
    }
    if constexpr (OP == UP) { if constexpr (MASK == RUNTIME) SHFL("up"); else SHFLC("up"); }
    if constexpr (OP == DOWN) { if constexpr (MASK == RUNTIME) SHFL("down"); else SHFLC("down"); }
    if constexpr (OP == BFLY) { if constexpr (MASK == RUNTIME) SHFL("bfly"); else SHFLC("bfly"); }
    if constexpr (OP == IDX) { if constexpr (MASK == RUNTIME) SHFL("idx"); else SHFLC("idx"); }
    if constexpr (OP == ALL) { if constexpr (MASK == RUNTIME) VOTE("all"); else VOTEC("all"); }
    if constexpr (OP == ANY) { if constexpr (MASK == RUNTIME) VOTE("any"); else VOTEC("any"); }
    if constexpr (OP == UNI) { if constexpr (MASK == RUNTIME) VOTE("uni"); else VOTEC("uni"); }
    if constexpr (OP == BALLOT) { BOTH("{.reg .pred r; setp.ne.u32 r, %1, 0; vote.sync.ballot.b32 %0, r, %2;}", "r", t); }
    if constexpr (OP == MATCH_ANY) { BOTH("match.any.sync.b32 %0, %1, %2;", "r", odd); }
    if constexpr (OP == MATCH_ALL) { PAIRED("match.all.sync.b32 %0|q, %2, %3;", "r", same); }
    if constexpr (OP == MATCH_ANY64) { BOTH("match.any.sync.b64 %0, %1, %2;", "l", odd64); }
    if constexpr (OP == MATCH_ALL64) { PAIRED("match.all.sync.b64 %0|q, %2, %3;", "l", same64); }
    if constexpr (OP == ADD) { BOTH("redux.sync.add.u32 %0, %1, %2;", "r", one); }
    if constexpr (OP == MIN) { BOTH("redux.sync.min.u32 %0, %1, %2;", "r", number); }
    if constexpr (OP == MAXS) { BOTH("redux.sync.max.s32 %0, %1, %2;", "r", negative); }
    if constexpr (OP == AND) { BOTH("redux.sync.and.b32 %0, %1, %2;", "r", none); }
    if constexpr (OP == OR) { BOTH("redux.sync.or.b32 %0, %1, %2;", "r", one); }
    if constexpr (OP == XOR) { BOTH("redux.sync.xor.b32 %0, %1, %2;", "r", one); }
    if constexpr (OP == ELECT) {
        if constexpr (MASK == RUNTIME)
            asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; elect.sync %0|q, %2; selp.u32 %1, 1, 0, q;}" : "+r"(d), "+r"(p) : "r"(m) : "memory");
        else
            asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; elect.sync %0|q, %2; selp.u32 %1, 1, 0, q;}" : "+r"(d), "+r"(p) : "n"(MASK) : "memory");
    }
    if constexpr (OP == ACTIVE) asm volatile("activemask.b32 %0;" : "=r"(d) : : "memory");
    out[lane] = d;
    out[32 + lane] = p;
}

typedef void (*Kernel)(const unsigned*, const int*, const unsigned*, const unsigned*, unsigned*, unsigned);

struct Setup { const char* name; unsigned constant; unsigned step; unsigned (*mask)(int); int (*where)(int); };
static int here(int) { return 0; }
static const Setup SETUPS[] = {
    {"all lanes, mask -1", 0xffffffffu, 16, [](int) { return 0xffffffffu; }, here},
    {"all lanes execute, each half names itself", 0, 16, [](int l) { return l < 16 ? 0xffffu : 0xffff0000u; }, here},
    {"all lanes execute, mask 0000ffff", 0xffffu, 16, [](int) { return 0xffffu; }, here},
    {"all lanes execute, mask 55555555", 0x55555555u, 1, [](int) { return 0x55555555u; }, here},
    {"lanes 16-31 elsewhere, mask 0000ffff", 0xffffu, 16, [](int) { return 0xffffu; }, [](int l) { return l < 16 ? 0 : 1; }},
    {"odd lanes elsewhere, mask 55555555", 0x55555555u, 1, [](int) { return 0x55555555u; }, [](int l) { return l & 1; }},
    {"lanes 16-31 ended, mask 0000ffff", 0xffffu, 16, [](int) { return 0xffffu; }, [](int l) { return l < 16 ? 0 : 2; }},
    {"lanes 16-31 ended, mask -1", 0xffffffffu, 16, [](int) { return 0xffffffffu; }, [](int l) { return l < 16 ? 0 : 2; }},
    {"odd lanes ended, mask -1", 0xffffffffu, 1, [](int) { return 0xffffffffu; }, [](int l) { return l & 1 ? 2 : 0; }},
    {"lanes 8-15 elsewhere, 16-31 ended, mask 000000ff", 0xffu, 8, [](int) { return 0xffu; }, [](int l) { return l < 8 ? 0 : l < 16 ? 1 : 2; }},
    {"lanes 16-31 elsewhere then ended, mask -1", 0xffffffffu, 16, [](int) { return 0xffffffffu; }, [](int l) { return l < 16 ? 0 : 1; }},
    {"all lanes execute, each names the lanes below it", 0, 1, [](int l) { return (1u << l) - 1; }, here},
    {"all lanes execute, each names itself and those below", 0, 1, [](int l) { return (2u << l) - 1; }, here},
    {"all lanes execute, each names all but itself", 0, 1, [](int l) { return ~(1u << l); }, here},
    {"all lanes execute, each names itself alone", 0, 1, [](int l) { return 1u << l; }, here},
    {"all lanes execute, mask 0", 0, 1, [](int) { return 0u; }, here},
    {"lanes 0-15 execute, each names the lanes below it, rest elsewhere", 0, 1, [](int l) { return (1u << l) - 1; }, [](int l) { return l < 16 ? 0 : 1; }},
    {"all lanes execute, even name the even, odd name all", 0, 1, [](int l) { return l & 1 ? 0xffffffffu : 0x55555555u; }, here},
};
constexpr int SETUP_COUNT = sizeof(SETUPS) / sizeof(SETUPS[0]);

template <int OP> Kernel pick(unsigned constant) {
    switch (constant) {
        case 0xffffffffu: return measure<OP, 0xffffffffu>;
        case 0xffffu: return measure<OP, 0xffffu>;
        case 0x55555555u: return measure<OP, 0x55555555u>;
        case 0xffu: return measure<OP, 0xffu>;
        default: return measure<OP, RUNTIME>;
    }
}
template <int OP = 0> Kernel kernel_of(int op, unsigned constant) {
    if constexpr (OP == OPS) return nullptr;
    else return op == OP ? pick<OP>(constant) : kernel_of<OP + 1>(op, constant);
}

int main(int count, char** words) {
    int first = count > 1 ? atoi(words[1]) : 0, number = 0;
    unsigned *masks, *steps, *values, *out; int* where;
    cudaMallocManaged(&masks, 128); cudaMallocManaged(&steps, 128); cudaMallocManaged(&values, 132);
    cudaMallocManaged(&out, 256); cudaMallocManaged(&where, 128);
    for (int op = 0; op < OPS; op++)
        for (int s = 0; s < SETUP_COUNT; s++)
            for (int constant = 0; constant < 2; constant++, number++) {
                const Setup& setup = SETUPS[s];
                if (constant && (!setup.constant || op == ACTIVE)) continue;
                if (number < first) continue;
                for (int l = 0; l < 32; l++) {
                    masks[l] = setup.mask(l); where[l] = setup.where(l); values[l] = l;
                    steps[l] = op == IDX ? l ^ setup.step : setup.step;
                    out[l] = out[32 + l] = 0xAAAAAAAA;
                }
                values[32] = 7;
                cudaDeviceSynchronize();
                kernel_of(op, constant ? setup.constant : RUNTIME)<<<1, 32>>>(masks, where, steps, values, out, 200000);
                cudaError_t error = cudaErrorNotReady;
                for (int wait = 0; wait < 3000 && error == cudaErrorNotReady; wait++) {
                    error = cudaStreamQuery(0);
                    if (error == cudaErrorNotReady) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                const char* status = error == cudaErrorNotReady ? "hang" : cudaGetErrorName(error);
                printf("{\"number\": %d, \"op\": \"%s\", \"setup\": \"%s\", \"mask\": \"%s\", \"status\": \"%s\"", number,
                       OP_NAMES[op], setup.name, constant ? "constant" : "register", status);
                if (error == cudaSuccess) {
                    printf(", \"d\": [");
                    for (int l = 0; l < 32; l++) printf("%s%u", l ? ", " : "", out[l]);
                    printf("], \"p\": [");
                    for (int l = 0; l < 32; l++) printf("%s%u", l ? ", " : "", out[32 + l]);
                    printf("]");
                }
                printf("}\n");
                fflush(stdout);
                if (error != cudaSuccess) _Exit(3);
            }
    return 0;
}
