"""Kernels that read shared memory, their inputs, and recordings of them.

There is no GPU here: one written by hand from the formulas, for 8-bit integers
and the moves of sm_90a, stands in for it.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.cuda.source import kernel, tiled
from fragmenta.cuda.tools import assembler
from fragmenta.cuda.tools.launch import TileKernel
from fragmenta.inspect.evidence import moves
from fragmenta.inspect.evidence.case import machine_code
from fragmenta.inspect.evidence.record import (
    CaseRecording,
    load,
    record,
    record_cases,
    replay,
)
from fragmenta.inspect.evidence.variants import Variant, variants
from fragmenta.inspect.evidence.warpgroup import WarpgroupCase, cases
from fragmenta.reference.shared.descriptor import Descriptor, extent
from fragmenta.reference.shared.tiles import read_tile
from tests.cuda.addresses import observed_addresses
from tests.disassembly import disassemble
from tests.thinning import some

WIDTHS = (8, 24, 64, 96, 256)
TYPES = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1"}


def module(entries, ops, target):
    version = max(op.requires.ptx_on(target) for op in ops)
    return kernel.module(entries, target, version)


def every_op(n):
    return [
        op
        for family in ("wgmma", "wgmma.sp")
        for op in catalogue(family)
        if op.shape.n == n
    ]


# ── kernels ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n", WIDTHS)
def test_every_type_assembles_with_a_in_registers_and_in_memory(n):
    ops = every_op(n)
    assert {op.types["a"].name for op in ops} == TYPES
    ops = some(ops, 5, WIDTHS.index(n))
    entries = [
        tiled.entry(op, f"k{i}_{a}", image_bytes=32768, a_registers=bool(a))
        for i, op in enumerate(ops)
        for a in (0, 1)
    ]
    assert assembler.assemble(module(entries, ops, "sm_90a"), "sm_90a", "-O0")


def test_the_machine_code_is_one_instruction_with_its_immediates():
    """As ptxas optimises it: HGMMA reading a transposed, negated B."""
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    chosen = {"imm_scale_b": -1, "trans_b": 1}
    text = tiled.entry(op, "one", image_bytes=4096, a_registers=True, **chosen)
    cubin = assembler.assemble(module([text], [op], "sm_90a"), "sm_90a")
    lines = [x for x in disassemble(cubin).splitlines() if "HGMMA" in x]
    assert len(lines) == 1
    assert "64x8x16.F32" in lines[0]
    assert "tnspB" in lines[0]


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_every_move_assembles(target):
    ops = [case.op for case in moves.cases(target, seed=1)]
    entries = [
        tiled.entry(op, f"k{i}", image_bytes=0 if op.family == "movmatrix" else 4096)
        for i, op in enumerate(ops)
    ]
    assert len(ops) == {"sm_90a": 37, "sm_100a": 82}[target]
    assert assembler.assemble(module(entries, ops, target), target)


def test_kernels_refuse_what_they_cannot_do():
    op = fm.wgmma("m64n8k32", a="s8")
    with pytest.raises(fm.Error, match="a multiple of 16 bytes, at most 49152"):
        tiled.entry(op, "one", image_bytes=1 << 16)
    with pytest.raises(fm.Error, match="given 0"):
        tiled.entry(op, "one")
    with pytest.raises(fm.Error, match="no immediate imm_scale_a"):
        tiled.entry(op, "one", image_bytes=4096, imm_scale_a=1)
    with pytest.raises(fm.Error, match=r"no kernel here for wmma\.load"):
        tiled.entry(next(iter(catalogue("wmma.load"))), "one")


# ── inputs ──────────────────────────────────────────────────────────────────


def descriptors(case, made):
    for name in "B" if case.way.a_registers else "AB":
        for word in made[name.lower()]:
            yield name, case.way.major(name), Descriptor.decode(int(word))


def test_the_cases_cover_all_there_is():
    seen, total = Counter(), 0
    for case in cases("sm_90a", seed=1):
        op, variant, made = case.op, case.way, case.inputs()
        total += made["c"].nbytes
        assert made["image"].shape[1] == case.kernel.image_bytes <= tiled.MOST
        seen[op.types["a"].name, op.sparse, variant.a_registers, op.shape.n] += 1
        seen["selector", op.types["a"].name, variant.selector] += 1
        seen["signs", variant.scale_a, variant.scale_b] += 1
        for value in made["scale_d"].tolist():
            seen["scale_d", value] += 1
        for name, major, d in descriptors(case, made):
            rows, k = extent(op, name)
            tiles_like_it = [
                Descriptor.for_tile(
                    *(rows, k, op.types[name.lower()]),
                    major=major,
                    swizzle=d.swizzle,
                    order=order,
                )
                for order in ("k", "mn")
            ]
            canonical = [(tile.leading, tile.stride) for tile in tiles_like_it]
            strange = (d.leading, d.stride) not in canonical
            advanced = d.start % (8 * d.swizzle or 128) > 0
            seen[name, major, d.swizzle, op.sparse, strange] += 1
            seen["advanced", name, d.swizzle, advanced] += 1
    assert total < 6.5e6
    for n in (8, 24, 64):
        for a in TYPES:
            for sparse in (False, True) if a != "b1" else (False,):
                for registers in (False, True):
                    assert seen[a, sparse, registers, n], (a, sparse, registers, n)
    for n in (96, 256):
        for a in TYPES:
            assert seen[a, False, False, n] + seen[a, False, True, n]
    for name in "AB":
        for swizzle in (0, 32, 64, 128):
            for sparse in (False, True):
                for major in ("k", "mn"):
                    assert seen[name, major, swizzle, sparse, False] > 2
                    assert seen[name, major, swizzle, sparse, True] > 2
    for swizzle in (64, 128):
        assert seen["advanced", "B", swizzle, True] > 20
    assert all(seen["signs", a, b] > 50 for a in (1, -1) for b in (1, -1))
    assert all(seen["selector", a, 1] > 5 for a in ("f16", "bf16"))
    assert seen["selector", "tf32", 1] > 2
    assert all(seen["scale_d", value] > 300 for value in (0, 1))


def test_every_descriptor_stays_in_its_image():
    for case in cases("sm_90a", seed=2):
        made = case.inputs()
        for name in "B" if case.way.a_registers else "AB":
            words, major = made[name.lower()], case.way.major(name)
            read_tile(case.op, name, made["image"], words, major=major)


def test_the_inputs_follow_from_the_seed_and_the_variant():
    def digest(case):
        return case.digest(case.inputs())

    op = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    for variant in variants(op):
        first = WarpgroupCase(op, variant, tiles=2, seed=3)
        assert digest(first) == digest(replace(first))
        assert digest(first) != digest(replace(first, seed=4))
        assert digest(first) != digest(replace(first, way=replace(variant, turn=1)))
        assert set(first.inputs()) == set(first.parameters)


def test_every_lane_of_a_move_has_its_own_row():
    for case in moves.cases("sm_90a", tiles=3, seed=1):
        made = case.inputs()
        assert set(made) == set(case.parameters)
        if "address" in made:
            assert all(len(set(row)) == 32 for row in made["address"].tolist())
            assert (made["address"] % 16 == 0).all()
            assert made["address"].max() <= 4096 - 16


# ── a GPU written by hand ───────────────────────────────────────────────────


def shared_u8(image, word, rows, k):
    """A K-major tile of bytes, (rows, k), straight from the descriptor's bits."""
    word = int(word)
    start, leading, stride = ((word >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    span = {0: 16, 1: 128, 2: 64, 3: 32}[word >> 62]
    mn, kb = np.mgrid[:rows, :k]
    at = start + mn // 8 * stride + mn % 8 * span + kb // span * leading + kb % span
    if word >> 62:
        at = at ^ (at >> 7 & span // 16 - 1) << 4
    return image[at]


def plain_integers(op, tile):
    """One tile of an 8-bit integer wgmma: 128 lanes of D."""
    lane = np.arange(128)
    q, g, t = lane // 32, lane % 32 // 4, lane % 4
    k = op.shape.k // 2 if op.sparse else op.shape.k
    if tile["a"].ndim:
        a = np.zeros((64, k), np.uint8)
        for r in range(4):
            for j in range(4):
                col = 4 * t + j + 16 * (r >> 1)
                a[16 * q + g + 8 * (r & 1), col] = tile["a"][:, r] >> 8 * j & 0xFF
    else:
        a = shared_u8(tile["image"], tile["a"], 64, k)
    b = shared_u8(tile["image"], tile["b"], op.shape.n, op.shape.k).T
    a = a.view(op.types["a"].storage).astype(np.int64)
    b = b.view(op.types["b"].storage).astype(np.int64)
    if op.sparse:
        full = np.zeros((64, op.shape.k), np.int64)
        row = 16 * q + g + 8 * (t & 1)
        for nibble in range(8):
            code = tile["metadata"][:, 0] >> 4 * nibble & 15
            chunk = 8 * (t >> 1) + nibble
            full[row, 4 * chunk + (code & 3)] = a[row, 2 * chunk]
            full[row, 4 * chunk + (code >> 2)] = a[row, 2 * chunk + 1]
        a = full
    product = a @ b
    d = np.zeros((128, op.shape.n // 2), np.uint32)
    for i in range(op.shape.n // 2):
        here = 16 * q + g + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * t + (i & 1)
        total = product[here]
        if tile["scale_d"]:
            total = total + tile["c"][:, i].view(np.int32)
        if op.satfinite:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        d[:, i] = total & 0xFFFFFFFF
    return d


def plain_move(op, tile):
    """One tile of a move of 16-bit elements."""
    trans = bool(op.values["trans"])
    words = np.array(tile.get("a", np.zeros((32, 1), np.uint32)))
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    if op.family == "movmatrix":
        halves = words.view(np.uint16)
        matrix = np.zeros((8, 8), np.uint16)
        for j in range(2):
            matrix[g, 2 * t + j] = halves[:, j]
        out = np.stack([matrix[2 * t + j, g] for j in range(2)], axis=1)
        return np.ascontiguousarray(out).view(np.uint32)
    count = int(op.values["num"][1:])
    cells = tile["image"].copy().view(np.uint16)
    found = np.zeros((32, count, 2), np.uint16)
    for i in range(count):
        for j in range(2):
            row, col = (2 * t + j, g) if trans else (g, 2 * t + j)
            at = tile["address"][8 * i + row] // 2 + col
            if op.family == "ldmatrix":
                found[:, i, j] = cells[at]
            else:
                cells[at] = words[:, i] >> 16 * j & 0xFFFF
    if op.family == "stmatrix":
        return cells.view(np.uint8)
    return found.view(np.uint32)[..., 0]


class StandIn:
    """Runs the kernels that it is told of."""

    target = "sm_90a"

    def __init__(self, kernels, compute):
        self.kernels = {each.name: each for each in kernels}
        self.compute = compute

    def versions(self):
        return {"gpu": "none", "target": self.target}

    def load(self, cubin):
        assert cubin.startswith(b"\x7fELF")
        return cubin

    def run(self, module, name, grid, block, inputs, output):
        op, names = self.kernels[name].op, self.kernels[name].parameters
        assert name.encode() in module
        assert block == (128 if op.warpgroup else 32)
        assert len(names) == len(inputs)
        for tile in range(grid):
            arrays = {n: x[tile] for n, x in zip(names, inputs, strict=True)}
            output[tile] = self.compute(op, arrays)
        return output


def integer_cases():
    return [
        case
        for case in cases("sm_90a", seed=7)
        if case.op.types["a"].name in ("s8", "u8") and case.op.shape.n in (8, 24, 256)
    ][::2]


def by_numpy(case, made, target):
    """What the package reads and unpacks, multiplied by NumPy."""
    assert target == "sm_90a"
    op = case.op
    if case.way.a_registers:
        a = op.a.unpack_bits(made["a"])
    else:
        a = read_tile(op, "A", made["image"], made["a"])
    b = read_tile(op, "B", made["image"], made["b"])
    a = op.types["a"].decode(a).astype(np.int64)
    b = op.types["b"].decode(b).astype(np.int64)
    if op.sparse:
        codes = op.metadata.unpack(made["metadata"], selector=case.way.selector)
        table = np.zeros((16, 2), np.int64)
        for code in op.granularity.codes(ordered=False):
            table[code] = op.granularity.positions(code)
        columns = table[codes] + 4 * np.arange(16)[:, None]
        full = np.zeros((*a.shape[:-1], op.shape.k), np.int64)
        np.put_along_axis(full, columns.reshape(a.shape), a, axis=-1)
        a = full
    kept = made["scale_d"][:, None, None].astype(np.int64)
    d = a @ b + kept * op.c.unpack(made["c"]).astype(np.int64)
    if op.satfinite:
        d = np.clip(d, -(1 << 31), (1 << 31) - 1)
    return op.d.pack((d & 0xFFFFFFFF).astype(np.uint32).view(np.int32))


@pytest.fixture(scope="module")
def recorded():
    asked = integer_cases()
    return record_cases(StandIn(asked, plain_integers), asked)


@pytest.fixture
def numpy(monkeypatch):
    """Have NumPy compute what is expected."""
    monkeypatch.setattr(WarpgroupCase, "expect", by_numpy)


@pytest.mark.usefixtures("numpy")
def test_integers_by_the_package_are_integers_by_hand(recorded):
    replayed = list(replay(recorded))
    assert len(replayed) == len(integer_cases()) > 30
    assert [case for case, difference in replayed if difference] == []
    sparse = [case for case, _ in replayed if ".sp." in case.instruction]
    assert 0 < len(sparse) < len(replayed)


@pytest.mark.usefixtures("numpy")
def test_recordings_are_kept_in_a_file(recorded, tmp_path):
    recorded.save(tmp_path / "wgmma.npz")
    again = load(tmp_path / "wgmma.npz")
    assert again.cases == recorded.cases
    assert again.made == recorded.made
    for case in again.cases:
        assert (again.result(case) == recorded.result(case)).all()
    assert not any(difference for _, difference in replay(again))


@pytest.mark.usefixtures("numpy")
def test_a_wrong_bit_is_told(recorded):
    words = recorded.words.copy()
    words[5] ^= 0x11
    wrong = CaseRecording(recorded.made, recorded.cases, words)
    (case, told), *rest = replay(wrong)
    assert (told.bits, told.elements) == (2, 1)
    assert case == recorded.cases[0]
    assert told.first.startswith("tile 0 D[")
    assert not any(difference for _, difference in rest)


def test_other_inputs_than_recorded_are_refused(recorded):
    changed = [replace(case, seed=8) for case in recorded.cases]
    other = CaseRecording(recorded.made, changed, recorded.words)
    with pytest.raises(fm.Error, match="are not those that were recorded"):
        next(replay(other))


def test_a_cubin_can_be_made_beforehand():
    asked = integer_cases()[:2]
    cubin = machine_code(asked, "sm_90a")
    found = record_cases(StandIn(asked, plain_integers), asked, cubin=cubin)
    assert len(found.cases) == 2


def test_moves_by_the_package_are_moves_by_hand(tmp_path):
    gpu = StandIn(moves.cases("sm_90a", seed=5), plain_move)
    record(gpu, "moves", tiles=3, seed=5).save(tmp_path / "moves.npz")
    found = load(tmp_path / "moves.npz")
    assert len(found.cases) == 37
    assert not [case for case, difference in replay(found) if difference]
    words = found.words.copy()
    words[-1] ^= 1
    wrong = CaseRecording(found.made, found.cases, words)
    told = [difference for _, difference in replay(wrong) if difference]
    assert [difference.bits for difference in told] == [1]
    store = next(case for case in found.cases if "stmatrix" in case.instruction)
    words = found.words.copy()
    words[store.start] ^= 0x0101
    wrong = CaseRecording(found.made, found.cases, words)
    told = [difference for _, difference in replay(wrong) if difference]
    assert [difference.elements for difference in told] == [2]
    assert told[0].first.startswith("tile 0, index [0]")


def test_asking_for_addresses_gives_the_map():
    op = fm.wgmma("m64n8k32", a="u8")

    gpu = StandIn([TileKernel(op, a_registers=True)], plain_integers)
    asked = [
        Descriptor(1024, 512, 272, 0),
        Descriptor(4096 + 32, 16, 1024, 128),
        Descriptor(2048, 16, 640, 64),
        Descriptor(2048, 16, 256, 32),
    ]
    found = observed_addresses(gpu, asked)
    k, n = np.mgrid[:32, :8]
    for d, seen in zip(asked, found, strict=True):
        assert (seen == d.address(n, k, "u8")).all()


def test_variants_have_the_immediates_that_exist():
    for op in every_op(8):
        for variant in variants(op):
            chosen = variant.immediates(op)
            assert ("selector" in chosen) == op.sparse
            assert ("trans_a" in chosen) == (
                op.types["a"].bits == 16 and not variant.a_registers
            )
            tiled.entry(
                op, "k", image_bytes=1024, a_registers=variant.a_registers, **chosen
            )
    assert Variant(False, trans_b=1).major("B") == "mn"
