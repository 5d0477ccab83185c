"""Matrix multiplication kernels for Hopper GPUs, with a sparse or a dense A.

    config    the kernel for a product: types, tile, epilogue
    packing   the order of a sparse A in memory, so that one copy brings a tile
    four_bits the same for 4-bit integers with scales
    widening  4-bit integers to 8 or 16 bits, for large products
    grouping  the tile of a product of experts
    source    the CUDA C++ that is compiled
    prepare   compresses a weight on the GPU
    kept      moves the kept values of a matrix that is trained
    quantize  turns rows of numbers into 8-bit elements and scales
    activate  turns activations into a packed sparse A
    tuning    measures tiles, and remembers the fastest on a GPU
    arguments the sizes and arguments of a launch
    launch    launches a kernel
    emulate   computes the bits of a kernel without a GPU

``gemm.cu`` is the kernel itself; ``docs/kernels.md`` shows how to use it.
"""
