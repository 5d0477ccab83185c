"""The points of a plot are where its axes say."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

import fragmenta as fm
from fragmenta.inspect.view.palette import contrast, ink
from fragmenta.inspect.view.plot import line_plot

SVG = "{http://www.w3.org/2000/svg}"


def ends(picture: str) -> list[list[tuple[float, float]]]:
    """The points of each line."""
    found = re.findall(r'<polyline[^>]* points="([^"]*)"', picture)
    return [[tuple(map(float, p.split(","))) for p in each.split()] for each in found]


def texts(picture: str) -> dict[str, tuple[float, float]]:
    """Where each text is."""
    root = ElementTree.fromstring(picture)
    return {
        each.text or "": (float(each.get("x", 0)), float(each.get("y", 0)))
        for each in root.iter(f"{SVG}text")
    }


def test_logarithms() -> None:
    picture = str(line_plot({"one": {64: 1e-5, 256: 1e-4, 1024: 1e-3}}, "errors"))
    (points,) = ends(picture)
    (x0, y0), (x1, y1), (x2, y2) = points
    assert math.isclose(x1 - x0, x2 - x1, abs_tol=0.2)
    assert math.isclose(y0 - y1, y1 - y2, abs_tol=0.2)
    assert texts(picture)["256"][0] == x1
    assert math.isclose(texts(picture)["1e-4"][1] - 3.5, y1, abs_tol=0.1)


def test_no_error_has_its_own_place() -> None:
    picture = str(line_plot({"one": {1: 0, 2: 1e-5}}, "errors"))
    ((_, low), (_, high)) = ends(picture)[0]
    assert texts(picture)["0"][1] - 3.5 == low > high
    assert "1e-6" not in texts(picture)


def test_linear() -> None:
    picture = str(line_plot({"a": {-1: -2, 0: 0, 1: 2}}, "t", x="weight", log=False))
    (points,) = ends(picture)
    assert math.isclose(points[0][0] + points[2][0], 2 * points[1][0], abs_tol=0.2)
    assert texts(picture)["0"][0] in {points[1][0], 46}
    assert {"-2", "2", "-1", "1", "weight"} <= set(texts(picture))


def test_labels_are_inside() -> None:
    name = "a label & <its> brackets"
    picture = line_plot({name: {1: 1, 4096: 2}}, "t", "how it was made")
    root = ElementTree.fromstring(str(picture))
    assert name in texts(str(picture))
    assert float(root.get("width", 0)) > max(x for x, _ in ends(str(picture))[0])
    assert repr(picture).startswith("<a picture: ")


@pytest.mark.parametrize("group", range(8))
@pytest.mark.parametrize("dark", [False, True])
def test_lines_can_be_seen(group: int, dark: bool) -> None:
    text = ink(group, dark)
    red, green, blue = (int(text[at : at + 2], 16) for at in (1, 3, 5))
    page = (13, 16, 23) if dark else (255, 255, 255)
    assert contrast((red, green, blue), page) >= 3.6


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({}, "no line has a point"),
        ({"a": {}}, "no line has a point"),
        ({"a": {1: math.nan}}, "given nan"),
        ({"a": {1: -1.0}}, r"given -1\.0"),
        ({"a": {0: 1.0}}, "above 0"),
    ],
)
def test_refused(lines: dict[str, dict[float, float]], words: str) -> None:
    with pytest.raises(fm.Error, match=words):
        line_plot(lines, "t")
