"""The reader of PTX text.

parse(text)   the module of a text
load(path)    the module of a file

lexer         words and their places
expressions   constant expressions
scopes        names and nested blocks
operands      operands
declarations  variables, parameters, registers
headers       what precedes the body of a function
statements    the body of a function
file          a whole file
"""

from fragmenta.ptx.reading.file import load, parse

__all__ = ["load", "parse"]
