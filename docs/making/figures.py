"""The pictures that are kept beside the pages that show them."""

from __future__ import annotations

import doctest
import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import fragmenta as fm
from fragmenta.inspect.view.path import path_svg
from making import explorer
from making.markdown import DOCS

SCALED = fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4")


class Figure(NamedTuple):
    """A picture: of an instruction, of an operand, of the way of D, or of swizzles."""

    op: fm.Instruction
    part: str = ""

    def svg(self) -> str:
        """The picture."""
        if self.part == "path":
            return path_svg(self.op)
        if self.part == "swizzles":
            return str(fm.shared.swizzle_picture(0, 32, 64, 128))
        what = self.op.fragments[self.part] if self.part else self.op
        return what.to_svg()

    def link(self, up: str = "") -> str:
        """Where the explorer shows it."""
        tab = "&tab=memory" if self.part == "swizzles" else ""
        return f"{explorer.link(self.op, up)}{tab}"


FIGURES = {
    "index": Figure(fm.mma("m16n8k16", a="f16", d="f32")),
    "tour": Figure(fm.mma("m16n8k32", a="s8"), "D"),
    "layout-a": Figure(fm.mma("m16n8k64", a="s4"), "A"),
    "tcgen05-d": Figure(fm.tcgen05("m128n64k16", a="f16")),
    "tcgen05-f": Figure(fm.tcgen05("m64n64k16", a="f16")),
    "tcgen05-b": Figure(fm.tcgen05("m128n64k16", a="f16", cta_group=2)),
    "tcgen05-scales": Figure(SCALED),
    "tcgen05-path": Figure(SCALED, "path"),
    "sparse": Figure(fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")),
    "wmma": Figure(fm.find("wmma.mma.row.col.m16n16k16.f32.f32")),
    "ldmatrix": Figure(fm.find("ldmatrix.m8n8.x4.shared.b16")),
    "swizzles": Figure(fm.wgmma("m64n64k16", a="f16", d="f32"), "swizzles"),
}
PAGE = DOCS / "same-bits.md"


def trees() -> dict[str, str]:
    """The trees of docs/same-bits.md, of the kernels that its examples have."""
    names: dict[str, Any] = {}
    text = PAGE.read_text(encoding="utf-8").partition("## Kernel three")[0]
    with redirect_stdout(StringIO()):
        for example in doctest.DocTestParser().get_examples(text):
            exec(compile(example.source, PAGE.name, "single"), names)
    order, steps = names["order"], names["steps"]
    return {"trees-order": order.to_svg(), "trees-steps": steps.to_svg()}


SHOWN = re.compile(r"(?m)^!\[(.*)\]\(((?:\.\./)*)pictures/([\w-]+)\.svg\)$")


def put(text: str) -> str:
    """A page whose pictures have a link into the explorer below them."""
    return SHOWN.sub(_linked, text)


def _linked(image: re.Match[str]) -> str:
    alt, up, name = image.groups()
    if name not in FIGURES:
        return image[0]
    return shown(f"{up}pictures/{name}.svg", alt, FIGURES[name].link(up))


def shown(file: str, alt: str, to: str, caption: str = "") -> str:
    """A picture of an instruction, and a link; ``caption`` is said after it."""
    led = f'<a href="{to}">Open in the explorer</a>{caption}' if to else ""
    image = f'<img src="{file}" alt="{alt}" loading="lazy">'
    caption = f"<figcaption>{led}</figcaption>"
    return f'<figure class="fm-picture">{image}{caption}</figure>'
