// Numbers are quantised to bytes, which go through memory, words and products.
// STEPS is how many steps of a byte the largest number is: with 127 all of them fit.

#ifndef SUM
#define SUM int
#endif
#ifndef STEPS
#define STEPS 127.0f
#endif
#ifndef COUNT
#define COUNT 2
#endif
#ifndef ZERO
#define ZERO 0.0f
#endif

__device__ int code(float x)
{
    return __float2int_rn(x * STEPS);
}

extern "C" __global__ void through_bytes(float *y, const float *a, const float *b)
{
    __shared__ signed char p[32][32], q[32][32];
    for (int i = 0; i < 32; i++) {
        p[threadIdx.x][i] = code(a[32 * threadIdx.x + i]);  // wraps
        q[threadIdx.x][i] = code(b[32 * threadIdx.x + i]);
    }
    __syncthreads();
    int sum = 0, other = threadIdx.x ^ 1;
    for (int i = 0; i < 32; i++)
        sum += p[other][i] * q[other][i];
    y[other] = sum * (1.0f / (STEPS * STEPS));
}

__device__ int word(const float *x)
{
    int made = 0;
    for (int i = 0; i < 4; i++)
        made |= (code(x[i]) & 0xff) << 8 * i;  // wraps
    return made;
}

extern "C" __global__ void through_words(float *y, const float *a, const float *b)
{
    __shared__ int p[32][8], q[32][8];
    for (int i = 0; i < 8; i++) {
        p[threadIdx.x][i] = word(a + 32 * threadIdx.x + 4 * i);
        q[threadIdx.x][i] = word(b + 32 * threadIdx.x + 4 * i);
    }
    __syncthreads();
    int sum = 0, other = threadIdx.x ^ 1;
    for (int i = 0; i < 8; i++)
        sum = __dp4a(p[other][i], q[other][i], sum);
    y[other] = sum * (1.0f / (STEPS * STEPS));
}

extern "C" __global__ void through_permutations(float *y, const float *a, const float *b)
{
    a += 32 * threadIdx.x;
    b += 32 * threadIdx.x;
    int sum = 0;
    for (int i = 0; i < 32; i += 4) {
        int low = __byte_perm(code(a[i]), code(a[i + 1]), 0x3340);
        int high = __byte_perm(code(a[i + 2]), code(a[i + 3]), 0x3340);
        sum = __dp4a((int)__byte_perm(low, high, 0x5410), word(b + i), sum);
    }
    y[threadIdx.x] = sum * (1.0f / (STEPS * STEPS));
}

// What is stored, and converted from bytes one by one.
extern "C" __global__ void stored(float *y, signed char *q, const float *a, const float *b)
{
    char4 four;
    int i = 4 * threadIdx.x;
    four.x = code(a[i]);
    four.y = code(a[i + 1]);
    four.z = code(a[i + 2]);
    four.w = code(a[i + 3]);
    ((char4 *)q)[threadIdx.x] = four;
    __syncwarp();
    y[threadIdx.x] = (q[i] - q[i + 1] + q[i + 2] - q[i + 3]) * (1.0f / STEPS);
}

// Sixteen bits are enough for some of the sums.
extern "C" __global__ void in_halves(float *y, const float *a, const float *b)
{
    a += 32 * threadIdx.x;
    b += 32 * threadIdx.x;
    short sum = 0;
    for (int i = 0; i < COUNT; i++) {
        int p = min(127, max(-127, __float2int_rn(a[i] * 127.0f)));
        int q = min(127, max(-127, __float2int_rn(b[i] * 127.0f)));
        sum += p * q;
    }
    y[threadIdx.x] = sum * (1.0f / (127.0f * 127.0f));
}

// A zero point in float: numbers from 0 on, of which 128 is too much.
extern "C" __global__ void zero_point(float *y, unsigned char *q, const float *x)
{
    float found = fminf(255.0f, fmaxf(0.0f, rintf(x[threadIdx.x] * 200.0f) + ZERO));
    q[threadIdx.x] = (unsigned char)found;
    y[threadIdx.x] = (found - ZERO) * (1.0f / 200.0f);
}

// Bytes that the launch was given; SUM is the type of their sum.
extern "C" __global__ void given_bytes(float *y, const signed char *a, const signed char *b)
{
    SUM sum = 0;
    for (int i = 0; i < 32; i++)
        sum += a[32 * threadIdx.x + i] * b[32 * threadIdx.x + i];
    int all = sum;
    all += __shfl_xor_sync(0xffffffff, all, 1);
    y[threadIdx.x] = all * 0.001f;
}

// Codes of four bits, and zero points that need not be integers.
extern "C" __global__ void codes(float *y, const unsigned *q, const float *zero)
{
    int z = zero[threadIdx.x];
    for (int j = 0; j < 8; ++j)
        y[8 * threadIdx.x + j] = ((int)((q[threadIdx.x] >> (4 * j)) & 15) - z) * 0.125f;
}

// The same cut is meant: it is a place, too, or the rest is used.
extern "C" __global__ void places(float *y, const unsigned *q, const float *at)
{
    int place = at[threadIdx.x];
    float rest = at[threadIdx.x] - place;
    y[threadIdx.x] = ((int)(q[place & 31] & 15) - place) * 0.125f + rest;
}

#ifdef ROUND
// Sums of products as bytes: ROUND makes integers of what their scale leaves.
extern "C" __global__ void requantised(signed char *q, const int *sums, float scale)
{
    q[threadIdx.x] = (signed char)max(-128, min(127, (int)(ROUND(sums[threadIdx.x] * scale))));
}

// The same without a range.
extern "C" __global__ void as_bytes(signed char *q, const int *sums, float scale)
{
    q[threadIdx.x] = (signed char)(ROUND(sums[threadIdx.x] * scale));
}

// A table of 16 places: what is below the first is the first.
extern "C" __global__ void looked_up(float *y, const float *x, float scale)
{
    float table[16];
    for (int i = 0; i < 16; i++) table[i] = 1.0f / (1 + i);
    y[threadIdx.x] = table[max(0, min(15, (int)(x[threadIdx.x] * scale)))];
}
#endif
