"""How is an instruction written in PTX and CUDA C++?"""
