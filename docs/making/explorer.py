"""Links into the explorer."""

from __future__ import annotations

from functools import cache

import fragmenta as fm
from fragmenta.inspect.view.explorer import address, page
from fragmenta.inspect.view.explorer_data import holding
from fragmenta.inspect.view.explorer_links import ExplorerInstructions

PAGE = "explorer.html"
TITLE = "<h1>fragmenta</h1>"


def on_the_site() -> str:
    """The page of the explorer, whose title links back to the first page of the site.

    >>> on_the_site().count('href="index.html"')
    1
    """
    whole = page()
    assert whole.count(TITLE) == 1, "the title of the explorer has changed"
    look = "color:inherit;text-decoration:none"
    link = f'<a href="index.html" target="_top" style="{look}">fragmenta</a>'
    return whole.replace(TITLE, f"<h1>{link}</h1>")


def link(op: fm.Instruction, up: str = "") -> str:
    """The address of an instruction in the explorer of the site; empty if it has none.

    ``up`` leads from a page to the folder of the explorer.

    >>> link(fm.mma("m16n8k64", a="s4"), "../")
    '../explorer.html#op=mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    >>> link(fm.find("wgmma.fence"))
    ''
    """
    shown = like(op)
    return f"{up}{address(shown).rpartition('/')[2]}" if shown else ""


def like(op: fm.Instruction) -> fm.Instruction | None:
    """The instruction itself, or one that the explorer has in its place.

    A ``tcgen05.mma`` has matrices only with a descriptor.  The explorer has some of
    them; here it is one with the same kind, group and, if possible, M.

    >>> print(like(fm.find("tcgen05.mma.cta_group::1.kind::f16")))
    tcgen05.mma.cta_group::1.kind::f16 0x04100010
    """
    return _held().like(op)


def known() -> dict[str, fm.Instruction]:
    """Every instruction of the explorer by its name."""
    return _held().known


@cache
def _held() -> ExplorerInstructions:
    return ExplorerInstructions(holding())
