"""The command line, ``fragmenta``.

The table of commands is in :mod:`fragmenta.commands.command_table`.  A command is a
function under :func:`fragmenta.commands.app.command` in the module that the
table names.  That module is imported when its command is asked for, so ``--help``
stays fast although the modules import whatever they need.
"""

from fragmenta.commands.app import app

__all__ = ["app"]
