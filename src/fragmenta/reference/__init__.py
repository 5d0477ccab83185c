"""What an instruction is, and what it computes.

registers      elements, words, layouts and fragments
isa            the table of instructions, its reader, why there is no such one
cards          the GPUs: what programs ask of them
arithmetic     the bits of a product
quant          numbers as small elements and scales
sparse         sparse matrices: pruned, compressed, exchanged
weights        orders of quantised weights
shared         shared memory: tiles, descriptors, swizzles, banks
tensor_memory  the memory of tcgen05
execution      instructions, executed on registers and on matrices
wmma           ``nvcuda::wmma`` of CUDA C++
"""
