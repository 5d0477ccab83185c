"""Pictures fit a terminal, with colours and without."""

from __future__ import annotations

import re

from rich.console import Console

import fragmenta as fm
from fragmenta.inspect.view.terminal import painted, plain


def kinds() -> list[fm.Fragment]:
    found = {}
    for op in fm.catalogue():
        if not op.warpgroup or op.shape.n in (8, 256):
            for part in op.fragments.values():
                found.setdefault((part.name, part.layout), part)
    return list(found.values())


def test_every_operand_fits_80_columns_and_names_every_lane() -> None:
    for part in kinds():
        text = plain(part)
        assert max(map(len, text.splitlines())) <= 80, part
        lanes = {int(lane) for lane in re.findall(r"\bT(\d+) ", text)}
        assert lanes == set(range(32)), part


def test_colours_are_those_of_the_lanes() -> None:
    part = fm.mma("m16n8k16", a="f16", d="f32").c
    console = Console(force_terminal=True, color_system="truecolor", width=80)
    with console.capture() as capture:
        console.print(painted(part))
    assert "48;2;111;168;220m T0 c0" in capture.get()
    assert painted(part).plain == plain(part)


def test_a_box_is_a_register() -> None:
    text = plain(fm.mma("m16n8k64", a="s4").a)
    assert "T31 a24-31" in text
    assert plain(fm.mma("m16n8k256", a="b1", bitop="and").b).count("…") == 8
