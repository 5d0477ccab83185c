"""PTX and CUDA C++ source of instructions and of kernels around them."""
