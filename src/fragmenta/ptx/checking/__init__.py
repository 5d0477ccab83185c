"""Is a PTX file right?

check(module)      everything that is wrong with a module
check_text(text)   the same for a text, a mistake in which is one problem
check_line(text)   the same for one instruction

problem            what is a problem?
context            what does every rule have to know?
instructions       what is wrong with one instruction?
mnemonics          which line of the table of opcodes does a mnemonic follow?
operands           do the operands fit the line?
registers          which registers and constants may an operand be?
requirements       do the version and the target have it?
tensor             what does the catalogue say about a Tensor Core instruction?
names              does everything exist that it names?
functions          what is wrong with a function?
flow               which instruction can come after which?
effects            what does an instruction read and write?
reaching           is a register read before it is written?
divergence         can all threads of a warp run it together?
memory             is there enough shared memory?
places             where in the text does it stand?
checker            all of it, for a module
texts              all of it, for a text or a line
"""

from fragmenta.ptx.checking.checker import check
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.checking.texts import check_line, check_text

__all__ = ["Problem", "check", "check_line", "check_text"]
