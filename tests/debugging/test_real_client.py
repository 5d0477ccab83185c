"""A session of an editor, with Microsoft's client for tests of debug adapters."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fragmenta
from tests.clock import HANG
from tests.debugging import kernels

PACKAGES = Path(__file__).parents[2] / "explorer" / "node_modules"
CLIENT = Path(__file__).with_name("client.cjs")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    if not shutil.which("node"):
        pytest.skip("NOT TESTED: debug adapter. Missing: Node.js")
    if not (PACKAGES / "@vscode" / "debugadapter-testsupport").is_dir():
        pytest.skip("NOT TESTED: debug adapter. Missing: make node")
    file = tmp_path / "race.ptx"
    file.write_text(kernels.RACE)
    return file


@pytest.mark.long
def test_a_session(kernel: Path) -> None:
    """An editor debugs the race, and is told what was recorded."""
    words = ["node", str(CLIENT), str(PACKAGES), sys.executable, str(kernel)]
    package = str(Path(fragmenta.__file__).parents[1])
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout.splitlines()[-1])
    replay = kernels.race()
    assert told["back"] is True
    assert told["verified"] == [True, False]
    assert told["threads"] == ["block 0 warp 0", "block 0 warp 1"]
    assert {"Registers", "Predicates", "shared memory", "Units"} <= {*told["scopes"]}
    stores = replay.steps_of_line(replay.ptx_file, 17)
    first = replay.registers_at(int(stores[0]) - 1, 0)["%f2"]
    np.testing.assert_array_equal(told["lanes"], first)
    assert float(told["value"]) == 2 * first[3]
    names = ("first", "over", "stepBack", "second", "problem", "reverse")
    assert [(told[name]["reason"], told[name]["line"]) for name in names] == [
        ("breakpoint", 17),
        ("step", 18),
        ("breakpoint", 17),
        ("breakpoint", 17),
        ("exception", 19),
        ("breakpoint", 17),
    ]
    assert told["about"] == "shared-race"
    assert "nothing orders the two" in told["problem"]["text"]
    stored = replay.memory_at(int(stores[1]) - 1, 0)[0][1024:1028]
    assert base64.b64decode(told["memory"]) == stored.tobytes()
