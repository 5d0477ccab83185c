"""Draw docs/images/lost-bits.svg: the map of y in docs/lost-bits.md.

    python docs/plots/lost_bits.py

It runs the first example of the page.
"""

import doctest
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent


def main() -> None:
    """Draw it."""
    page = (DOCS / "lost-bits.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for each in doctest.DocTestParser().get_examples(page):
        exec(each.source, names)
        if "found" in names:
            break
    picture = names["found"]["y"].to_svg("lost_bits")
    (DOCS / "images" / "lost-bits.svg").write_text(picture + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
