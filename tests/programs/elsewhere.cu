// What recorded.cu uses if it is relocatable code.
__device__ int added[2] = {1000, 2000};
static __device__ int counter = 3;  // another one than that of recorded.cu
__device__ int shown(int value) { return value * counter; }
