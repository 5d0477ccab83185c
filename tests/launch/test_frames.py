"""A launch comes from a line of the user's program; libraries come second."""

import textwrap

import pytest

from fragmenta.launch import frames

LIBRARY = """
    def launch(front_end):
        return front_end()
"""
FRONT_END = """
    from fragmenta.launch.frames import origin

    def call():
        return origin("add")
"""
PROGRAM = """
    from front_end import call
    from library import launch

    def direct():
        return call()

    def indirect():
        return launch(call)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program that launches through libraries that are installed."""
    packages = tmp_path / "site-packages"
    inside = {"library": packages / "library", "front_end": packages / "triton"}
    for name, text in (("library", LIBRARY), ("front_end", FRONT_END)):
        inside[name].mkdir(parents=True)
        (inside[name] / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(inside[name])
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(frames, "_LIBRARIES", ("-packages/triton/",))
    for name in ("library", "front_end", "program"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return __import__("program")


def test_the_program_is_named(program):
    assert program.direct() == (
        "launched by program.py:6, in direct\n    return call()"
    )


def test_the_program_comes_before_the_library(program):
    assert program.indirect() == (
        "launched by program.py:9, in indirect\n    return launch(call)\n"
        "through site-packages/library/library.py:3, in launch\n    return front_end()"
    )
