"""Opens the explorer, a web page for looking at instructions.

The page needs no server and no network.  It is built from ``explorer/`` and shipped in
this folder; see :mod:`fragmenta.inspect.view.explorer_data` for what it knows.
"""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from fragmenta.inspect.view.explorer_data import PAGE
from fragmenta.reference.isa.instruction import Instruction

_FIRST = '<meta name="first-instruction" content="{}">'


def page(op: Instruction | None = None) -> str:
    """The complete page as text; with an instruction, it opens there.

    >>> import fragmenta as fm
    >>> page().splitlines()[0]
    '<!doctype html>'
    >>> op = fm.mma("m16n8k64", a="s4")
    >>> f'name="first-instruction" content="{op}"' in page(op)
    True
    """
    text = PAGE.read_text(encoding="utf-8")
    if op is None:
        return text
    plain = _FIRST.format("")
    assert text.count(plain) == 1
    return text.replace(plain, _FIRST.format(escape(str(op))))


def address(op: Instruction | None = None) -> str:
    """Where a browser finds the page, opened at an instruction.

    >>> import fragmenta as fm
    >>> address(fm.mma("m16n8k64", a="s4")).rpartition("/")[2]
    'explorer.html#op=mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32'
    """
    where = PAGE.resolve().as_uri()
    return where if op is None else f"{where}#op={quote(str(op), safe=':.')}"


def show(op: Instruction | None = None) -> bool:
    """Open the page in the browser; False where there is none."""
    import webbrowser

    return webbrowser.open(address(op))
