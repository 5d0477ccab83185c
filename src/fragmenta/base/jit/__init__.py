"""Compiles loops over numbers to machine code.

A *kernel* is a Python function that is traced: it runs once, with stand-ins for
its arguments that record every operation.  LLVM compiles these operations to
machine code::

    @kernel(x=pointer(F64), factor=F64, count=I64)
    def scale(code, x, factor, count):
        with code.loop(count) as i:
            x[i] = x[i] * factor

    scale(array, 2.0, array.size)

Compiling one takes a fraction of a second, and its machine code is kept on disk.
"""
