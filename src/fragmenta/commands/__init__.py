"""What can be asked on the command line?  One function per command.

A command is a function under :func:`fragmenta.commands.app.command` in one of
the modules below; the order here is the order of ``fragmenta --help``.  The
library is imported inside the functions, so that ``--help`` stays fast.
"""

# isort: off
from fragmenta.commands import catalogue, describe, lookup, draw, explore
from fragmenta.commands import compute, sparse
from fragmenta.commands import shared, source
from fragmenta.commands import gpu
from fragmenta.commands.app import app
# isort: on

__all__ = [
    "app",
    "catalogue",
    "compute",
    "describe",
    "draw",
    "explore",
    "gpu",
    "lookup",
    "shared",
    "source",
    "sparse",
]
