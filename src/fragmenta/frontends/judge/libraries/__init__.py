"""What a judge needs of PyTorch and Triton; nothing here is loaded without them.

bounded         values with bounds of their errors
composed        operators that are made of others
torch_standin   PyTorch as a candidate sees it
triton_standin  Triton as a candidate sees it
load_inline     CUDA C++ in a candidate: its kernels
host_code       the functions in C++ that launch them
"""
