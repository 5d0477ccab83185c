"""A recorded run of a kernel: every step, with what it wrote, forwards and backwards.

parts     what a record consists of: sites, registers, warps, memories, accesses
columns   accesses as columns, from the rows of a log
program   registers, instructions and files of a record, and when steps are
memories  names, variables and first bytes of its memories
steps     its steps, and the words of their registers
beside    its units and barriers
left_out  what it leaves out, in words
reading   a record from what a launch wrote down
problems  the steps of the two accesses of a problem
moments   errors of elements over time: one for each write
lost      what numerics found, in a record
making    a record from the result of a launch
aligning  where two runs are at the same place
recorded  :class:`Replay`: asks a record what a register or a byte was, and who
          wrote it
files     a record in a file
"""
