"""Recordings as calls, which ``ptx.same`` compares."""

from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall, BadFile
from fragmenta.inspect.evidence import arguments
from fragmenta.inspect.evidence.card_memory import CardAllocation
from fragmenta.inspect.evidence.launches import Writer
from tests.asking import ask
from tests.sameness.kernels import BODIES, HEAD, STORE

GOLDEN = Path(__file__).parents[1] / "golden"
X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
AT = 0x7F0000000000, 0x7F0000001000


def program(path, name, x=X, moved=0, pointers=False):
    """A recording of a program: bytes of memory, and pointers in parameters."""
    text = HEAD.format(name=name, body=BODIES[name], store=STORE)
    writer = Writer({"target": "sm_90a"})
    memory = [x.reshape(-1).view(np.uint8).copy(), np.zeros(128, np.uint8)]
    if pointers:
        memory[1][:8] = np.array([AT[0]], np.uint64).view(np.uint8)
    at = [each + moved for each in AT]
    given = [np.array([each], np.uint64).view(np.uint8) for each in at]
    held = [
        CardAllocation(f"allocation {n}", each, False, arguments.stored(array))
        for n, (each, array) in enumerate(zip(at, memory, strict=True))
    ]
    before = [*(np.void(each.tobytes()) for each in given), *memory]
    writer.add_launch(
        before,
        before,
        arguments=[{"kind": "struct", "bytes": e.tobytes().hex()} for e in given],
        memory=held,
        text=writer.add_text("k", text),
        name=name,
        entry=name,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared=0,
        seed=0,
        printed=None,
    )
    writer.save(path)
    return path


def test_two_recordings_of_one_kernel(tmp_path):
    """The memory of the second lay at other addresses."""
    one = program(tmp_path / "one.npz", "chain")
    two = program(tmp_path / "two.npz", "chain", moved=1 << 20)
    found = ptx.same(ptx.recorded(one), ptx.recorded(two))
    assert (found.verdict, found.by_value) == ("same", ())
    assert found.elements == 32


@pytest.mark.parametrize("other, verdict", [("turned", "same"), ("tree", "different")])
def test_two_kernels_that_were_recorded(tmp_path, other, verdict):
    files = [program(tmp_path / f"{n}.npz", n) for n in ("chain", other)]
    assert ptx.same(*map(ptx.recorded, files)).verdict == verdict
    code = ask("same", *map(str, files)).exit_code
    assert code == (0 if verdict == "same" else 1)


def test_other_numbers_are_other_inputs(tmp_path):
    one = program(tmp_path / "one.npz", "chain")
    two = program(tmp_path / "two.npz", "chain", X + 1)
    found = ptx.same(ptx.recorded(one), ptx.recorded(two))
    assert (found.verdict, found.unlike) == ("different", ("x",))
    assert "other numbers in the second: x; see labels=" in str(found)
    named = ptx.same(ptx.recorded(one), ptx.recorded(two), labels={"x": "x"})
    assert (named.verdict, named.unlike) == ("same", ())


def test_recordings_that_know_their_types():
    file = GOLDEN / "launches" / "layers.npz"
    calls = [ptx.recorded(file, "rmsnorm_bf16") for _ in range(2)]
    found = ptx.same(*calls)
    assert (found.verdict, found.by_value) == ("same", ())


def test_a_launch_of_whole_numbers_is_the_same_as_itself():
    file = GOLDEN / "programs" / "hosts-1.npz"
    found = ptx.same(ptx.recorded(file), ptx.recorded(file))
    assert str(found).startswith("same: for every input")
    assert found.proof == "they are one launch"


def test_what_cannot_be_followed_is_refused(tmp_path):
    with pytest.raises(BadFile, match="has pointers in it"):
        ptx.recorded(program(tmp_path / "x.npz", "chain", pointers=True))
    with pytest.raises(BadFile, match="is no file"):
        ptx.recorded(tmp_path / "none.npz")
    with pytest.raises(BadFile, match="ended with an error"):
        ptx.recorded(GOLDEN / "programs" / "wild-1.npz")
    with pytest.raises(BadCall, match="no launch 'sums'; it has"):
        ptx.recorded(GOLDEN / "launches" / "reduce.npz", "sums")


def test_names_that_no_array_has_are_refused(tmp_path):
    call = ptx.recorded(program(tmp_path / "one.npz", "chain"))
    for options in ({"labels": {"z": "x"}}, {"types": {"z": "f32"}}, {"by_value": "z"}):
        with pytest.raises(BadCall, match="no array is called 'z'"):
            ptx.same(call, call, **options)
