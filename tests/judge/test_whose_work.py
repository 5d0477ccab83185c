"""Whose work results are: cheats that a host does, and honest candidates like them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fragmenta.frontends.judge.following import (
    ProcessMemory,
    Sources,
    Swap,
    meanings,
    raw,
)
from fragmenta.frontends.judge.held import elements, hold, leaves
from fragmenta.frontends.judge.values import moved
from fragmenta.frontends.judge.wire import dump, load
from fragmenta.judge import Batch, Settings
from tests.clock import HANG
from tests.judge.candidates import CHEATS, FMA, HEAD, HONEST, LARGE, OWN_WORD
from tests.thinning import some

SETTINGS = Settings(seconds=HANG, values=("plain", "zeros"))
FIRST_CHEATS = [
    "a struct of results",
    "a variable of the module",
    "known seeds",
    "work while somebody looks",
    "a result with a check",
]
"""Those that every run tries; a thorough run tries all."""
FIRST_HONEST = [
    "memory as it is",
    "a copy of an input, in place",
    "work memory kept over calls",
    "contiguous inputs only",
    "two sizes of blocks are measured",
    "in place, as the reference",
]


def chosen(names: list[str], first: list[str]) -> list[str]:
    rest = [each for each in names if each not in first]
    return [*first, *some(rest, 24)]


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    with Batch(1, settings=SETTINGS) as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("name", chosen([*CHEATS], FIRST_CHEATS))
def test_a_cheat_is_not_clean(batch: Batch, name: str) -> None:
    row = CHEATS[name]
    verdict = batch.submit(row.task, row.text, name).result()
    assert verdict.word not in ("clean", "error"), verdict
    assert row.finding in (*verdict.names, ""), verdict


@pytest.mark.long
@pytest.mark.parametrize("name", chosen([*HONEST], FIRST_HONEST))
def test_an_honest_candidate_is_clean(batch: Batch, name: str) -> None:
    row = HONEST[name]
    verdict = batch.submit(row.task, row.text, name).result()
    # What did not run, asks for the time, or is not understood, is no reproach.
    open_ = {"not-reached", "uses-the-clock", "not-understood"} & {*verdict.names}
    word = "incomplete" if open_ else "clean"
    assert verdict.word == word, verdict
    assert row.finding in (*verdict.names, "", "host-work"), verdict


@pytest.mark.long
@pytest.mark.parametrize("name", OWN_WORD)
def test_launches_that_depend_on_data_have_their_own_word(
    batch: Batch, name: str
) -> None:
    row = OWN_WORD[name]
    verdict = batch.submit(row.task, row.text, name).result()
    assert verdict.word == "incomplete"
    others = {row.finding, "not-reached", "not-understood"}
    assert {row.finding} <= {*verdict.names} <= others, verdict


def test_too_few_blocks_for_larger_sizes_are_no_reproach(batch: Batch) -> None:
    text = HEAD + (
        "def candidate(x, y):\n    z = np.zeros(x.shape, np.float32)\n"
        "    fma((5,), (64,), (*flat(x, y), z, x.size))\n    return z\n"
    )
    verdict = batch.submit(FMA, text).result()
    assert verdict.word == "incomplete"
    assert "size-limited" in verdict.names


FIXED = LARGE.replace("n = 1 << 20", "n = 1 << 21")


@pytest.mark.long
def test_a_verdict_says_which_sizes_it_covers() -> None:
    """The given sizes are tried if they are not too large; else that is said."""
    text = HEAD + "def candidate(x, y):\n    return honest(*flat(x, y))\n"
    few = Settings(seconds=HANG, values=("plain",), elements=1 << 10, strides=False)
    with Batch(1, settings=few) as batch:
        tried = batch.submit(LARGE.replace("1 << 20", "1 << 15"), text).result()
        left = batch.submit(FIXED, text).result()
    assert tried.names == ()
    assert "given sizes" in tried.sizes
    assert "covers" in str(tried)
    assert left.word == "incomplete"
    assert left.names == ("size-not-tried",)
    assert "n=2,097,152 (up to 32,768)" in left.findings[0].evidence
    assert "given sizes" not in left.sizes


@pytest.mark.long
def test_a_bad_reference_does_not_end_a_batch(batch: Batch) -> None:
    text = HEAD + "def candidate(x, y):\n    return honest(*flat(x, y))\n"
    bad = FMA.replace("x * y + 1", "missing")
    found = [*batch.verdicts([(FMA, text, "a"), (bad, text, "b"), (FMA, text, "c")])]
    by_name = {each.name: each for each in found}
    assert sorted(by_name) == ["a", "b", "c"]
    assert by_name["b"].names == ("no-reference",)
    assert "missing" in by_name["b"].findings[0].evidence
    assert by_name["a"].word == by_name["c"].word == "clean"


# ── parts ───────────────────────────────────────────────────────────────────

random = np.random.default_rng(0)


def two(size: int = 256) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [random.standard_normal(size).astype(np.float32) for _ in range(2)]


def test_elements_of_inputs_are_known_wherever_they_are() -> None:
    inputs = two()
    sources = Sources()
    sources.add(inputs)
    turned = [each.reshape(16, 16).T for each in inputs]
    assert sources.explain([raw(each) for each in turned]).all()
    half = [each.astype(np.float16) for each in inputs]
    assert sources.explain([raw(each) for each in half]).mean() > 0.99
    other = [np.sin(each) for each in inputs]
    # The sine of a small number has its upper half.
    assert sources.explain([raw(each) for each in other]).mean() < 0.2


def test_elements_in_an_order_that_depends_on_them_are_not_known() -> None:
    """A host that sorts does the work, though it moves elements only."""
    inputs = two()
    sources = Sources()
    sources.add(inputs)
    assert sources.explain([raw(np.sort(each)) for each in inputs]).mean() < 0.05


def test_bytes_are_known_in_runs_only() -> None:
    inputs = [random.integers(0, 9, 512).astype(np.int8) for _ in range(2)]
    sources = Sources()
    sources.add(inputs)
    assert sources.explain([each[3:400].copy().view(np.uint8) for each in inputs]).all()
    mixed = [np.sort(each).view(np.uint8) for each in inputs]
    assert sources.explain(mixed).mean() < 0.1


def test_kernels_get_other_inputs_in_place_and_in_copies() -> None:
    seen, other = two()
    swap = Swap([hold([seen])], hold([other]))
    none = np.zeros(seen.nbytes, np.bool_)
    made, done = swap.region(64, raw(seen), none, [(64, seen.nbytes)], [])
    assert made.tobytes() == other.tobytes()
    assert done.all()
    padded = np.zeros(300, np.float32)
    padded[:256] = seen[::-1]
    none = np.zeros(padded.nbytes, np.bool_)
    made, _ = swap.region(1 << 20, raw(padded), none, [(64, seen.nbytes)], [])
    assert made.view(np.float32)[:256].tobytes() == other[::-1].tobytes()
    assert not made.view(np.float32)[256:].any()


def test_short_floats_are_found_in_copies_though_they_are_there_often() -> None:
    """What is the same becomes the same, and rows are in several orders of axes."""
    other = random.standard_normal((3, 29, 62)).astype(np.float16)
    shown = load(dump(hold([other])))
    for leaf in leaves(shown):
        leaf["data"] = moved(leaf, 1)
    seen = elements(leaves(shown)[0])
    assert (seen != other).mean() > 0.9
    assert len({*seen.reshape(-1).tolist()}) == len({*other.reshape(-1).tolist()})
    swap = Swap([shown], hold([other]), "pitched")
    made, done = swap.region(1 << 20, raw(seen), raw(seen) < 0, [(64, 8)], [])
    assert made.tobytes() == other.tobytes()
    assert done.all()


def test_what_launches_left_is_known_by_its_address() -> None:
    memory = ProcessMemory()
    given, left = two(8)
    memory.begin([(4096, raw(given))])
    assert memory.known(4096 + 8, raw(given[2:])).all()
    memory.leave(9000, raw(left), np.ones(32, np.bool_))
    assert memory.known(9008, raw(left[2:6])).all()
    assert not memory.known(9000, raw(left + 1)).any()
    some = np.tile([True, False, False, False], 8)  # the others were so before
    memory.leave(5000, raw(left), some)
    assert memory.known(5000, raw(left)).all()
    changed = np.zeros(32, np.bool_)
    assert memory.touched(4096, changed) == set()
    changed[5] = True
    assert memory.touched(4096, changed) == {0}
    assert memory.touched(9000, changed) == set()


def test_numbers_may_be_elements_of_small_inputs() -> None:
    found = meanings(hold([np.float32([0.1]), np.arange(99)]))
    assert found[np.float32(0.1).tobytes().hex()] == {"input 0[0]"}
    assert "98" not in found
