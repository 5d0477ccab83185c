"""Runs the instructions of a kernel.

simt     lanes: warps, memory, calls, barriers, as machine code
units    what runs beside the lanes: mbarriers, copies, wgmma, tcgen05
planes   second values beside every register and every memory
tracing  what each step wrote, for who reads it later
"""
