"""The commands same and invariant."""

import base64
import json
import sys

import numpy as np
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


def test_a_file_imports_from_its_folder(files, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (files / "rows_of_here.py").write_text(ROWS.format(file=str(files / "chain.ptx")))
    (files / "sizes.py").write_text("from rows_of_here import make")
    code, text = run("invariant", files / "sizes.py", "--over", "1,7")
    assert (code, "0: 1, 7" in text) == (0, True)


def test_what_is_missing_is_said(files):
    (files / "none.py").write_text("")
    code, text = run("invariant", files / "none.py", "--over", "1")
    assert code != 0
    assert "no function make(n)" in text
    code, text = run("same", files / "none.py", files / "none.py")
    assert "launches no kernel" in text


SUMS = """
.version 8.0
.target sm_80
.address_size 64
"""
ENTRY = """
.entry {name}(.param .u64 y, .param .u64 x)
{{
    .reg .b64 %rd<5>;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r1, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.f32 %f1, [%rd2];
    {body}
    st.global.f32 [%rd1], %f1;
    ret;
}}
"""
ALIKE = ["--arg", "zeros:f32:64", "--arg", "ones:f32:64"]


@pytest.fixture
def several(tmp_path):
    """A file with three kernels."""
    bodies = {
        "twice": "add.f32 %f1, %f1, %f1;",
        "product": "mul.f32 %f1, %f1, 0f40000000;",
        "plus_zero": "add.f32 %f1, %f1, %f1; add.f32 %f1, %f1, 0f00000000;",
    }
    entries = (ENTRY.format(name=name, body=body) for name, body in bodies.items())
    (tmp_path / "several.ptx").write_text(SUMS + "".join(entries))
    return tmp_path / "several.ptx"


@pytest.mark.parametrize("words", [["twice", "FILE", "product"], ["twice", "product"]])
def test_kernels_of_a_file_with_several(several, words):
    how = [several if each == "FILE" else each for each in words]
    code, text = run("same", several, *how, "--block", 64, *ALIKE)
    assert (code, text.splitlines()[0]) == (0, "same: for every input")


def test_a_kernel_must_be_named(several):
    code, text = run("same", several, several, "--block", 64, *ALIKE)
    assert code == 2
    assert "plus_zero" in text


def test_two_blocks_and_two_grids(several):
    sizes = ["--block", 64, "--block", 32, "--grid", 1, "--grid", 2]
    code, text = run("same", several, "twice", "product", *sizes, *ALIKE)
    assert (code, text.splitlines()[0][:5]) == (0, "same:")
    code, text = run("same", several, "twice", "product", *sizes, "--block", 8, *ALIKE)
    assert code == 2
    assert "once for each launch" in text


def test_a_witness_can_be_repeated(several, tmp_path):
    saved = tmp_path / "witness.npz"
    how = ["--block", 64, *ALIKE, "--json", "--witness", saved]
    code, text = run("same", several, "twice", "plus_zero", *how)
    found = json.loads(text[text.index("{") :])
    witness = found["witness"]
    assert (code, found["verdict"], witness["yours"]) == (1, "different", False)
    assert (witness["first_bits"], witness["second_bits"]) == ("0x80000000", "0x0")
    data = base64.b64decode(witness["inputs"]["x"]["data"])
    numbers = np.frombuffer(data, np.float32)
    assert witness["inputs"]["x"]["type"] == "f32"
    assert np.array_equal(np.load(saved)["x"], numbers)
    again = ["--arg", f"{saved}:y", "--arg", f"{saved}:x"]
    code, text = run("same", several, "twice", "plus_zero", "--block", 64, *again)
    assert "for the inputs that you gave" in text
    assert code == 1


def test_whose_input_it_is_is_said(several):
    code, text = run("same", several, "twice", "plus_zero", "--block", 64, *ALIKE)
    assert "for other inputs than yours, which were found here" in text
    assert "--witness FILE.npz" in text
    assert code == 1


def test_an_archive_as_an_argument(several, tmp_path):
    np.savez(tmp_path / "given.npz", x=np.ones(64, np.float32))
    how = ["--block", 64, "--arg", "zeros:f32:64", "--arg", f"{tmp_path}/given.npz:z"]
    code, text = run("launch", several, "twice", *how)
    assert code == 2
    assert "given.npz:x" in text
