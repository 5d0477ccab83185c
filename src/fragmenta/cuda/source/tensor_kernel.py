"""A complete CUDA kernel that multiplies matrices with ``tcgen05``.

The kernel computes D = A * B for matrices of any number of tiles.  A
block, or a pair of blocks, computes one tile of D.  It allocates tensor memory and goes
along k in chunks of four instructions: it fills shared memory, makes it visible to the
Tensor Cores, has scales copied and metadata stored, multiplies, and waits.  In the end
each warp loads its lanes of D and stores them.

All places in tensor memory come from the layouts of the instruction, and all places in
shared memory from its descriptors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source import tensor_moves
from fragmenta.cuda.source.access import expression, summand
from fragmenta.cuda.source.formatting import comment, signature, wrapped
from fragmenta.cuda.source.helpers import Snippet, needed
from fragmenta.cuda.source.inline import function_name, instruction_piece
from fragmenta.cuda.source.ptx import MmaOptions
from fragmenta.cuda.source.tensor_moves import STEPS
from fragmenta.cuda.source.tensor_tiles import (
    Scales,
    Tile,
    folded,
    gathered,
    indented,
    scales,
    tile,
)
from fragmenta.errors import BadCall
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.tcgen05_shapes import WIDE_K
from fragmenta.reference.registers.tensor_fragment import COLUMNS

THREADS = 128
"""Threads of a block: four warps, which reach all lanes."""
_MBARRIER_BYTES = 16
"""An mbarrier, and the address that alloc writes."""
_TYPES = {"f32": "float", "s32": "int", "f16": "unsigned short"}


@dataclass(frozen=True)
class TensorKernel:
    """The kernel around one ``tcgen05.mma``."""

    op: Instruction
    name: str
    a_tensor: bool = False

    # ── what it is made of ──────────────────────────────────────────────────

    @property
    def pair(self) -> bool:
        """Whether two blocks compute a tile together."""
        return self.op.cta_group == 2

    @cached_property
    def tiles(self) -> dict[str, Tile]:
        """A and B in shared memory, one after the other."""
        found: dict[str, Tile] = {}
        start = 0
        for operand in "B" if self.a_tensor else "AB":
            found[operand] = tile(self.op, operand, start)
            start += found[operand].size
        return found

    @cached_property
    def scales(self) -> dict[str, Scales]:
        """The scales of A and B, after the tiles and after D."""
        start = sum(each.size for each in self.tiles.values())
        column = self.op.d.registers + self._gathered_columns
        found: dict[str, Scales] = {}
        for name in self.op.fragments:
            if name.startswith("scale"):
                found[name] = scales(self.op, name, start, column)
                start += found[name].size
                column += found[name].columns
        return found

    @cached_property
    def stored(self) -> dict[str, int]:
        """What threads store to tensor memory, and the column where it begins."""
        names = ["A"] * self.a_tensor + ["metadata"] * self.op.sparse
        column, found = self.op.d.registers, {}
        for name in names:
            # Metadata begins at an even column; as 4 instructions have 4 or 8, and A
            # has 32, it does.
            column += column % 2
            found[name] = column
            column += STEPS * self.op.fragments[name].registers
        return found

    @property
    def _gathered_columns(self) -> int:
        ends = [
            column + STEPS * self.op.fragments[name].registers - self.op.d.registers
            for name, column in self.stored.items()
        ]
        return max(ends, default=0)

    @cached_property
    def allocated(self) -> int:
        """Columns to allocate: a power of two, 32 or more."""
        used = self.op.d.registers + self._gathered_columns
        used += sum(each.columns for each in self.scales.values())
        return max(32, 1 << (used - 1).bit_length())

    @cached_property
    def shared_bytes(self) -> int:
        """Dynamic shared memory that the launch must give."""
        used = sum(each.size for each in self.tiles.values())
        used += sum(each.size for each in self.scales.values())
        return used + _MBARRIER_BYTES

    @cached_property
    def used(self) -> dict[str, Instruction]:
        """The instructions around the multiplication, by what they do."""
        return tensor_moves.around(self.op, a_tensor=self.a_tensor)

    def _call(self, what: str) -> str:
        return function_name(self.used[what])

    # ── the text ────────────────────────────────────────────────────────────

    def text(self) -> str:
        """The kernel, and all functions that it calls."""
        options = MmaOptions(a_tensor=self.a_tensor)
        pieces = [
            instruction_piece(self.op, options=options),
            *(instruction_piece(each) for each in self.used.values()),
        ]
        pieces = list({piece.name: piece for piece in pieces}.values())
        main = Snippet(self.name, self._kernel(), self._needs())
        # The kernel makes no descriptors at run time.
        first = [
            piece
            for piece in needed([*pieces, main])
            if not piece.name.startswith("tcgen05_idesc")
        ]
        return "\n".join(piece.text for piece in (*first, *pieces, main))

    def _needs(self) -> tuple[str, ...]:
        names = ["lane_id", "warp_id", "elect_one", "mbarrier", "tcgen05_hold"]
        names += ["fill_tile", "cluster"] if self.pair else ["fill_tile"]
        names += ["nibble"] if self.op.sparse else []
        narrow = any("packed" in each.change for each in self.tiles.values())
        return (*names, *["packed_units"] * narrow)

    def _kernel(self) -> str:
        cluster = " __cluster_dims__(2, 1, 1)" if self.pair else ""
        opening = signature(
            f'extern "C" __global__ void{cluster} __launch_bounds__({THREADS}) '
            f"{self.name}",
            self._parameters(),
        )
        body = [*self._begin(), *self._chunks(), *self._end()]
        lines = [*self._about(), opening, "{", *indented(body), "}"]
        return "\n".join(lines) + "\n"

    def _parameters(self) -> list[str]:
        found = ["const unsigned char* A", "const unsigned char* B"]
        found += ["const unsigned char* metadata"] if self.op.sparse else []
        found += [f"const unsigned char* {name}" for name in self.scales]
        return [
            *found,
            f"{_TYPES[self.op.types['d'].name]}* D",
            "int m",
            "int n",
            "int k",
        ]

    def _about(self) -> list[str]:
        m, n, k = self.op.shape
        blocks = f"dim3({'2 * ' if self.pair else ''}m / {m}, n / {n})"
        order = {"A": ("row", "column"), "B": ("column", "row")}
        in_pairs = " in clusters of 2" if self.pair else ""
        size = f"m is a multiple of {m}, n of {n}, k of {STEPS * k}."
        threads = f"{THREADS} threads{in_pairs}, {self.shared_bytes} bytes"
        said = [
            " ".join(
                [
                    f"D = A * B, in tiles of {m} x {n}, with {self.op}. {size}",
                    f"Launch: {blocks} blocks of {threads} of dynamic shared memory.",
                ]
            )
        ]
        found = self.op.descriptor
        assert found is not None
        for name, across in (("A", found.transpose_a), ("B", found.transpose_b)):
            of = self.op.types[name.lower()]
            size = "m x k" if name == "A" else "k x n"
            size = "m x k/2 stored" if name == "A" and self.op.sparse else size
            how = order[name][across]
            packing = tensor_moves.packing(self.op, name)
            said.append(f"{name}: {size} {of}, {how}-major{packing}.")
        if self.op.sparse:
            said.append(
                "metadata: a code of 4 bits for each row and chunk of A, row-major, "
                "two to a byte."
            )
        for name, each in self.scales.items():
            rows = "rows of A" if name == "scale_A" else f"columns of B, a tile of {n}"
            said.append(
                f"{name}: blocks of 128 {rows} and 4 factors, 512 bytes each, in the "
                f"order of cuBLAS; {each.rows} block{'s' * (each.rows > 1)} for a tile."
            )
        said.append(f"D: m x n {self.op.types['d']}, row-major.")
        return [line for text in said for line in comment(text)]

    # ── before, and after ───────────────────────────────────────────────────

    def _begin(self) -> list[str]:
        m, n, _ = self.op.shape
        where = self.shared_bytes - _MBARRIER_BYTES
        lines = [
            "extern __shared__ __align__(1024) unsigned char image[];",
            f"auto mbar = reinterpret_cast<unsigned long long*>(image + {where});",
            "auto slot = reinterpret_cast<unsigned*>(mbar + 1);",
            "const int lane = lane_id(), warp = warp_id();",
        ]
        if self.pair:
            lines += [
                "const int cta = cluster_rank();",
                f"const int row_0 = blockIdx.x / 2 * {m}, col_0 = blockIdx.y * {n};",
            ]
        else:
            lines.append(
                f"const int row_0 = blockIdx.x * {m}, col_0 = blockIdx.y * {n};"
            )
        return [
            *lines,
            "",
            "if (warp == 0) {",
            f"    {self._call('alloc')}<{self.allocated}>(slot);",
            f"    {self._call('relinquish')}();",
            "}",
            "if (threadIdx.x == 0) mbarrier_init(mbar, 1);",
            *self._barrier(),
            "const unsigned taddr = *slot;",
            "// Each warp reaches the lanes of its quarter.",
            "const unsigned quarter = taddr + (32 * warp << 16);",
            "",
        ]

    def _barrier(self) -> list[str]:
        """A barrier of the block, or of the pair, that orders tensor memory."""
        return [
            f"{self._call('before')}();",
            "cluster_sync();" if self.pair else "__syncthreads();",
            f"{self._call('after')}();",
        ]

    def _end(self) -> list[str]:
        layout, of = self.op.d.layout, self.op.types["d"].name
        load = self.used["load"]
        count = load.fragments["R"].registers
        value = "__uint_as_float(words[r])" if of == "f32" else "words[r]"
        inside = [
            f"int tensor_lane = 32 * warp + {tensor_moves.lane_of(load)};",
            f"int column = first + {tensor_moves.column_of(load)};",
            *folded(f"int row = row_0 + {summand(layout, 'row')};"),
            *folded(f"int col = col_0 + {summand(layout, 'col')};"),
            f"D[static_cast<long long>(row) * n + col] = {value};",
        ]
        if "base" in layout.free:
            inside.insert(1, f"if ({expression(layout, 'base')}) continue;")
        return [
            "// Each warp loads its lanes of D.",
            f"for (int first = 0; first < {self.op.d.registers}; first += {count}) {{",
            f"    unsigned words[{count}];",
            f"    {self._call('load')}(words, quarter + first);",
            f"    {self._call('wait')}();",
            "    tcgen05_hold(words);",
            "    #pragma unroll",
            f"    for (int r = 0; r < {count}; ++r) {{",
            *indented(indented(inside)),
            "    }",
            "}",
            *self._barrier()[:2],
            f"if (warp == 0) {self._call('dealloc')}<{self.allocated}>(taddr);",
        ]

    # ── along k ─────────────────────────────────────────────────────────────

    def _chunks(self) -> list[str]:
        inside: list[str] = []
        for operand, each in self.tiles.items():
            inside += each.fill(self.op, operand)
        for name, factors in self.scales.items():
            inside += factors.fill(self.op, name)
        for name, column in self.stored.items():
            inside += gathered(self.op, name, self.used[name])
            words = f"quarter + {column}, {name}_words"
            inside.append(f"{self._call(name)}({words});")
        if self.stored:
            inside.append(f"{self._call('wait_store')}();")
        inside += [f"{self._call('proxy')}();", *self._barrier(), *self._issue()]
        inside += ["mbarrier_wait(mbar, chunk & 1);", f"{self._call('after')}();"]
        head = f"for (int chunk = 0; chunk < k / {STEPS * self.op.shape.k}; ++chunk) {{"
        return [head, *indented(inside), "}", ""]

    def _issue(self) -> list[str]:
        """One thread copies the scales, multiplies four times, and commits."""
        who = "cta == 0 && warp == 0" if self.pair else "warp == 0"
        lines = []
        for operand, each in self.tiles.items():
            lines.append(f"auto {operand.lower()} = {each.descriptor};")
        for name, factors in self.scales.items():
            lines += factors.copy(function_name(self.used[name]))
        lines += [line for step in range(STEPS) for line in self._step(step)]
        mask = ", 3" if self.pair else ""
        lines.append(f"{self._call('commit')}(mbar{mask});")
        return [f"if ({who} && elect_one()) {{", *indented(lines), "}"]

    def _step(self, step: int) -> list[str]:
        """One multiplication; only the first of all leaves the old D out."""
        words = ["taddr"]
        for operand in "AB":
            if operand in self.tiles:
                words.append(self.tiles[operand].at(operand.lower(), step))
            else:
                part = self.op.fragments[operand]
                words.append(f"taddr + {self.stored[operand] + step * part.registers}")
        found = self.op.descriptor
        assert found is not None
        if self.op.sparse:
            column, selector = self._metadata_at(step)
            words.append(f"taddr + {column}")
            found = replace(found, selector=selector)
        for name, factors in self.scales.items():
            column, first = factors.step(step, self.op.scale_vec)
            words.append(f"taddr + {column}")
            a, b = found.scale_a_id, found.scale_b_id
            a, b = (first, b) if name == "scale_A" else (a, first)
            found = replace(found, scale_a_id=a, scale_b_id=b)
        words.append("true" if step else "chunk > 0")
        if found.encode() != self.op.idesc:
            words.append(f"{found.encode():#010x}")
        name = function_name(self.op) + MmaOptions(a_tensor=self.a_tensor).tag
        filled = [f"{word}," for word in words[:-1]] + [f"{words[-1]});"]
        return [f"{name}(", *indented(wrapped(filled, 72))]

    def _metadata_at(self, step: int) -> tuple[int, int]:
        """The column of an instruction's metadata, and the selector.

        Where an instruction has one column, two share an even one.
        """
        first, each = self.stored["metadata"], self.op.fragments["metadata"].registers
        return (
            (first + step - step % 2, step % 2)
            if each == 1
            else (first + each * step, 0)
        )


def kernel(op: Instruction, name: str | None = None, *, a_tensor: bool = False) -> str:
    """CUDA C++ of a kernel that multiplies with one instruction.

    >>> import fragmenta as fm
    >>> text = kernel(fm.tcgen05("m128n64k16", a="f16", d="f32"), "multiply")
    >>> [line for line in text.splitlines() if "__global__" in line]
    ['extern "C" __global__ void __launch_bounds__(128) multiply(']
    """
    _check(op, a_tensor)
    return made(op, name, a_tensor=a_tensor).text()


def made(
    op: Instruction, name: str | None = None, *, a_tensor: bool = False
) -> TensorKernel:
    """The kernel, with what its launch needs."""
    _check(op, a_tensor)
    a_tensor = a_tensor or bool(op.values.get("ashift"))
    return TensorKernel(op, name or f"{function_name(op)}_kernel", a_tensor)


def _check(op: Instruction, a_tensor: bool) -> None:
    """Refuse an instruction that has no kernel here, with the reason."""
    if not op.tensor_memory:
        raise BadCall(f"whole kernels are for tcgen05.mma; {op} is none")
    if op.descriptor is None:
        raise BadCall(
            f"{op} alone has no shape: give idesc=, or build it with fm.tcgen05"
        )
    if op.values.get("lut"):
        raise BadCall(f"{op}: no source says what the table of .decompress::lut::b is")
    if op.values.get("ashift"):
        raise BadCall(f"{op}: there is no kernel that shifts A")
    if op.shape.k == WIDE_K:
        raise BadCall(
            f"{op}: sources disagree about the ids of scales with K = {WIDE_K}, so "
            "there is no kernel"
        )
    if op.sparse and "metadata" not in op.fragments:
        raise BadCall(
            f"{op}: where its metadata is in tensor memory (layout "
            f"{op.layout_letter}) is not known, so there is no kernel"
        )
    if op.scale_vec and op.layout_letter == "B":
        raise BadCall(
            f"{op}: there is no kernel for scales of a pair with M = 128; with M = 256 "
            "there is"
        )
    if a_tensor and op.descriptor.transpose_a:
        raise BadCall(f"{op}: A in tensor memory cannot be M-major")
    assert op.d.registers <= COLUMNS
