"""Has a lane one colour, the same everywhere, and can one read on it?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.text import Text

import fragmenta as fm
from fragmenta.commands.output import _painted
from fragmenta.view import explorer, explorer_data, palette

THEMES = Path(__file__).parents[2] / "explorer" / "src" / "palette.ts"
LIGHT, DARK = (0x1B, 0x1F, 0x24), (0xF0, 0xF3, 0xF6)


def explorer_ink(theme: str) -> tuple[int, ...]:
    """The colour of text on the explorer page."""
    source = THEMES.read_text(encoding="utf-8")
    found = re.search(rf'(?s){theme}: \{{.*?ink: "#(\w{{6}})"', source)
    assert found
    return tuple(bytes.fromhex(found[1]))


@pytest.mark.parametrize("dark", [False, True])
def test_lane_colours_can_be_read(dark: bool) -> None:
    ink = DARK if dark else LIGHT
    colours = [palette.lane_colour(lane, dark) for lane in range(32)]
    assert len(set(colours)) == 32
    assert min(palette.contrast(ink, colour) for colour in colours) > 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_explorer_has_the_same_colours(theme: str) -> None:
    dark, ink = theme == "dark", explorer_ink(theme)
    lanes = explorer_data.records_of(explorer.page())["catalogue"]["lanes"][theme]
    assert lanes == [palette.hex_colour(lane, dark) for lane in range(32)]
    colours = [palette.lane_colour(lane, dark) for lane in range(32)]
    assert min(palette.contrast(ink, colour) for colour in colours) > 4.5


def test_tables_in_a_terminal_have_the_same_colours() -> None:
    text: Text = _painted(fm.mma("m16n8k16", a="f16", d="f32").c.table())
    cells = [span for span in text.spans if span.style != "cyan"]
    assert len(cells) == 16 * 8 + 1  # one is in the legend
    for cell in cells:
        lane = re.match(r"T(\d+):", text.plain[cell.start :])
        assert lane
        assert cell.style == palette.terminal_style(int(lane[1]))
