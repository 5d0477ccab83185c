"""Tensor memory: the formulas of the manual against the one-line layouts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, sizes
from fragmenta.reference.registers.tensor_fragment import TensorFragment, Window

# The lane, the column and the CTA of row r and column n of D, as the manual's text and
# five programs have them.
Formula = Callable[[int, int, int], tuple[int, int, int]]
D: dict[str, Formula] = {
    "A": lambda r, n, N: (r % 128, n, r // 128),
    "B": lambda r, n, N: (r % 64 + 64 * (n // (N // 2)), n % (N // 2), r // 64),
    "C": lambda r, n, N: (32 * (r % 64 // 16) + r % 16, n, r // 64),
    "D": lambda r, n, N: (r, n, 0),
    "E": lambda r, n, N: (r + 64 * (n // (N // 2)), n % (N // 2), 0),
    "F": lambda r, n, N: (32 * (r // 16) + r % 16, n, 0),
    "G": lambda r, n, N: (r + 32 * (n // (N // 4)), n % (N // 4), 0),
}
CASES = {
    "A": [fm.tcgen05("m256n96k16", a="f16", cta_group=2)],
    "B": [
        fm.tcgen05("m128n96k16", a="f16", cta_group=2),
        fm.tcgen05("m128n48k64", a="e2m1", kind="mxf4", cta_group=2),
    ],
    "C": [fm.tcgen05("m128n96k32", a="f16", cta_group=2, sp=True)],
    "D": [
        fm.tcgen05("m128n48k16", a="f16"),
        fm.tcgen05("m128n64k16", a="f16", ws=True),
    ],
    "E": [fm.tcgen05("m64n128k16", a="f16", ws=True)],
    "F": [
        fm.tcgen05("m64n24k16", a="f16", d="f16"),
        fm.tcgen05("m64n24k32", a="f16", sp=True),
    ],
    "G": [fm.tcgen05("m32n256k8", a="tf32", ws=True)],
}


@pytest.mark.parametrize("letter", sorted(D))
def test_the_layouts_of_d_are_the_formulas(letter: str) -> None:
    for op in CASES[letter]:
        assert op.layout_letter == letter
        m, n, _ = op.shape
        for r, c in product(range(0, m, 7), range(0, n, 5)):
            cell = op.d.where(r, c, address=7)
            lane, column, cta = D[letter](r, c, n)
            assert (cell.lane, cell.column, cell.cta or 0) == (lane, column + 7, cta)
            assert cell.bits == (0, op.types["d"].bits - 1)
            assert (r, c) in op.d.holds(lane, column=column + 7, cta=cta, address=7)


def test_the_lane_of_the_address_chooses_the_half_of_layout_f() -> None:
    d = fm.tcgen05("m64n8k16", a="f16").d
    assert {d.where(r, 0).lane % 32 for r in range(64)} == set(range(16))
    high = {d.where(r, 0, address=16 << 16).lane % 32 for r in range(64)}
    assert high == set(range(16, 32))
    first = d.pack(np.ones((64, 8), np.float32))
    both = d.pack(np.full((64, 8), 2, np.float32), address=16 << 16, image=first)
    assert (d.unpack(both) == 1).all()
    assert (d.unpack(both, address=fm.tensor_memory.TensorAddress(16, 0)) == 2).all()
    assert d.holds(16) == []
    with pytest.raises(fm.errors.AddressError, match=r"lane 0 or 16; .* has lane 8"):
        d.where(0, 0, address=8 << 16)


@pytest.mark.parametrize("letter", sorted(D))
def test_a_is_in_the_lanes_of_the_rows_of_d(letter: str) -> None:
    for op in CASES[letter]:
        per_cell = 32 // op.a.container.bits
        lanes = {(op.d.where(3, c).lane, op.d.where(3, c).cta) for c in range(4)}
        for column in (0, op.stored_k - 1):
            cell = op.a.where(3, column)
            places = (cell, *cell.copies)
            assert lanes <= {(each.lane, each.cta) for each in places}
            assert {each.column for each in places} == {column // per_cell}
        assert op.a.columns == 8


def test_where_there_are_parts_of_n_a_is_repeated_for_each() -> None:
    assert len(CASES["G"][0].a.where(31, 0).copies) == 3
    assert [each.lane for each in CASES["E"][0].a.where(5, 0).copies] == [69]
    assert [each.lane for each in CASES["B"][0].a.where(70, 0).copies] == [70]
    assert CASES["D"][0].a.where(70, 0).copies == ()


# The scale of row r and factor j is at lane r % 32, repeated every 32 lanes, in byte
# j % 4 of column r / 32 + 4 ceil(rows / 128) (j / 4).
@pytest.mark.parametrize("n", [8, 128, 136, 256])
@pytest.mark.parametrize("first", [0, 3])
def test_scales_are_in_every_quarter(n: int, first: int) -> None:
    op = fm.tcgen05(
        f"m128n{n}k32", a="e4m3", kind="mxf8f6f4", scale_a_id=first, scale_b_id=first
    )
    for part, rows in ((op.scale_a, 128), (op.scale_b, n)):
        for r in range(rows):
            element = (r, 0) if part is op.scale_a else (0, r)
            cell = part.where(*element)
            places = [(c.lane, c.column, c.bits[0]) for c in (cell, *cell.copies)]
            assert places == [(r % 32 + q, r // 32, 8 * first) for q in (0, 32, 64, 96)]


@pytest.mark.parametrize(("size", "factors"), [("block32", 3), ("block16", 6)])
def test_the_factors_of_k_96_run_into_the_next_word(size: str, factors: int) -> None:
    op = fm.tcgen05(
        "m128n144k96",
        a="e2m1",
        kind="mxf4nvf4",
        scale_vec=size,
        scale="ue8m0",
        scale_a_id=2,
        scale_b_id=2,
    )
    assert op.scale_a.shape == (128, factors)
    assert op.scale_b.shape == (factors, 144)
    for j in range(factors):
        word, byte = divmod(j + 2, 4)
        for r, rows, cell in (
            (77, 128, op.scale_a.where(77, j)),
            (140, 144, op.scale_b.where(j, 140)),
        ):
            column = r // 32 + 4 * -(-rows // 128) * word
            where = (cell.lane, cell.column, cell.bits[0])
            assert where == (r % 32, column, 8 * byte)
    assert op.requires.targets == ("sm_103a", "sm_107a")


@pytest.mark.parametrize("n", [16, 48, 128, 256])
def test_scales_of_a_pair_with_m_128(n: int) -> None:
    op = fm.tcgen05(f"m128n{n}k64", a="e2m1", kind="mxf4nvf4", cta_group=2)
    for r in (0, 40, 63, 64, 100):
        cell = op.scale_a.where(r, 1)
        assert (cell.lane, cell.column, cell.cta) == (r % 32, r % 64 // 32, r // 64)
    for c in range(n):
        half, inside = divmod(c, n // 2)
        cell = op.scale_b.where(2, c)
        places = {(each.cta, each.lane, each.column) for each in (cell, *cell.copies)}
        quarters = (2 * half, 2 * half + 1)
        assert places == {
            (cta, inside % 32 + 32 * q, inside // 32)
            for cta in (0, 1)
            for q in quarters
        }


def test_metadata_of_sixteen_bit_kinds() -> None:
    for shape, a, group in (("m128n64k32", "bf16", 1), ("m256n64k16", "tf32", 2)):
        for selector in (0, 1):
            op = fm.tcgen05(shape, a=a, sp=True, selector=selector, cta_group=group)
            for r, c in product(range(op.shape.m), range(8)):
                cell = op.metadata.where(r, c, address=4)
                local = r % 128
                lane = 16 * (local // 16) + local % 8 + 8 * (c // 4)
                low = 16 * (local // 8 % 2) + 4 * (c % 4)
                found = (cell.lane, cell.column, cell.bits, cell.cta or 0)
                assert found == (lane, 4 + selector, (low, low + 3), r // 128)


def test_metadata_of_eight_and_four_bit_kinds() -> None:
    for op in (
        fm.tcgen05("m128n64k64", a="e4m3", sp=True),
        fm.tcgen05("m256n64k128", a="e2m1", kind="mxf4", sp=True, cta_group=2),
    ):
        for r, c in product(range(op.shape.m), range(16)):
            cell = op.metadata.where(r, c)
            low = 4 * (c % 8)
            found = (cell.lane, cell.column, cell.bits, cell.cta or 0)
            assert found == (r % 128, c // 8, (low, low + 3), r // 128)


def test_metadata_of_ws_is_repeated() -> None:
    e = fm.tcgen05("m32n64k64", a="s8", ws=True, sp=True).metadata
    cell = e.where(9, 3)
    assert [each.lane for each in (cell, *cell.copies)] == [9, 41, 73, 105]


def test_metadata_that_only_figures_show_is_refused() -> None:
    for op in (CASES["C"][0], CASES["F"][1]):
        with pytest.raises(fm.errors.UnknownOperand, match="no source but figures"):
            _ = op.metadata


def _every_part() -> list[tuple[str, TensorFragment]]:
    found = []
    for kind, row in OF_KIND.items():
        for group, ws, sparse in product((1, 2), (False, True), (False, True)):
            for m, widths in sizes(kind, group, ws=ws, sparse=sparse).items():
                for n in (widths[0], widths[-1]):
                    op = fm.tcgen05(
                        f"m{m}n{n}k{row.k[sparse]}",
                        a=row.operands[-1],
                        kind=kind,
                        d=row.results[0] if kind != "f16" else "f32",
                        cta_group=group,
                        ws=ws,
                        sp=sparse,
                    )
                    found += [(f"{op} {n}", part) for n, part in op.fragments.items()]
    return found


def test_every_fragment_packs_and_unpacks_without_touching_other_cells() -> None:
    random = np.random.default_rng(5)
    for name, part in _every_part():
        assert isinstance(part, TensorFragment)
        bits = random.integers(0, 1 << part.dtype.bits, part.shape, np.uint64)
        bits = bits.astype(part.dtype.bits_dtype)
        shape = (2, 128, 512) if part.pair else (128, 512)
        before = random.integers(0, 1 << 32, shape, np.uint32)
        slots = part.container.insert(bits)
        after = part.place(slots, address=3, image=before)
        assert (part.unpack_bits(after, address=3) == bits).all(), name
        changed = after != before
        assert not (changed & ~part.cells(address=3)).any(), name
        assert part.cells(address=3).sum() >= changed.sum() > 0, name


def test_batches_broadcast() -> None:
    d = CASES["B"][0].d
    matrices = np.arange(3 * 128 * 96, dtype=np.float32).reshape(3, 128, 96)
    image = d.pack(matrices)
    assert image.shape == (3, 2, 128, 512)
    assert (d.unpack(image) == matrices).all()
    assert (d.pack(matrices[0], image=image)[2] == image[0]).all()


def test_windows() -> None:
    window = Window(48, 0, 24, 128)
    places = window.at(np.arange(48))
    assert places[[0, 23, 24, 47]].tolist() == [0, 23, 128, 151]
    assert window.back(places).tolist() == list(range(48))
    assert window.back(np.array([24, 127, 152, 256])).tolist() == [-1] * 4
    assert Window(3, 2).back(np.array([1, 2, 4, 5])).tolist() == [-1, 0, 2, -1]


def test_other_notations_say_the_same() -> None:
    op = fm.tcgen05("m128n64k16", a="f16", cta_group=2)
    bases = op.d.to_linear_layout()
    assert bases["block"] == [(64, 0)]
    assert bases["row"][6] == (0, 32)
    assert op.d.to_cute() == "((64,2,2),32):((1,4096,64),128)"
    assert next(fm.tcgen05("m128n16k32", a="s8").a.rows()) == {
        "lane": 0,
        "column": 0,
        "low": 0,
        "high": 7,
        "row": 0,
        "col": 0,
    }


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d: d.where(128, 0), "row 128 is out of range"),
        (lambda d: d.where(0), r"indexed by \(row, col\)"),
        (lambda d: d.holds(128), "lanes are 0 to 127"),
        (lambda d: d.holds(0, cta=2), "CTAs 0 and 1"),
        (lambda d: d.holds(0, column=48), "columns 0 to 47"),
        (lambda d: d.pack(np.zeros((128, 95))), "128x96"),
        (lambda d: d.unpack(np.zeros((128, 512), np.uint32)), "two CTAs"),
        (lambda d: d.unpack(np.zeros((2, 128, 512))), "uint32"),
        (lambda d: d.where(0, 0, address=470), "do not fit in 512"),
        (lambda d: d.where(0, 0, address=-1), "32 bits"),
        (lambda d: d.pack_tiles(np.zeros((256, 96))), "one tile at a time"),
    ],
)
def test_bad_input_is_refused(call: Callable[..., object], words: str) -> None:
    with pytest.raises(fm.Error, match=words):
        call(CASES["B"][0].d)


def test_copies_of_an_instruction_are_the_instruction() -> None:
    op = CASES["C"][0]
    assert pickle.loads(pickle.dumps(op)) == op
    assert fm.instruction(str(op)) == op != fm.instruction(op.mnemonic)
