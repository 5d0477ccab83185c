"""The kernels that record wmma: they assemble, and a recording finds mistakes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.cuda.tools import assembler, launch
from fragmenta.cuda.tools.launch import POISON
from fragmenta.inspect.evidence import record
from fragmenta.inspect.evidence.wmma import ROUND, LoadCase, RoundCase, cases
from fragmenta.reference.execution.mma import execute
from fragmenta.reference.registers.words import unpack_words
from tests.disassembly import disassemble
from tests.thinning import some

GOLDEN = Path(__file__).parents[1] / "golden" / "h200" / "wmma.npz"
TARGET = "sm_90a"
CASES = cases(TARGET, tiles=8, seed=1)

# one worker makes the recording that several tests look at
together = pytest.mark.xdist_group("wmma recording")


def test_every_shape_type_and_layout_is_asked():
    asked = {case.instruction for case in CASES}
    loads = [op for op in catalogue("wmma.load") if op.values["space"] == "global"]
    products = [op for op in catalogue("wmma.mma") if not op.values.get("rounding")]
    assert asked == {*map(str, loads), *map(str, products), ROUND}
    for instruction in asked - {ROUND}:
        found = [case for case in CASES if case.instruction == instruction]
        assert [case.variant for case in found] == [0, 1, 2]
        assert (
            len({tuple(case.inputs()["ldm"]) for case in found}) == 3
        )  # leading dimensions


def test_leading_dimensions_and_pointers_are_legal():
    for case in CASES:
        images = getattr(case, "images", None) or {"x": getattr(case, "image", None)}
        for image in filter(None, images.values()):
            assert image.ldm >= image.sizes[1]
            assert image.ldm * image.of.bits % 128 == 0
            assert image.words * 4 % 32 == 0


@pytest.mark.long
@pytest.mark.parametrize("target", [TARGET, "sm_80", "sm_120a"])
def test_the_kernels_assemble(target):
    every = {case.name: case for case in cases(target, tiles=8, seed=1)}
    asked = some(every.values(), 4)
    text = launch.source(asked, target)
    assert assembler.assemble(text, target, "-O0")
    assert text.count(".entry") == len(asked)


def test_a_kernel_says_what_it_does():
    (text,) = {
        case.entry()
        for case in CASES
        if case.name.endswith("row_col_m8n8k32_s32_s4_s4_s32_col")
    }
    statements = re.findall(r"(?m)^\s+(wmma\.\S+)", text)
    assert [fm.instruction(each).family for each in statements] == [
        "wmma.load",
        "wmma.load",
        "wmma.load",
        "wmma.mma",
        "wmma.store",
    ]
    assert "wmma.store.d.sync.aligned.col.m8n8k32.global.s32" in statements


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_89", TARGET, "sm_100a", "sm_120a"])
def test_rounding_to_tf32_is_the_arithmetic_that_is_documented(target):
    """Unless it is infinite or NaN: add 0x1000; then clear 13 bits."""
    text = launch.source([RoundCase(0, 1, 0)], target)
    code = disassemble(assembler.assemble(text, target))
    assert re.search(r"FSETP\.GEU\.AND P0, PT, \|R\d+\|, \+INF", code)
    # the constant is written as a number, or as the half 2^-11, whose bits it is
    assert re.search(r"0x1000\b|0\.00048828125", code)
    assert re.search(r"@!P0 \S*IADD\S* ", code)
    assert "0xffffe000" in code
    assert int(np.float16(2.0**-11).view(np.uint16)) == 0x1000


# ── a machine that is no GPU ────────────────────────────────────────────────


def read(image, words):
    """The matrices in a memory image, by slices."""
    of = image.of
    leading, inner = image.sizes
    flat = words.view(np.uint64) if of.bits == 64 else words
    bits = unpack_words(flat, of.bits).reshape(len(words), leading, image.ldm)
    matrix = bits[..., :inner]
    return matrix if image.layout == "row" else matrix.mT


def written(image, matrices):
    """A poisoned memory image with matrices in it, by slices."""
    of = image.of
    leading, inner = image.sizes
    words = np.full((len(matrices), image.words), POISON, np.uint32)
    rows = words.view(of.bits_dtype).reshape(len(matrices), leading, image.ldm)
    rows[..., :inner] = matrices if image.layout == "row" else matrices.mT
    return words


def registers(part, bits):
    packed = part.pack(part.dtype.decode(bits))
    return packed.reshape(len(bits), -1).view(np.uint32)


class Machine:
    """Answers as the kernels should, from fragments and slices alone."""

    target = TARGET

    def load(self, cubin):
        assert cubin
        return cubin

    def versions(self):
        return {"gpu": "none", "target": self.target}

    def run(self, module, name, grid, block, inputs, output):
        assert (grid, block) == (len(output), 32)
        assert (output == POISON).all()
        if name == "round":
            return self.round(inputs[0])
        case = next(case for case in CASES if case.name == name)
        *memory, ldm = inputs
        if isinstance(case, LoadCase):
            image = self.with_ldm(case.image, ldm[0])
            return registers(image.part, read(image, memory[0]))
        images = {
            name: self.with_ldm(image, each)
            for (name, image), each in zip(case.images.items(), ldm, strict=True)
        }
        parts = [
            images[name].part.pack(images[name].of.decode(read(images[name], words)))
            for name, words in zip("abc", memory, strict=True)
        ]
        d = execute(case.op, *parts, target=self.target)
        image = written(images["d"], case.op.d.unpack_bits(d))
        return np.hstack([d.reshape(len(d), -1).view(np.uint32), image])

    def with_ldm(self, image, ldm):
        found = next(
            each for each in range(9) if replace(image, longer=each).ldm == ldm
        )
        return replace(image, longer=found)

    def round(self, words):
        magnitude = words & 0x7FFFFFFF
        nearest = (words.astype(np.uint64) + 0x1000).astype(np.uint32)
        return np.where(magnitude < 0x7F800000, nearest, words) & np.uint32(0xFFFFE000)


@pytest.fixture(scope="module")
def recording():
    said = []
    made = record.record(Machine(), "wmma", tiles=8, seed=1, progress=said.append)
    assert len(said) == len(CASES)
    return made


@pytest.mark.long
@together
def test_a_recording_is_small_and_survives_saving(recording, tmp_path):
    recording.save(tmp_path / "wmma.npz")
    assert (tmp_path / "wmma.npz").stat().st_size < 3e6
    again = record.load(tmp_path / "wmma.npz")
    assert again.cases == recording.cases
    assert again.made == recording.made
    assert (again.words == recording.words).all()


@pytest.mark.long
@together
def test_what_the_machine_answers_is_what_wmma_computes(recording):
    found = list(record.replay(recording))
    assert len(found) == len(CASES)
    assert not [str(each) for _, each in found if each]


@pytest.mark.long
@together
def test_every_wrong_bit_is_found(recording):
    rng = np.random.default_rng(4)
    words = recording.words.copy()
    chosen = rng.choice(len(recording.cases), 20, replace=False)
    for number in chosen:
        case = recording.cases[number]
        at = case.start + int(rng.integers(np.prod(case.shape)))
        words[at] ^= np.uint32(1) << np.uint32(rng.integers(32))
    broken = replace(recording, words=words)
    replayed = [each for _, each in record.replay(broken)]
    assert sorted(chosen) == [n for n, each in enumerate(replayed) if each]
    shown = [each for each in replayed if each]
    assert all(each.bits == each.elements == 1 for each in shown)
    assert all(
        re.match(r"tile \d+, .*: GPU 0x\w+, CPU 0x", each.first) for each in shown
    )


@together
def test_other_inputs_are_noticed(recording):
    wrong = replace(recording.cases[0], digest="0" * 16)
    broken = replace(recording, cases=[wrong])
    with pytest.raises(fm.Error, match="are not those that were recorded"):
        list(record.replay(broken))


# ── a GPU's own answers ─────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.skipif(not GOLDEN.exists(), reason="no recording of wmma in tests/golden")
def test_the_recorded_answers_are_those_of_wmma():
    golden = record.load(GOLDEN)
    target = golden.made["target"]
    case = golden.cases[-2]
    asked = cases(target, tiles=case.tiles, seed=case.seed)
    assert [c.instruction for c in golden.cases] == [each.instruction for each in asked]
    wrong = [each for _, each in record.replay(golden) if each]
    assert not wrong, "\n".join(
        f"{each.case.instruction}: {each.first}" for each in wrong
    )


@pytest.mark.gpu
def test_a_gpu_answers_what_wmma_computes():
    from fragmenta.cuda.tools.device import present

    try:
        gpu = present()
    except fm.errors.NoDevice as why:
        pytest.skip(str(why))
    answered = record.record(gpu, "wmma", tiles=8, seed=99)
    wrong = [each for _, each in record.replay(answered) if each]
    assert not wrong, "\n".join(
        f"{each.case.instruction}: {each.first}" for each in wrong
    )
