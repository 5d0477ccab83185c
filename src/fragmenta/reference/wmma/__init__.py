"""``nvcuda::wmma`` of CUDA C++, executed."""
