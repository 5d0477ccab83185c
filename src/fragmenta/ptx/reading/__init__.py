"""What does PTX text say?

parse(text)   the module of a text
load(path)    the module of a file

lexer         which word comes next, and where does it stand?
expressions   what is the value of a constant?
scopes        what does a name stand for, here?
operands      what is an operand?
declarations  what does a declaration declare?
headers       what stands before the body of a function?
statements    what does the body of a function say?
file          what does a whole file say?
"""

from fragmenta.ptx.reading.file import load, parse

__all__ = ["load", "parse"]
