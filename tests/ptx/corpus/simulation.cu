// Small simulations and dynamic programs: many steps, barriers between them.
#include <cuda_fp16.h>

#include "common.cuh"

KERNEL nbody(const float4 *bodies, float4 *forces, int n) {
    __shared__ float4 tile[64];
    float4 mine = bodies[global_id()], force = {0, 0, 0, 0};
    for (int first = 0; first < n; first += 64) {
        __syncthreads();
        tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int i = 0; i < 64; i++) {
            float x = tile[i].x - mine.x, y = tile[i].y - mine.y, z = tile[i].z - mine.z;
            float inverse = rsqrtf(x * x + y * y + z * z + 0.01f), pull = tile[i].w * inverse * inverse * inverse;
            force.x += x * pull, force.y += y * pull, force.z += z * pull, force.w += pull;
        }
    }
    forces[global_id()] = force;
}

// Conway's game on a torus of 32 x 32 bits: a lane has a row, its neighbours' by shuffle.
KERNEL life(unsigned *rows, int generations) {
    unsigned row = rows[global_id()], lane = lane_id();
    for (int g = 0; g < generations; g++) {
        unsigned line[3] = {__shfl_sync(~0u, row, lane + 31), row, __shfl_sync(~0u, row, lane + 1)};
        unsigned ones = 0, twos = 0, fours = 0;
        for (int i = 0; i < 9; i++) {
            if (i == 4) continue;
            unsigned bits = __funnelshift_l(line[i / 3], line[i / 3], (i % 3 + 31) % 32), carry = ones & bits;
            ones ^= bits;
            fours |= twos & carry;
            twos ^= carry;
        }
        row = twos & ~fours & (ones | row);
    }
    rows[global_id()] = row;
}

// Fourier transform of 2^k points in shared memory; the roots of unity by sincospif.
KERNEL fft(float2 *signal, int n) {
    extern __shared__ float2 points[];
    int t = threadIdx.x, bits = __ffs(n) - 1;
    for (int i = t; i < n; i += blockDim.x) points[__brev(i) >> (32 - bits)] = signal[blockIdx.x * n + i];
    for (int half = 1; half < n; half *= 2) {
        __syncthreads();
        for (int i = t; i < n / 2; i += blockDim.x) {
            int low = i / half * half * 2 + i % half;
            float s, c;
            sincospif(-static_cast<float>(i % half) / half, &s, &c);
            float2 a = points[low], b = points[low + half];
            float2 turned = {b.x * c - b.y * s, b.x * s + b.y * c};
            points[low] = {a.x + turned.x, a.y + turned.y};
            points[low + half] = {a.x - turned.x, a.y - turned.y};
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) signal[blockIdx.x * n + i] = points[i];
}

// The edit distance of two words, along diagonals of the table.
KERNEL edit_distance(const char *a, const char *b, int *distance, int na, int nb) {
    __shared__ int lines[3][130];
    const char *x = a + blockIdx.x * na, *y = b + blockIdx.x * nb;
    for (int diagonal = 0; diagonal <= na + nb; diagonal++) {
        int *now = lines[diagonal % 3], *before = lines[(diagonal + 2) % 3], *older = lines[(diagonal + 1) % 3];
        for (int i = threadIdx.x; i <= min(diagonal, na); i += blockDim.x) {
            int j = diagonal - i;
            if (j > nb) continue;
            if (i == 0 || j == 0)
                now[i] = i + j;
            else
                now[i] = min(min(before[i], before[i - 1]) + 1, older[i - 1] + (x[i - 1] != y[j - 1]));
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) distance[blockIdx.x] = lines[(na + nb) % 3][na];
}

// Shortest paths between all pairs of 32 nodes, in one block.
KERNEL shortest_paths(float *lengths, int n) {
    __shared__ float d[32][33];
    int i = threadIdx.y, j = threadIdx.x;
    d[i][j] = lengths[i * n + j];
    for (int k = 0; k < n; k++) {
        __syncthreads();
        float through = d[i][k] + d[k][j];
        __syncthreads();
        if (through < d[i][j]) d[i][j] = through;
    }
    lengths[i * n + j] = d[i][j];
}

// Breadth-first search over rows of neighbours; the frontier is a queue in shared memory.
// A node's depth does not depend on who finds it first.
KERNEL breadth_first(const int *starts, const int *neighbours, int *depth, int n) {
    __shared__ int queue[512], head, tail, next;
    for (int i = threadIdx.x; i < n; i += blockDim.x) depth[i] = i == 0 ? 0 : -1;
    if (threadIdx.x == 0) queue[0] = 0, head = 0, tail = next = 1;
    __syncthreads();
    while (head < tail) {
        for (int at = head + threadIdx.x; at < tail; at += blockDim.x) {
            int node = queue[at];
            for (int e = starts[node]; e < starts[node + 1]; e++) {
                int other = neighbours[e];
                if (atomicCAS(&depth[other], -1, depth[node] + 1) == -1) queue[atomicAdd(&next, 1)] = other;
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) head = tail, tail = next;
        __syncthreads();
    }
}

// Sparse matrix times vector: rows of any length, a warp for each.
KERNEL spmv(const int *starts, const int *columns, const double *values, const double *x, double *y, int rows) {
    for (int row = global_id() / 32; row < rows; row += gridDim.x * blockDim.x / 32) {
        double sum = 0;
        for (int i = starts[row] + lane_id(); i < starts[row + 1]; i += 32) sum += values[i] * __ldg(&x[columns[i]]);
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (lane_id() == 0) y[row] = sum;
    }
}

// Conjugate gradients for a tridiagonal system, until the remainder is small.
KERNEL conjugate_gradients(const double *b, double *x, int *rounds, double tolerance) {
    __shared__ double line[66], parts[2];
    int t = threadIdx.x;
    auto dot = [&](double u, double v) {
        double sum = u * v;
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (lane_id() == 0) parts[warp_id()] = sum;
        __syncthreads();
        sum = parts[0] + parts[1];
        __syncthreads();
        return sum;
    };
    double solution = 0, rest = b[t], direction = rest, norm = dot(rest, rest);
    if (t == 0) line[0] = line[65] = 0;
    int n = 0;
    while (norm > tolerance && n < 200) {
        line[t + 1] = direction;
        __syncthreads();
        double image = 2.5 * direction - line[t] - line[t + 2];
        double alpha = norm / dot(direction, image);
        solution += alpha * direction;
        rest -= alpha * image;
        double next = dot(rest, rest);
        direction = rest + next / norm * direction;
        norm = next;
        n++;
    }
    x[t] = solution;
    if (t == 0) *rounds = n;
}
