"""What can be asked on the command line?  One function per command.

A command is a function under :func:`fragmenta.commands.app.command` in one of
the modules below; the order here is the order of ``fragmenta --help``.  The
library is imported inside the functions, so that ``--help`` stays fast.
"""

from fragmenta.commands import catalogue, describe, lookup
from fragmenta.commands.app import app

__all__ = ["app", "catalogue", "describe", "lookup"]
