"""The entry point of ``fragmenta``.

:mod:`fragmenta.commands` is imported inside ``main``, so that Ctrl-C during the import
prints no traceback.
"""

from __future__ import annotations

import gc
import sys

INTERRUPTED = 130  # what shells report for SIGINT
OBJECTS = 100_000
"""New objects before Python looks for circles.  Imports make many, and no circles."""


def main() -> None:
    """Run the command line, ``fragmenta``."""
    gc.set_threshold(OBJECTS)
    try:
        from fragmenta.commands import app

        app(prog_name="fragmenta")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
