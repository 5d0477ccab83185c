"""Memories for one tcgen05.mma, and its result in exact fractions.

Operands are written bit by bit, by the formulas of tcgen05_places.  The numbers of the
sums are typed in, too.  So the package is compared with something that shares none of
its tables.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

import fragmenta as fm
from tests.arithmetic import reference
from tests.arithmetic.inputs import raw

from . import tcgen05_places as at

BITS = {
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "e4m3": 8,
    "e5m2": 8,
    "s8": 8,
    "u8": 8,
    "e2m3": 6,
    "e3m2": 6,
    "e2m1": 4,
}
SHARED = 1 << 17
A_START, B_START = 1024, 66 * 1024
A_COLUMN, META_COLUMN, SCALE_A_COLUMN, SCALE_B_COLUMN = 384, 400, 416, 448


@dataclass(frozen=True)
class Case:
    """One instruction, and how its operands are in memory."""

    shape: str
    a: str
    d: str = "f32"
    b: str = ""
    kind: str = ""
    group: int = 1
    ws: bool = False
    sp: bool = False
    in_tensor: bool = False
    modes: tuple[int, int] = (0, 0)
    majors: str = "kk"
    scale: str = ""
    vectors: int = 0
    ids: tuple[int, int] = (0, 0)
    selector: int = 0
    base: int = 0
    more: tuple[tuple[str, object], ...] = ()

    def __str__(self):
        words = [self.shape, self.kind, self.a, self.b, self.d, *dict(self.more)]
        words += [f"pair{self.group}"] if self.group > 1 else []
        words += ["ws"] * self.ws + ["sp"] * self.sp + ["tmem"] * self.in_tensor
        return "-".join([*filter(None, words), self.majors, *map(str, self.modes)])

    @property
    def op(self):
        options = dict(self.more)
        if self.majors != "kk":
            names = ("transpose_a", "transpose_b")
            options |= {n: m == "n" for n, m in zip(names, self.majors, strict=True)}
        if self.scale:
            options |= {"scale": self.scale, "scale_vec": self.vectors}
            options |= {"scale_a_id": self.ids[0], "scale_b_id": self.ids[1]}
        if self.selector:
            options["selector"] = self.selector
        return fm.tcgen05(
            self.shape,
            a=self.a,
            b=self.b or self.a,
            d=self.d,
            kind=self.kind or None,
            cta_group=self.group,
            ws=self.ws,
            sp=self.sp,
            **options,
        )

    @property
    def packed(self):
        """Whether two elements share a byte."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def letter(self):
        m = int(self.shape[1:].split("n")[0])
        if self.group == 2:
            return "A" if m == 256 else "C" if self.sp else "B"
        return {128: "D", 64: "E" if self.ws else "F", 32: "G"}[m]


class Memories:
    """The images of a case with random operands, and what D must become."""

    def __init__(self, case, seed=0):
        self.case, self.rng = case, np.random.default_rng(seed)
        m, n, k = (int(x) for x in case.shape[1:].replace("n", "k").split("k"))
        self.m, self.n, self.k = m, n, k
        self.stored = k // 2 if case.sp else k
        rng, b = self.rng, case.b or case.a
        self.a = raw(rng, case.a, (m, self.stored), "near")
        self.b = raw(rng, b, (k, n), "near")
        self.d = raw(rng, case.d, (m, n), "near")
        tensor = rng.integers(0, 2**32, (case.group, 128, 512), dtype=np.uint32)
        shared = rng.integers(0, 256, (case.group, SHARED), dtype=np.uint8)
        self.tensor = [at.to_bits(each) for each in tensor]
        self.shared = [at.to_bits(each) for each in shared]
        self.index = None
        self.scale_a = self.scale_b = None
        self._put_d()
        self.words = (self._put("a", 0), self._put("b", 1))
        if case.sp:
            self._put_metadata()
        if case.scale:
            self.scale_a = raw(rng, case.scale, (m, case.vectors), "near")
            self.scale_b = raw(rng, case.scale, (case.vectors, n), "near")
            self._put_scales()

    def changed(self, name, element):
        """Other memories, in which all bits of one element of an operand are flipped."""
        found = Memories(self.case)
        kinds = {"a": self.case.a, "b": self.case.b or self.case.a, "d": self.case.d}
        getattr(found, name)[element] ^= (1 << BITS.get(kinds.get(name), 8)) - 1
        if name in ("a", "b"):
            found._put(name, "ab".index(name))
        elif name == "d":
            found._put_d()
        else:
            found._put_scales()
        return found

    # -- placing -------------------------------------------------------------

    def _put_d(self, column=0):
        row, col = np.indices((self.m, self.n))
        where = at.d_place(self.case.letter, row, col, self.n, self.case.base)
        cta, lane, place = where
        for c, memory in enumerate(self.tensor):
            mine = cta == c
            first = at.cell(lane[mine], place[mine] + column)
            at.put(memory, first, self.d[mine], 16 if self.case.d == "f16" else 32)
        self.cells = where

    def _put(self, name, which):
        """Write A or B, and return its descriptor, or the address of A."""
        case = self.case
        matrix = self.a if name == "a" else self.b.T
        bits = BITS[case.a if name == "a" else case.b or case.a]
        if name == "a" and case.in_tensor:
            self._put_in_tensor(matrix, bits)
            return fm.tensor_memory.TensorAddress(case.base, A_COLUMN)
        mode, major = case.modes[which], case.majors[which]
        start = (A_START, B_START)[which]
        rows, k = matrix.shape[0] // case.group, matrix.shape[1]
        row, col = np.indices((rows, k))
        if major == "k":
            along, across = at.element_in_row(col, bits, case.packed), row
        else:
            along, across = row * bits, col
        leading, stride = self._steps(mode, major, rows, k, bits)
        first = at.shared_place(along, across, mode, major, start, leading, stride)
        for c, memory in enumerate(self.shared):
            at.put(memory, first, matrix[c * rows : (c + 1) * rows], bits)
        word = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32
        return word | 1 << 46 | mode << 61

    def _steps(self, mode, major, rows, k, bits):
        """The leading and the stride offset of a dense arrangement."""
        span, lines, *_ = at.SWIZZLES[mode]
        if major == "k":
            return (16, 8 * span) if mode else (rows * 16, 128)
        if mode:
            return k * span, lines * span
        return rows * bits // 8 * 8, 128

    def _put_in_tensor(self, matrix, bits):
        row, col = np.indices(matrix.shape)
        place = (self.case.letter, row, col * 0, self.n, self.case.base)
        cta, lane, _ = at.d_place(*place)
        inside = at.element_in_a(col, bits, self.case.packed)
        for further in at.a_copies(self.case.letter):
            first = at.cell(lane + further, A_COLUMN) + inside
            for c, memory in enumerate(self.tensor):
                at.put(memory, first[cta == c], matrix[cta == c], bits)

    def _put_metadata(self):
        chunk, kept, per = {"tf32": (2, 1, 1)}.get(self.case.a, (4, 2, 1))
        if self.case.packed:
            chunk, kept, per = 8, 4, 2
        shape = (self.m, self.k // chunk)
        places = self.rng.random((*shape, chunk // per)).argsort(axis=-1)
        places = np.sort(places[..., : kept // per], axis=-1)
        if chunk == 2:
            codes = np.where(places[..., 0] == 0, 0b0100, 0b1110)
        else:
            codes = places[..., 0] | places[..., 1] << 2
        column = places[..., None] * per + np.arange(per)
        column = column + np.arange(0, self.k, chunk)[:, None, None]
        self.index = column.reshape(self.m, self.stored)
        row, number = np.indices(shape)
        wide = BITS[self.case.a] <= 8
        rows = min(128, self.m)
        lane, place, bit = at.metadata_place(row % rows, number, wide)
        for further in at.a_copies(self.case.letter):
            first = at.cell(lane + further, META_COLUMN + self.case.selector + place)
            for c, memory in enumerate(self.tensor):
                mine = row // rows == c
                at.put(memory, (first + bit)[mine], codes[mine], 4)

    def _put_scales(self):
        case, s = self.case, self.case.vectors
        rows = self.m // case.group
        split = case.letter == "B"
        for c, memory in enumerate(self.tensor):
            row, j = np.indices((rows, s))
            lane, column, byte = at.scale_place(row, j + case.ids[0], rows)
            values = self.scale_a[c * rows : (c + 1) * rows]
            for quarter in range(4):
                cell = at.cell(lane + 32 * quarter, column + SCALE_A_COLUMN)
                at.put(memory, cell + 8 * byte, values, 8)
            col, j = np.indices((self.n, s))
            half = self.n // 2 if split else self.n
            lane, column, byte = at.scale_place(col % half, j + case.ids[1], half)
            for quarter in (0, 1) if split else range(4):
                high = lane + 32 * quarter + 64 * (col // half)
                cell = at.cell(high, column + SCALE_B_COLUMN)
                at.put(memory, cell + 8 * byte, self.scale_b.T, 8)

    # -- asking --------------------------------------------------------------

    @property
    def images(self):
        """Tensor memory and shared memory; one axis more for a pair."""
        tensor = np.stack([at.to_bytes(each).view(np.uint32) for each in self.tensor])
        shared = np.stack([at.to_bytes(each) for each in self.shared])
        tensor = tensor.reshape(-1, 128, 512)
        if self.case.group == 1:
            return tensor[0], shared[0]
        return tensor, shared

    @property
    def options(self):
        """The other arguments of ``execute``."""
        found = {"d": self.case.base << 16}
        if self.case.sp:
            found["metadata"] = META_COLUMN
        if self.case.scale:
            found |= {"scale_a": SCALE_A_COLUMN, "scale_b": SCALE_B_COLUMN}
        return found

    def execute(self, **more):
        tensor, shared = self.images
        a, b = self.words
        return self.case.op.execute(
            tensor, a, b, smem=shared, **{**self.options, **more}
        )

    def taken(self, image):
        """D in an image, by the formula."""
        cta, lane, column = self.cells
        return np.asarray(image).reshape(-1, 128, 512)[cta, lane, column]

    def expected(self, count=32):
        """Some elements of D in exact fractions: rows, columns and bits."""
        how, flat = self.model(), self.rng.choice(self.m * self.n, count)
        rows, columns = np.divmod(flat, self.n)
        bits = [self._element(r, c, how) for r, c in zip(rows, columns, strict=True)]
        return rows, columns, np.array(bits, np.uint32)

    def _element(self, r, c, how):
        a, b = self.a[r], self.b[:, c]
        more = dict(self.case.more)
        for name in ("negate_a", "negate_b"):
            if more.get(name):
                of = self.case.a if name == "negate_a" else self.case.b or self.case.a
                flip = 1 << (BITS[of] - 1)
                a, b = (a ^ flip, b) if name == "negate_a" else (a, b ^ flip)
        index = None if self.index is None else self.index[r]
        scales = ()
        if self.scale_a is not None:
            scales = (self.scale_a[r], self.scale_b[:, c])
        return reference.element(a, b, self.d[r, c], how, index, *scales)

    def model(self):
        """How sm_100 adds, typed in."""
        case = self.case
        if case.d == "s32":
            form, numbers = "integer", (0, 0, 0)
        elif case.packed:
            form, numbers = "grouped", (35, -139, 23)
        else:
            form = "fused"
            numbers = (25, -21, 10) if case.d == "f16" else (25, -133, 23)
        fraction, floor, keep = numbers
        return SimpleNamespace(
            form=form,
            a=case.a,
            b=case.b or case.a,
            c=case.d,
            d=case.d,
            k=self.k,
            stored=self.stored,
            accumulator=case.d,
            c_enters=case.d,
            operand=None,
            fraction=fraction,
            floor=floor,
            keep=keep,
            start="c",
            scale=case.scale,
            rounding="rn" if case.d == "f16" else "rz",
            steps=[range(self.stored)],
            scale_vec=case.vectors,
            satfinite="saturate" in dict(case.more),
        )
