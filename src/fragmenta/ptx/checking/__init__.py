"""The check of PTX files: what ptxas would refuse, and what is worth knowing.

check(module)      everything that is wrong with a module
check_text(text)   the same for a text, a mistake in which is one problem
check_line(text)   the same for one instruction

problem            one problem, and how it is shown
context            what every rule needs
instructions       checks of one instruction
mnemonics          the line of the table of opcodes that a mnemonic follows
operands           checks of operands against the line
registers          the registers and constants that an operand may be
requirements       the version and the targets that it needs
tensor             Tensor Core instructions, by the catalogue
names              whether all names exist
functions          checks of a function
register_effects   what an instruction reads and writes
reaching           registers that are read before they are written
divergence         aligned instructions that a part of a warp runs
memory             limits of shared memory
places             places in the text
checker            all of it, for a module
texts              all of it, for a text or a line
"""
