"""How does a terminal ask?

The entry point.  The commands are in :mod:`fragmenta.commands`, loaded here so
that even Ctrl-C during an import ends in silence.
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
