"""The pictures of tensor memory show what the fragments say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import tensor_memory
from fragmenta.errors import Error
from fragmenta.inspect.view.path import loads, path_svg
from fragmenta.inspect.view.svg import fragment_svg
from fragmenta.inspect.view.tensor_memory import arrangement, blocks
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.tensor_fragment import COLUMNS, LANES, TensorFragment

# Every layout of D, scales in one CTA and in a pair, both forms of metadata, K = 96.
WORDS = [
    "tcgen05.m256n32k16.f32.f16",
    "tcgen05.cta_group::2.m128n32k16.f32.f16",
    "tcgen05.sp.cta_group::2.m128n32k32.f32.f16",
    "tcgen05.sp.m128n32k32.f32.f16",
    "tcgen05.ws.m64n64k16.f32.f16",
    "tcgen05.m64n24k16.f32.f16",
    "tcgen05.ws.sp.m32n64k64.f32.e4m3",
    "tcgen05.kind::mxf4.m128n24k64",
    "tcgen05.kind::mxf4.cta_group::2.m128n48k64",
    "tcgen05.kind::mxf4nvf4.m128n16k96",
]
OPS = {words: fm.find(words) for words in WORDS}


@pytest.fixture(params=OPS)
def op(request: pytest.FixtureRequest) -> Instruction:
    return OPS[request.param]


def parts(op: Instruction) -> dict[str, TensorFragment]:
    return {n: p for n, p in op.fragments.items() if isinstance(p, TensorFragment)}


def test_the_arrangement_fits_and_does_not_overlap(op: Instruction) -> None:
    used = np.zeros((2, LANES, COLUMNS), int)
    for name, part in parts(op).items():
        used += np.broadcast_to(part.cells(address=arrangement(op)[name]), used.shape)
    assert used.max() == 1


def test_blocks_are_the_cells_of_the_fragment(op: Instruction) -> None:
    for part in parts(op).values():
        drawn = np.zeros((2, LANES, COLUMNS), int)
        for block in blocks(part, fm.tensor_memory.TensorAddress(0, 4)):
            lanes = slice(block.lanes[0], block.lanes[1] + 1)
            columns = slice(block.columns[0], block.columns[1] + 1)
            drawn[block.cta, lanes, columns] += 1
        assert drawn.max() == 1
        cells = part.cells(address=4)
        wanted = cells if part.pair else np.stack([cells, np.zeros_like(cells)])
        # A last block may be cut short by the columns that the operand has.
        assert (drawn >= wanted).all()


def test_a_block_says_where_its_corners_are(op: Instruction) -> None:
    for part in parts(op).values():
        for block in blocks(part, fm.tensor_memory.TensorAddress(0, 0)):
            for row, col in zip(block.rows, block.cols, strict=True):
                cell = part.where(row, col)
                assert any(
                    (each.cta or 0) == block.cta
                    and block.lanes[0] <= each.lane <= block.lanes[1]
                    and block.columns[0] <= each.column <= block.columns[1]
                    and each.lane // 32 == block.warp
                    for each in (cell, *cell.copies)
                )


def test_pictures_are_well_formed_and_name_all_operands(op: Instruction) -> None:
    for picture in (op.to_svg(), path_svg(op)):
        texts = " ".join(ET.fromstring(picture).itertext())
        assert str(op) in texts
        assert "nan" not in picture
        for name in op.fragments:
            assert name in texts


def test_loads_fetch_every_column_of_d_once(op: Instruction) -> None:
    """Each warp's registers are D's cells in its lanes, without gaps."""
    part = op.d
    assert isinstance(part, TensorFragment)
    numbers = np.arange(part.shape[0] * part.shape[1]).reshape(part.shape)
    image = part.place(numbers.astype(np.uint32))
    image = image[0] if part.pair else image
    found = [
        tensor_memory.load(load.op, image, address=load.column).ravel()
        for load in loads(op)
    ]
    held = image[part.cells()[0] if part.pair else part.cells()]
    assert sorted(np.concatenate(found)) == sorted(held)


@pytest.mark.parametrize("name", ["D", "A", "scale_A", "scale_B"])
def test_titles_in_a_picture_are_places(name: str) -> None:
    part = fm.find("tcgen05.kind::mxf4.cta_group::2.m128n48k64").fragments[name]
    assert isinstance(part, TensorFragment)
    pattern = r"<title>\w+\[(\d+), (\d+)\]: CTA (\d), lane (\d+), column (\d+), "
    found = re.findall(pattern, fragment_svg(part))
    assert len(found) > 10
    for match in found:
        row, col, cta, lane, column = map(int, match)
        cell = part.where(row, col)
        assert (cell.cta, cell.lane, cell.column) == (cta, lane, column)


def test_only_a_multiplication_with_a_shape_has_a_path() -> None:
    for name in ("tcgen05.ld.32x32b.x4", "tcgen05.mma.cta_group::1.kind::f16"):
        with pytest.raises(Error, match="no path to draw"):
            path_svg(fm.find(name))
