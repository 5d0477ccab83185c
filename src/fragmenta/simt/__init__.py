"""How does a kernel run on the CPU?"""
