"""The explorer against Python.

What the page works out by itself (who holds what, addresses, values) must be
what Python works out.  That needs Node.js and the packages of
``explorer/package.json``.  Where they are missing the tests are skipped, and say what
was not tested.  ``make looks`` uses the page in a browser.
"""

import hashlib
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import tensor_memory
from fragmenta.inspect.view import explorer, explorer_data
from fragmenta.inspect.view.grid import grids
from fragmenta.inspect.view.path import loads
from fragmenta.reference.isa import matching
from fragmenta.reference.isa.families import MULTIPLYING
from fragmenta.reference.shared.descriptor import Descriptor

EXPLORER = Path(__file__).parents[2] / "explorer"


def need(what):
    """Go on, or say loudly what will not be tested."""
    absent = []
    if not shutil.which("node"):
        absent.append("Node.js (node is not on the PATH)")
    if not (EXPLORER / "node_modules" / "esbuild").is_dir():
        absent.append("esbuild (run npm install in explorer/)")
    if absent:
        pytest.skip(f"NOT TESTED: {what}. Missing: {'; '.join(absent)}")


def digest(*arrays):
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array, "<i4").tobytes())
    return found.hexdigest()


@cache
def holding():
    """The instructions of the page, as users have them."""
    return [fm.instruction(str(op)) for op in explorer_data.holding()]


@cache
def multiplications():
    """One instruction for each way to multiply; a few widths of wgmma and tcgen05."""
    found = {}
    for op in holding():
        if op.family not in MULTIPLYING or (op.warpgroup and op.shape.n not in (8, 24)):
            continue
        if op.tensor_memory and (op.shape.n != 64 or op.shape.m > 128):
            continue
        words = ("shape", "a", "b", "c", "d", "bitop", "kind", "scale_vec")
        key = (op.family, *(op.values.get(word) for word in words))
        found.setdefault(key, op)
    return list(found.values())


@pytest.fixture(scope="module")
def worked_out():
    """What the page works out, in Node.js."""
    need("whether the explorer computes what Python computes")
    names = "\n".join(map(str, multiplications()))
    done = subprocess.run(
        ["node", "tests/evaluate.mjs"],
        cwd=EXPLORER,
        input=names,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.xdist_group("explorer")
def test_layouts_of_every_operand(worked_out):
    kept = explorer_data.records_of(explorer.page())["catalogue"]
    by_name = {each["name"]: each for each in kept["instructions"]}
    digests = {}
    for op in holding():
        for name, part in op.fragments.items():
            found = worked_out["gathers"][by_name[str(op)]["parts"][name]]
            if found is None:  # one of several is worked out
                continue
            if part.layout not in digests:
                digests[part.layout] = digest(part.layout.gather())
            assert found == digests[part.layout], f"{op} {name}"
    assert len(digests) > 200


@pytest.mark.xdist_group("explorer")
def test_words_find_what_python_finds(worked_out):
    """The rules of a word are in both; the page leaves optional qualifiers in."""
    for text, found in worked_out["found"].items():
        names = [str(op) for op in holding() if fits(op, text)]
        assert found == [
            len(names),
            hashlib.sha256("\n".join(names).encode()).hexdigest(),
        ]
        assert names, text


@pytest.mark.xdist_group("explorer")
def test_a_link_in_words_means_what_find_means(worked_out):
    for text, names in worked_out["meant"].items():
        assert names == [str(fm.find(text))], text


@pytest.mark.xdist_group("explorer")
def test_words_are_refused_as_find_refuses_them(worked_out):
    for text, (count, said) in worked_out["refused"].items():
        with pytest.raises(fm.errors.UnknownInstruction) as refused:
            fm.find(text)
        meant = re.search(r"did you mean (\S+)\?", str(refused.value))
        assert count == 0, text
        if meant is None:
            order = "in this order; the order is D, A, B, and then that of scales"
            assert order in said, text
            assert order in str(refused.value), text
        else:
            assert f"the nearest is {meant[1]}." in said, text


@pytest.mark.xdist_group("explorer")
def test_every_instruction_is_in_the_list(worked_out):
    assert worked_out["listed"] == len(holding())
    assert worked_out["unplaced"] == []


def fits(op, text):
    """Words that are said, or the name of a machine instruction."""
    if "." not in text.split()[0]:
        return matching.fits(op, text.lower().split())
    return op.mnemonic in {each.instruction.mnemonic for each in origins(text)}


@cache
def origins(text):
    return fm.from_sass(text)


@pytest.mark.xdist_group("explorer")
def test_places_of_every_operand(worked_out):
    digests = {}
    assert len(worked_out["places"]) > 1000
    for op in holding():
        if str(op) not in worked_out["places"]:
            continue
        for name, part in op.fragments.items():
            key = part.layout, part.shape
            if key not in digests:
                digests[key] = places(part)
            assert worked_out["places"][str(op)][name] == digests[key], f"{op} {name}"


def places(part):
    """Lane, register and element of each element, for selectors 0."""
    if isinstance(part, fm.tensor_memory.TensorFragment):
        return cells(part)
    layout = part.layout
    at = np.unravel_index(layout.scatter(), layout.place_shape)
    by_axis = dict(zip((name for name, _ in layout.axes), at, strict=True))
    lane = by_axis["L"] + 32 * by_axis.get("W", 0)
    return digest(lane, by_axis["R"], by_axis.get("E", np.zeros_like(lane)))


def cells(part):
    """Lane, 128 more in the second CTA, column and element; the first of copies."""
    (grid,) = grids(part)
    lane = np.array(grid.lane) + 128 * np.array(grid.warp)
    return digest(lane, np.array(grid.register), np.array(grid.element))


@pytest.mark.xdist_group("explorer")
def test_d_arrives_in_the_registers_that_its_loads_fill(worked_out):
    """All of D is put into tensor memory and loaded, register by register."""
    digests = {}
    for op in holding():
        if str(op) in worked_out["routes"]:
            if op.d not in digests:
                digests[op.d] = arrivals(op)
            assert worked_out["routes"][str(op)]["registers"] == digests[op.d], str(op)
    assert len(digests) > 10


def arrivals(op):
    """The thread, 128 more in the second CTA, and the register of each element."""
    numbers = np.arange(1, 1 + op.shape.m * op.shape.n, dtype=np.uint32)
    images = op.d.place(numbers.reshape(op.shape.m, op.shape.n))
    found = [
        tensor_memory.load(load.op, images, address=load.column) for load in loads(op)
    ]
    held = np.concatenate(found, axis=-1)
    held = held.reshape(-1, held.shape[-1])
    thread, register = np.nonzero(held)
    order = np.argsort(held[thread, register])
    assert (held[thread, register][order] == numbers).all()
    return digest(thread[order], register[order])


@pytest.mark.xdist_group("explorer")
def test_scales_are_in_blocks_as_they_are_copied(worked_out):
    """The blocks of each CTA, moved by the copies, leave the scales in their cells."""
    seen = set()
    for op in holding():
        for name in ("scale_A", "scale_B"):
            if str(op) not in worked_out["routes"] or name not in op.fragments:
                continue
            part = op.fragments[name]
            if part in seen:
                continue
            seen.add(part)
            offsets = worked_out["routes"][str(op)]["scales"][name]
            check_blocks(op, name, np.reshape(offsets, part.shape))
    assert len(seen) > 10


def check_blocks(op, name, offsets):
    part, ctas = op.fragments[name], op.cta_group
    numbers = np.random.default_rng(3).integers(1, 255, part.shape, dtype=np.uint8)
    copy = tensor_memory.scale_copy(op, name)
    size = 1024 if "64x128b" in str(copy) else 512
    smem = np.zeros((ctas, size * (1 + offsets.max() // size)), np.uint8)
    for cta, mine in enumerate(np.split(np.arange(op.shape.m), ctas)):
        rows = mine if name == "scale_A" else slice(None)  # all have those of B
        smem[cta, offsets[rows]] = numbers[rows]
    image = np.zeros((ctas, 128, 512), np.uint32)
    smem, image = (smem, image) if ctas == 2 else (smem[0], image[0])
    for number in range(smem.shape[-1] // size):
        where = Descriptor(size * number, 16, 128, swizzle=0, family="tcgen05")
        image = tensor_memory.copy(copy, image, smem, 4 * number, where)
    expected = part.place(numbers)
    assert (image[expected != 0] == expected[expected != 0]).all(), f"{op} {name}"


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize("family", MULTIPLYING)
def test_values_are_exact(worked_out, family):
    for op in multiplications():
        if op.family == family:
            check_values(op, worked_out["values"][str(op)])


@pytest.mark.xdist_group("explorer")
def test_the_identity_of_a_sparse_instruction(worked_out):
    """It is that of the whole A, stored as compress stores it: D begins with B."""
    ops = [op for op in multiplications() if op.sparse]
    for op in ops:
        found = worked_out["identities"][str(op)]
        m, n, k = op.shape
        stored = fm.sparse.compress(op, np.eye(m, k))
        a = np.reshape(found["A"], (m, -1))
        np.testing.assert_array_equal(stored.values.astype(float), a, err_msg=str(op))
        np.testing.assert_array_equal(stored.indices.ravel(), found["codes"])
        same, b = min(m, k), np.reshape(found["B"], (k, n))
        np.testing.assert_array_equal(np.reshape(found["D"], (m, n))[:same], b[:same])
    assert len(ops) > 50


def check_values(op, found):
    m, n, k = op.shape
    stored = k // 2 if op.sparse else k
    a = np.reshape(found["A"], (-1, m, stored))
    found.setdefault("C", np.zeros(m * n))  # a tcgen05.mma adds to D itself
    b, c, d = (
        np.reshape(found[x], s)
        for x, s in (("B", (-1, k, n)), ("C", (-1, m, n)), ("D", (-1, m, n)))
    )
    scales = {}
    if op.scale_vec:
        scales = {
            "scale_a": np.reshape(found["scale_A"], (m, op.scale_vec)),
            "scale_b": np.reshape(found["scale_B"], (op.scale_vec, n)),
        }
        assert len(set(found["scale_A"])) > 1
    for tile in range(len(d)):
        given = a[tile]
        if op.sparse:
            codes = np.reshape(found["codes"], op.metadata.shape).astype(np.uint8)
            values = op.types["a"].decode(op.types["a"].encode(given))
            given = fm.sparse.Compressed(values, codes, op.granularity)
        made = op(given, b[tile], c[tile], target=found["target"], **scales)
        np.testing.assert_array_equal(made.astype(float), d[tile], err_msg=str(op))
