"""NVIDIA's assembler, compilers and driver: assembling, compiling and launching."""
