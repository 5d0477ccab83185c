"""How does a loop over numbers become machine code?

A *kernel* is a Python function that is run once, on stand-ins for its arguments,
and writes down the operations it sees; LLVM makes machine code of them::

    @kernel(x=pointer(F64), factor=F64, count=I64)
    def scale(code, x, factor, count):
        with code.loop(count) as i:
            x[i] = x[i] * factor

    scale(array, 2.0, array.size)

Compiling one takes a fraction of a second, and its machine code is kept on disk.
"""
