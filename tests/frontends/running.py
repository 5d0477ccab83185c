"""Runs programs of front ends that use CUDA's driver, as ``fragmenta run`` does."""

import json
import subprocess
import sys
from pathlib import Path

from tests.clock import HANG

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "frontends"


def run(program, *words, card="h100", status=0):
    """Run a program of Python: the report, and all that was printed."""
    ours = ["-m", "fragmenta", "run", "--json", "--card", card, "--"]
    done = subprocess.run(
        [sys.executable, *ours, sys.executable, str(program), *words],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def changed(name, folder, **instead):
    """A copy of an example in which some words are others; each must be there once."""
    text = (EXAMPLES / name).read_text()
    for old, new in instead.values():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    made = folder / name
    made.write_text(text)
    return made


def found(report):
    """The rules of all problems that are no notes, and the lines of their sources."""
    return [
        (each["rule"], int(each["frames"][0].rpartition(":")[2]))
        for launch in report["launches"]
        for each in launch["problems"]
        if each["severity"] != "info"
    ]
