"""The page and the example run, and every name is explained."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import fragmenta as fm
from fragmenta import wmma
from fragmenta.reference.registers.dtype import DTYPES
from tests.clock import HANG
from tests.pages import examples
from tests.wmma.fragments import BY_CUDA, EXTENDED, FRAGMENTS, GUIDE, ROOT, part_of


def page():
    return (ROOT / "docs" / "wmma.md").read_text(encoding="utf-8")


def test_the_page_runs():
    found = examples(page(), "wmma.md")
    assert len(found.examples) > 60
    report = []
    doctest.DocTestRunner().run(found, out=report.append)
    assert not report, "".join(report)


def test_the_page_states_the_leading_dimensions_that_hold():
    lines = re.findall(r"(?m)^\| (`.*`) \| (\d+) \| (.*) \| (.*) \|$", page())
    said = {}
    for names, step, whence, ptx in lines:
        for name in re.findall(r"`([^`]+)`", names):
            of = BY_CUDA.get(name, name)
            assert int(step) == (GUIDE | EXTENDED)[of]
            assert (whence == "the guide") == (of in GUIDE)
            said[of] = {int(n) for n in re.findall(r"\b(\d+)(?!x8)\b", ptx)}
    assert set(said) == set(GUIDE | EXTENDED)
    for of, steps in said.items():
        parts = [part_of(f) for f in FRAGMENTS if f.element_type.name == of]
        bits = DTYPES[of].bits
        assert steps == {p.registers * p.register_bits // bits for p in parts}


def test_the_example_runs():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "wmma_subbyte.py"],
        env={**os.environ, "PYTHONPATH": str(Path(fm.__file__).parents[1])},
        capture_output=True,
        encoding="utf-8",
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal to NumPy") == 2


def test_loads_and_stores_need_no_compiler():
    code = (
        "import sys; from fragmenta import wmma; import numpy as np\n"
        "c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)\n"
        "wmma.load_matrix_sync(c, np.zeros(256, np.float32), 16, 'mem_row_major')\n"
        "assert 'llvmlite' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(fm.__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, timeout=HANG
    )


def test_every_public_name_is_there_and_explained():
    for name in wmma.__all__:
        assert (getattr(wmma, name).__doc__ or "").strip(), name
