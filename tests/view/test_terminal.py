"""Do pictures fit a terminal, with colours and without?"""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from fragmenta.view.terminal import painted, plain


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


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


def test_draw_in_a_pipe_is_plain() -> None:
    code, text = run("draw", "mma.m16n8k16.f32.f16", "C")
    assert code == 0
    assert text.startswith(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\n\nC: f32"
    )
    assert "\x1b" not in text


def test_draw_everything() -> None:
    code, text = run("draw", "mma.sp.m16n8k64.s4.s4")
    assert code == 0
    assert [
        line[0] for line in text.splitlines() if re.match(r"\w+: \w+ \d", line)
    ] == [*"ABCDm"]


def test_draw_writes_pictures(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("pictures") / "a.svg"
    code, text = run("draw", "mma.m16n8k16.f32.f16", "a", "-o", str(file))
    assert code == 0
    assert text.endswith(f"A drawn in {file}\n")
    first = file.read_text(encoding="utf-8")
    assert first == fm.find("mma.m16n8k16.f32.f16").a.to_svg()
    code, text = run("draw", "mma.m16n8k16.f32.f16", "-o", str(file))
    assert code == 2
    assert "--force" in text
    assert run("draw", "mma.m16n8k16.f32.f16", "-o", str(file), "--force")[0] == 0
    assert file.read_text(encoding="utf-8") != first
    code, text = run(
        "draw", "mma.m16n8k16.f32.f16", "-o", str(file.with_suffix(".gif"))
    )
    assert code == 2
    assert ".svg, .png or .pdf" in " ".join(text.split())
