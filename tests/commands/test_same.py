"""The commands same and invariant."""

import json

import pytest

from tests.asking import ask
from tests.sameness.kernels import BODIES, HEAD, STORE


@pytest.fixture
def files(tmp_path):
    for name in ("chain", "turned", "tree"):
        text = HEAD.format(name="k", body=BODIES[name], store=STORE)
        (tmp_path / f"{name}.ptx").write_text(text)
    return tmp_path


PROGRAM = """
import numpy as np
from fragmenta import ptx
x = np.ones((32, 4), np.float32)
kernel = ptx.load({file!r}).kernels["k"]
kernel.launch(1, 32, [x, np.zeros(32, np.float32)])
"""
ROWS = """
import numpy as np
from fragmenta import ptx
kernel = ptx.load({file!r}).kernels["k"]
x = np.ones((32, 4), np.float32)
def make(n):
    return ptx.Call(kernel, 1, n, [x[:n], np.zeros(n, np.float32)])
"""


def run(*words):
    found = ask(*(str(each) for each in words))
    return found.exit_code, found.output


def test_two_files(files):
    how = ["--block", 32, "--arg", "random:f32:32x4", "--arg", "zeros:f32:32"]
    code, text = run("same", files / "chain.ptx", files / "turned.ptx", *how)
    assert (code, text.splitlines()[0][:5]) == (0, "same:")
    code, text = run("same", files / "chain.ptx", files / "tree.ptx", *how, "--json")
    assert code == 1
    assert json.loads(text)["verdict"] == "different"


def test_two_programs(files):
    for name in ("chain", "tree"):
        program = PROGRAM.format(file=str(files / f"{name}.ptx"))
        (files / f"{name}.py").write_text(program)
    code, text = run("same", files / "chain.py", files / "chain.py")
    assert (code, text.splitlines()[0][:5]) == (0, "same:")
    code, text = run("same", files / "chain.py", files / "tree.py")
    assert (code, text.splitlines()[0][:10]) == (1, "different:")


def test_the_picture_of_both_trees(files):
    how = ["--block", 32, "--arg", "random:f32:32x4", "--arg", "zeros:f32:32"]
    to = files / "trees.svg"
    given = ["same", files / "chain.ptx", files / "tree.ptx", *how, "--svg", to]
    assert run(*given)[0] == 1
    assert to.read_text().count('<rect class="x"') == 2
    assert "--force" in run(*given)[1]  # it is there
    same = ["same", files / "chain.ptx", files / "turned.ptx", *how]
    code, text = run(*same, "--svg", files / "none.svg")
    assert (code, (files / "none.svg").exists()) == (0, False)
    assert "none.svg is not written" in text


def test_targets(files):
    how = ["--block", 32, "--arg", "random:f32:32x4", "--arg", "zeros:f32:32"]
    code, text = run("same", files / "chain.ptx", *how, "--targets", "sm_80,sm_90")
    assert code == 0
    assert "1 class" in text


def test_sizes(files):
    (files / "rows.py").write_text(ROWS.format(file=str(files / "chain.ptx")))
    code, text = run("invariant", files / "rows.py", "--over", "1,7,32")
    assert code == 0
    assert "0: 1, 7, 32" in text


def test_what_is_missing_is_said(files):
    (files / "none.py").write_text("")
    code, text = run("invariant", files / "none.py", "--over", "1")
    assert code != 0
    assert "no function make(n)" in text
    code, text = run("same", files / "none.py", files / "none.py")
    assert "launches no kernel" in text
