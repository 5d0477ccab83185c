"""How the tests ask: in this process, as a user would."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from fragmenta.commands import app

WIDTH = 80


def ask(*words: object) -> Result:
    """Ask, whatever comes of it."""
    return CliRunner().invoke(app, [str(word) for word in words])


def answer(*words: object, status: int = 0) -> str:
    """The answer to a question that has one."""
    result = ask(*words)
    assert result.exit_code == status, result.output
    return result.stdout


def page(*words: object, status: int = 0) -> str:
    """The same, in 80 columns (mnemonics apart)."""
    text = answer(*words, status=status)
    lines = text.splitlines()
    prose = [line for line in lines if "--json" not in words and ".sync." not in line]
    assert max(map(len, prose), default=0) <= WIDTH
    return text


def refusal(*words: object) -> str:
    """The message for a question that has no answer."""
    result = ask(*words)
    assert result.exit_code == 2, result.output
    assert not result.stdout
    assert "Traceback" not in result.stderr
    return result.stderr


def complaint(*words: object) -> str:
    """The same, on one line."""
    return " ".join(refusal(*words).split())
