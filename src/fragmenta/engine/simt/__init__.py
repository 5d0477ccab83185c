"""Runs the lanes of a kernel: warps, memory, calls, barriers, as machine code.

Each instruction is a routine that is compiled once, for all 32 lanes of a warp.  The
code of a kernel calls them one after the other.  An instruction that takes part in
asynchronous work is an *event*: the code calls a function of the launch.  Probes
(:mod:`fragmenta.engine.simt.probes`) are where an observer adds code of its own.
"""
