// Control flow: divergence, recursion, calls through pointers, tables of jumps.
#include <cuda_fp16.h>

#include "common.cuh"

// Ackermann's function: recursion of which the compiler knows no depth.
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

KERNEL recursion(const unsigned *m, const unsigned *n, unsigned *out) {
    out[global_id()] = ackermann(m[global_id()], n[global_id()]);
}

// Quicksort of a small array, each thread its own: recursion with local memory.
__device__ __noinline__ void quicksort(int *line, int low, int high) {
    if (low >= high) return;
    int pivot = line[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (line[i] < pivot) i++;
        while (line[j] > pivot) j--;
        if (i <= j) {
            int swap = line[i];
            line[i++] = line[j];
            line[j--] = swap;
        }
    }
    quicksort(line, low, j);
    quicksort(line, i, high);
}

KERNEL quicksorts(const int *x, int *y, int n) {
    int line[24];
    for (int i = 0; i < n; i++) line[i] = x[global_id() * n + i];
    quicksort(line, 0, n - 1);
    for (int i = 0; i < n; i++) y[global_id() * n + i] = line[i];
}

__device__ __noinline__ int twice(int a, int b) { return a * 2 + b; }
__device__ __noinline__ int mixed(int a, int b) { return (a ^ b) * 31; }
__device__ __noinline__ int digits(int a, int b) {
    int sum = b;
    for (unsigned rest = abs(a); rest; rest /= 10) sum += rest % 10;
    return sum;
}
using Step = int (*)(int, int);
__device__ Step steps[3] = {twice, mixed, digits};

// The pointer differs from lane to lane.
KERNEL function_pointers(const int *x, int *y, int rounds) {
    int value = x[global_id()];
    for (int i = 0; i < rounds; i++) value = steps[(value + i & 0x7fffffff) % 3](value, i);
    y[global_id()] = value;
}

struct Shape {
    float size;
    __device__ Shape(float s) : size(s) {}
    __device__ virtual float area() const = 0;
    __device__ virtual float grow(float by) { return size += by; }
};
struct Square : Shape {
    __device__ Square(float s) : Shape(s) {}
    __device__ float area() const override { return size * size; }
};
struct Disc : Shape {
    __device__ Disc(float s) : Shape(s) {}
    __device__ float area() const override { return 3.14159265f * size * size; }
    __device__ float grow(float by) override { return size *= by; }
};

KERNEL virtual_functions(const float *x, float *y) {
    Square square(x[global_id()]);
    Disc disc(x[global_id()] * 0.5f);
    Shape *shapes[2] = {&square, &disc};
    float sum = 0;
    for (int i = 0; i < 5; i++) {
        Shape *shape = shapes[(threadIdx.x >> i) & 1];
        sum += shape->area() + shape->grow(1.25f);
    }
    y[global_id()] = sum;
}

// A machine with a small stack runs a program: a switch with many cases (brx.idx).
KERNEL interpreter(const unsigned char *program, int length, const int *input, int *out) {
    int stack[16] = {}, top = 0, at = 0, x = input[global_id()], rounds = 0;
    while (at < length && rounds++ < 200) {
        unsigned char code = program[at++];
        int a = top > 0 ? stack[top - 1] : 0, b = top > 1 ? stack[top - 2] : 0;
        switch (code & 15) {
        case 0: stack[top < 15 ? top++ : 15] = x; break;
        case 1: stack[top < 15 ? top++ : 15] = code >> 4; break;
        case 2: stack[max(top - 1, 0)] = a + 3; break;
        case 3: if (top > 1) stack[--top - 1] = b + a; break;
        case 4: if (top > 1) stack[--top - 1] = b - a; break;
        case 5: if (top > 1) stack[--top - 1] = b * a; break;
        case 6: if (top > 1) stack[--top - 1] = a ? b / a : 0; break;
        case 7: if (top > 1) stack[--top - 1] = a ? b % a : 1; break;
        case 8: if (top > 0) stack[top - 1] = __popc(a); break;
        case 9: if (top > 1) stack[top - 1] = b, stack[top - 2] = a; break;
        case 10: if (a & 1) at += code >> 6; break;
        case 11: if (a > b && rounds < 100) at = max(0, at - (code >> 5)); break;
        case 12: x = x * 17 + a; break;
        case 13: if (top > 0) stack[top - 1] = -a; break;
        case 14: if (top > 0) top--; break;
        default: stack[(code >> 4) & 15] ^= a; break;
        }
    }
    out[global_id()] = top > 0 ? stack[top - 1] + x : x;
}

// Each pixel leaves its loop at its own time.
KERNEL mandelbrot(int *counts, int width, float left, float bottom, float step, int most) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y, n = 0;
    float cx = left + px * step, cy = bottom + py * step, x = 0, y = 0;
    while (n < most && x * x + y * y < 4.0f) {
        float next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        n++;
    }
    counts[py * width + px] = n;
}

// Nested loops with break, continue, goto and return from the middle.
KERNEL tangle(const int *x, int *y, int n) {
    int i = global_id(), value = x[i], sum = 0;
    if (i >= n) return;
    for (int a = 0; a < 12; a++) {
        if ((value >> a & 3) == 3) continue;
        int b = a;
    again:
        while (b < 40) {
            sum += b * value;
            b += 1 + (sum & 3);
            if (sum % 11 == 0) break;
            if (sum % 7 == 3) {
                value ^= sum;
                a++;
                goto again;
            }
            if (sum < -2000000) {
                y[i] = sum;
                return;
            }
        }
        if (b > 35) sum -= b;
    }
    y[i] = sum ^ value;
}

// The number of steps to 1, with warps whose lanes meet again after each start.
KERNEL collatz(int *steps_of, unsigned *highest, int n) {
    for (int start = global_id() + 1; start <= n; start += gridDim.x * blockDim.x) {
        unsigned long long value = start, top = start;
        int count = 0;
        for (; value != 1; count++) {
            value = value & 1 ? 3 * value + 1 : value / 2;
            if (value > top) top = value;
        }
        steps_of[start - 1] = count;
        highest[start - 1] = __reduce_max_sync(__activemask(), start) > n ? 0 : static_cast<unsigned>(top);
    }
}

struct __align__(8) Inner { short a; signed char b[3]; float c; };
struct Outer {
    double scale;
    Inner inner[2];
    int shift;
    unsigned char flags;
};

__device__ __noinline__ Outer changed(Outer o, int by) {
    o.inner[by & 1].a += by;
    o.scale *= 1.5;
    o.flags ^= by;
    return o;
}

// A struct by value as the kernel's parameter, and as parameter and result of a function.
KERNEL struct_by_value(Outer o, const int *x, double *y, bool negate, short offset, unsigned char times) {
    int i = global_id();
    Outer p = changed(o, x[i]);
    double value = p.scale * p.inner[x[i] & 1].a + p.inner[1].c + p.inner[0].b[i % 3] + offset;
    for (int n = 0; n < times; n++) value += p.flags >> n & 1;
    y[i] = ldexp(negate ? -value : value, p.shift);
}

// A local array with places known at run time only, passed on by address.
__device__ __noinline__ void rotate(unsigned char *line, int n, int by) {
    for (; by > 0; by--) {
        unsigned char first = line[0];
        for (int i = 0; i + 1 < n; i++) line[i] = line[i + 1];
        line[n - 1] = first;
    }
}

KERNEL local_arrays(const unsigned char *x, unsigned char *y) {
    unsigned char line[40];
    int counts[8] = {};
    for (int i = 0; i < 40; i++) line[i] = x[global_id() * 40 + i];
    rotate(line, 40, threadIdx.x % 5);
    for (int i = 0; i < 40; i++) counts[line[i] & 7] += i;
    for (int i = 0; i < 40; i++) y[global_id() * 40 + i] = line[i] ^ counts[line[39 - i] & 7];
}

struct Table { int rows[3][4]; float factor[4]; };

// A parameter that stays where it is: its address is taken, and places are computed.
KERNEL grid_constant(const __grid_constant__ Table table, const int *x, float *y) {
    const int *row = table.rows[x[global_id()] % 3];
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += row[(i + threadIdx.x) & 3] * table.factor[row[i] & 3];
    y[global_id()] = sum;
}

// A stack frame whose size is known at run time only.
KERNEL dynamic_stack(const int *sizes, const short *x, int *y) {
    int n = sizes[global_id()], sum = 0;
    short *line = static_cast<short *>(alloca(n * sizeof(short)));
    for (int i = 0; i < n; i++) line[i] = x[(global_id() + i * 7) % 256];
    for (int i = n - 1; i > 0; i--)
        if (line[i - 1] > line[i]) {
            short swap = line[i];
            line[i] = line[i - 1];
            line[i - 1] = swap;
        }
    for (int i = 0; i < n; i++) sum = sum * 31 + line[i];
    y[global_id()] = sum;
}
