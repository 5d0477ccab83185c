"""The entry point of ``fragmenta``.

:mod:`fragmenta.commands` is imported inside ``main``, so that Ctrl-C during the import
prints no traceback.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what shells report for SIGINT


def main() -> None:
    """Run the command line, ``fragmenta``."""
    try:
        from fragmenta.commands import app

        app(prog_name="fragmenta")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
