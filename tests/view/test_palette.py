"""A lane has one colour everywhere, and text on it is legible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.text import Text

import fragmenta as fm
from fragmenta.commands.output import _painted
from fragmenta.inspect.view import explorer, explorer_data, palette

STYLE = Path(__file__).parents[2] / "explorer" / "src" / "style.css"
LIGHT, DARK = (0x1B, 0x1F, 0x24), (0xF0, 0xF3, 0xF6)


@pytest.mark.parametrize("dark", [False, True])
def test_lane_colours_can_be_read(dark: bool) -> None:
    ink = DARK if dark else LIGHT
    colours = [palette.lane_colour(lane, dark) for lane in range(32)]
    assert len(set(colours)) == 32
    assert min(palette.contrast(ink, colour) for colour in colours) > 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_explorer_has_the_same_colours(theme: str) -> None:
    dark = theme == "dark"
    record = explorer_data.records_of(explorer.page())["catalogue"]
    lanes = [palette.hex_colour(lane, dark) for lane in range(32)]
    assert (record["lanes"][theme], record["inks"][theme]) == (
        lanes,
        palette.inks(dark),
    )


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_around_the_picture_has_its_colours(dark: bool) -> None:
    rules = re.findall(r"(?s)--page: .*?\}", STYLE.read_text(encoding="utf-8"))
    ink = palette.inks(dark)
    wanted = {"page": ink["page"], "ink": ink["text"], "faint": ink["small"]}
    wanted["frame"] = ink["outline"]
    # Dark stands there twice: for who asks for it, and for whose system does.
    for rule in rules[1:] if dark else rules[:1]:
        found = {name: re.search(rf"--{name}: (#\w+)", rule) for name in wanted}
        assert {name: each and each[1] for name, each in found.items()} == wanted


def test_tables_in_a_terminal_have_the_same_colours() -> None:
    text: Text = _painted(fm.mma("m16n8k16", a="f16", d="f32").c.table())
    cells = [span for span in text.spans if span.style != "cyan"]
    assert len(cells) == 16 * 8 + 1  # one is in the legend
    for cell in cells:
        lane = re.match(r"T(\d+):", text.plain[cell.start :])
        assert lane
        assert cell.style == palette.terminal_style(int(lane[1]))
