"""``python -m fragmenta``: the command line, where no script is on the path."""

from __future__ import annotations

from fragmenta.commands.cli import main

if __name__ == "__main__":
    main()
