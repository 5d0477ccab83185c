"""Collects the examples of a page, as a reader sees them.

An empty line in what an example prints is an empty line on the page.  doctest takes it for
the end of the answer, and wants a mark there that readers would see.
"""

from __future__ import annotations

import doctest
import re

_BLOCK = re.compile(r"(?ms)^```python\n.*?^```$")
_EMPTY = re.compile(r"\n(?=\n(?!>>> |```|\n))")


def examples(text: str, name: str) -> doctest.DocTest:
    """The examples of a page; in a block, what follows an empty line is still answer.

    >>> page = "```python\\n>>> print('1\\\\n\\\\n2')\\n1\\n\\n2\\n\\n```\\n"
    >>> examples(page, "page").examples[0].want
    '1\\n<BLANKLINE>\\n2\\n'
    """
    marked = _BLOCK.sub(lambda b: _EMPTY.sub("\n<BLANKLINE>", b[0]), text)
    return doctest.DocTestParser().get_doctest(marked, {}, name, None, 0)
