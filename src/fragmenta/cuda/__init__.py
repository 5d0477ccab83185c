"""Instructions as PTX and CUDA C++, and the tools that assemble and launch them."""
