"""The pictures of the gallery.

On the site they are cards; on code hosts, where most of them are not drawn, a list of
commands that draw them.
"""

# ruff: noqa: E501  (a table row is one line)

from __future__ import annotations

from functools import cache
from html import escape
from typing import NamedTuple

import fragmenta as fm
from fragmenta.reference.isa.table import read
from making import explorer
from making.figures import FIGURES
from making.markdown import anchor

# ``of``: words that find an instruction, or a picture in docs/.  ``page``: the page
# about it.
GALLERY = """
show      | of                                 | title                       | page                  | about
dense     | mma f16 f32 16x8x16                | f16, the classic            | fragment.md           | 16 x 8 results of 16 products each. Every other picture varies this one.
dense     | mma tf32 16x8x8                    | tf32                        | families/mma.md       | One element fills a register.
dense     | mma int8 16x8x32                   | int8                        | families/mma.md       | Four elements in a register; otherwise as f16.
dense     | mma int4 16x8x64                   | int4                        | layouts.md            | Eight elements in a register.
dense     | mma b1 xor 16x8x256                | single bits                 | families/mma.md       | 32 elements in a register, compared and counted.
dense     | mma f64 8x8x4                      | f64                         | families/mma.md       | An element is as wide as two registers.
dense     | mma.m8n8k4.row.col.f32.f16.f16.f32 | Volta                       | families/mma.md       | Four groups of eight lanes, each with a product of its own.
sparse    | sparse f16 f32 16x8x32             | 2:4 f16                     | sparsity.md           | A is stored without its zeros. Metadata say where its values belong.
sparse    | sparse int8 16x8x64                | 2:4 int8                    | sparsity.md           | Four lanes supply the metadata of two rows.
sparse    | sparse int4 16x8x128               | 4:8 int4, in pairs          | sparsity.md           | Two neighbours are kept or dropped together.
sparse    | sparse tf32 16x8x16                | 1:2 tf32                    | sparsity.md           | One of two values is kept.
scaled    | mma mxfp8 e4m3 16x8x32             | MXFP8                       | quantization.md       | One scale for 32 values of a row of A, or of a column of B.
scaled    | mma nvfp4 16x8x64                  | NVFP4                       | quantization.md       | One scale for 16 values of four bits.
warpgroup | wgmma f32 f16 64x32x16             | Hopper, f16                 | families/wgmma.md     | Four warps and 64 rows. B stays in shared memory.
warpgroup | wgmma f32 e4m3 e4m3 64x32x32       | Hopper, fp8                 | families/wgmma.md     | Twice the products from registers of the same size.
warpgroup | wgmma sparse f32 e4m3 e4m3 64x32x64 | Hopper, sparse fp8         | families/wgmma.md     | A and its metadata are in registers, B in shared memory.
tensor    | tcgen05 f32 f16 128x64x16          | Blackwell, 128 rows         | families/tcgen05.md   | D lies in tensor memory, one lane for each row.
tensor    | tcgen05 f32 f16 64x64x16           | Blackwell, 64 rows          | families/tcgen05.md   | Every warp reaches 16 of the rows.
tensor    | tcgen05 f32 f16 2cta 256x64x16     | Blackwell, two CTAs         | families/tcgen05.md   | A pair of CTAs shares one product.
tensor    | tcgen05 nvfp4 128x64x64            | Blackwell, NVFP4            | families/tcgen05.md   | Scales lie in tensor memory, with copies for every warp.
tensor    | pictures/tcgen05-path.svg          | The way of a result         | families/tcgen05.md   | From tensor memory into registers: which loads, and which lanes.
moves     | ldmatrix.m8n8.x4.b16               | ldmatrix                    | ldmatrix-loops.md     | Four 8 x 8 matrices. Each lane gives the address of one row.
moves     | ldmatrix.m8n8.x4.trans.b16         | ldmatrix, transposed        | ldmatrix-loops.md     | The same rows, handed out by columns.
moves     | stmatrix.m8n8.x4.b16               | stmatrix                    | families/moves.md     | The same in the other direction.
moves     | movmatrix                          | movmatrix                   | families/moves.md     | A transpose between lanes, without memory.
shared    | pictures/swizzles.svg              | Swizzles                    | descriptors.md        | Eight rows of 128 bytes. Each colour is a column of the tile, each place four banks.
kernels   | images/timeline-ring.svg           | A ring of tiles             | ptx.md                | Copies fill one tile while a wgmma reads another. Mbarriers hand them over.
kernels   | images/timeline-cluster.svg        | A cluster of two blocks     | ptx.md                | Two blocks share a ring. Each loads one half for both.
kernels   | images/timeline-tensor.svg         | A pipeline on Blackwell     | families/tcgen05.md   | One warp copies, one issues tcgen05.mma, four wait for the sums.
hazards   | images/timeline.svg                | A ring that frees too early | hazards/overwrite-while-read.md | The consumer arrives before its wgmma has read. The numbers mark both accesses.
hazards   | images/timeline-store.svg          | A store that is still read  | hazards/overwrite-while-read.md | A thread writes to a tile that a copy has not read yet.
numbers   | plots/positive.svg                 | What is left of a sum       | numerics.md           | Correct bits by the length of the sum, by instruction and target.
numbers   | plots/quantization.svg             | What four bits cost         | quantization.md       | Rounding the operands costs more than the sums do.
"""
SHOWS = tuple(dict.fromkeys(row["show"] for row in read(GALLERY)))


class Picture(NamedTuple):
    """A row of the gallery."""

    of: str
    title: str
    page: str
    about: str

    @property
    def op(self) -> fm.Instruction | None:
        """The instruction, if it is one."""
        return None if self.of.endswith(".svg") else _found(self.of)

    @property
    def file(self) -> str:
        """The picture in the folder of the site."""
        return f"pictures/{anchor(str(self.op))}.svg" if self.op else self.of


_found = cache(fm.find)


def pictures(show: str) -> list[Picture]:
    """The pictures of one show."""
    rows = [row for row in read(GALLERY) if row["show"] == show]
    return [Picture(*(row[key] for key in Picture._fields)) for row in rows]


def listed(show: str) -> str:
    """The pictures as a list, for code hosts."""
    return "\n".join(f"- **{each.title}**: {_line(each)}" for each in pictures(show))


def _line(picture: Picture) -> str:
    drawn = f"`fragmenta draw '{picture.of}'`"
    seen = drawn if picture.op else f"[the picture]({picture.of})"
    return f"{picture.about} {seen}, [more]({picture.page})"


def cards(show: str) -> str:
    """The pictures as cards, for the site."""
    shown = pictures(show)
    figures = "\n".join(map(_card, shown))
    wide = "" if any(each.op for each in shown) else " fm-gallery--wide"
    return f'<div class="fm-gallery{wide}">\n{figures}\n</div>'


def _card(picture: Picture) -> str:
    links = [("more", picture.page.replace(".md", ".html"))]
    kept = FIGURES.get(picture.of.rpartition("/")[2].removesuffix(".svg"))
    to = explorer.link(picture.op) if picture.op else kept.link() if kept else ""
    if to:
        links.insert(0, ("explorer", to))
    led = " ".join(f'<a href="{escape(to)}">{text}</a>' for text, to in links)
    words = f"<b>{escape(picture.title)}</b><span>{escape(picture.about)}</span>"
    shown = f"{picture.title}: {picture.op or picture.about}"
    image = f'<img src="{picture.file}" alt="{escape(shown)}" loading="lazy">'
    caption = f'<figcaption>{words}<span class="fm-links">{led}</span></figcaption>'
    return f"<figure>{image}{caption}</figure>"
