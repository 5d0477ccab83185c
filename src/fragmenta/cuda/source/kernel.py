"""Builds the PTX text of kernels.

Every kernel of the package that is PTX is a :class:`KernelBuilder`: its methods add
statements, and :meth:`KernelBuilder.text` declares the registers that they name.
Memory is addressed in one way throughout: a parameter ``p_x`` points to an array x in
global memory, and ``%base`` holds the address that was made last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fragmenta.cuda.source import ptx
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.shared.descriptor import UNIT

WARP = 32
WARPGROUP = 128

# The registers that statements may name besides those of operands: thread in its
# block; block, which is the tile; thread among those of all tiles; and so on.
_REGISTERS = """
.u64 base offset from image_units
.u32 thread tile place lane group block shared at to size word bytes line round rounds
.u32 frame allocated quarter column rank
.b32 v0 v1 v2 v3
.b16 mask
.pred done more other
"""
CELLS = tuple(f"%cell{i}" for i in range(16))
"""The registers through which cells of tensor memory are copied."""
REGISTERS = {
    f"%{name}": line.split()[0]
    for line in _REGISTERS.strip().splitlines()
    for name in line.split()[1:]
} | dict.fromkeys(CELLS, ".b32")


class ParameterType(NamedTuple):
    """The PTX type of a parameter, and what it is."""

    kind: str
    what: str = ""


def header(target: str, version: object) -> str:
    """The directives that open a module."""
    return f".version {version}\n.target {target}\n.address_size 64\n"


def module(entries: Iterable[str], target: str, version: object) -> str:
    """A PTX module of kernels.

    >>> print(module([KernelBuilder("nothing").text()], "sm_90a", "8.0"))
    .version 8.0
    .target sm_90a
    .address_size 64
    .visible .entry nothing()
    {
        ret;
    }
    <BLANKLINE>
    """
    return header(target, version) + "".join(entries)


def listing(
    statements: Iterable[Iterable[str]], target: str, version: object
) -> tuple[str, list[int]]:
    """A module with each statement (and its declarations) on one line.

    Returns the text and the line number of each, so that an assembler's message
    about a line is assigned to its statement.
    """
    lines = [*header(target, version).splitlines(), ".visible .entry judge() {"]
    numbers = []
    for parts in statements:
        lines.append("{ " + " ".join(parts) + " }")
        numbers.append(len(lines))
    return "\n".join([*lines, "ret;", "}"]) + "\n", numbers


class KernelBuilder:
    """A kernel under construction: statements are added to it one by one.

    >>> entry = KernelBuilder("copy", {"p_x": ParameterType(".u64")})
    >>> entry.tiles(32)
    >>> entry.load(Operand("x", ".b32", vector=False))
    >>> entry.text().splitlines()[-3]
    '    ld.global.b32 %x, [%base + 0];'
    """

    def __init__(
        self, name: str, parameters: dict[str, ParameterType] | None = None
    ) -> None:
        self.name = name
        self.parameters = dict(parameters or {})
        self._outside = ""
        self._limit = ""
        self._declared: list[str] = []
        self._lines: list[str] = []

    def text(self) -> str:
        """The kernel in PTX."""
        each = (f".param {one.kind} {name}" for name, one in self.parameters.items())
        listed = ",\n    ".join(each)
        listed = f"\n    {listed}" if listed else ""
        body = [*self._declared, *self._scratch(), *self._lines, "ret;"]
        lines = [x if x.endswith(":") else f"    {x}" for x in body]
        head = f"{self._outside}.visible .entry {self.name}({listed})\n{self._limit}"
        return head + "\n".join(["{", *lines, "}"]) + "\n"

    def _scratch(self) -> list[str]:
        """Declare the registers of :data:`REGISTERS` that some statement names."""
        named = dict.fromkeys(re.findall(r"%\w+", "\n".join(self._lines)))
        kinds: dict[str, list[str]] = {}
        for name in named:
            if name in REGISTERS:
                kinds.setdefault(REGISTERS[name], []).append(name)
        return [f".reg {kind} {', '.join(names)};" for kind, names in kinds.items()]

    # ── directives ──────────────────────────────────────────────────────────

    def pointers(self, names: Iterable[str]) -> None:
        """A parameter ``p_x`` for each array x."""
        self.parameters |= {f"p_{name}": ParameterType(".u64") for name in names}

    def declare(self, operands: Iterable[Operand]) -> None:
        """The registers of operands."""
        self._declared += ptx.declared(operands)

    def at_most(self, threads: int) -> None:
        """Limit the threads of a block, so that each may have more registers."""
        self._limit = f".maxntid {threads}, 1, 1\n"

    def clusters(self, blocks: int) -> None:
        """Set the number of blocks of a cluster."""
        self._limit += f".reqnctapercluster {blocks}, 1, 1\n"

    def image(self, size: int = 0, align: int = 1024) -> None:
        """Declare shared memory at ``%shared``: of this size, or dynamic."""
        if size:
            self._declared.append(f".shared .align {align} .b8 image[{size}];")
        else:
            self._outside = f".extern .shared .align {align} .b8 image[];\n\n"
        self.do("mov.u32 %shared, image;")

    # ── where this thread is ────────────────────────────────────────────────

    def do(self, *lines: str) -> None:
        """Add statements as they are."""
        self._lines += lines

    def threads(self) -> None:
        """``%thread``: this thread in its block."""
        self.do("mov.u32 %thread, %tid.x;")

    def tiles(self, lanes: int) -> None:
        """A tile for each block: ``%tile``, ``%thread`` and ``%place``."""
        self.do("mov.u32 %tile, %ctaid.x;")
        self.threads()
        self.do(f"mad.lo.u32 %place, %tile, {lanes}, %thread;")

    def groups(self, lanes: int) -> None:
        """Several warps or warpgroups in a block: ``%lane`` and ``%group``."""
        self.threads()
        self.do(
            f"and.b32 %lane, %thread, {lanes - 1};",
            f"shr.u32 %group, %thread, {lanes.bit_length() - 1};",
        )

    # ── global memory and registers ─────────────────────────────────────────

    def point(self, array: str, index: str = "", stride: int | str = 0) -> None:
        """``%base``: the address of an array, or of an item of some bytes in it."""
        self.do(f"ld.param.u64 %base, [p_{array}];", "cvta.to.global.u64 %base, %base;")
        if index:
            self.step("%base", index, stride)

    def step(self, to: str, index: str, stride: int | str) -> None:
        """An address that is some strides beyond ``%base``."""
        self.do(
            f"mul.wide.u32 %offset, {index}, {stride};",
            f"add.u64 {to}, %base, %offset;",
        )

    def load(self, operand: Operand, array: str = "", place: str = "%place") -> None:
        """The registers of an operand from this thread's place in an array."""
        self.point(array or operand.name, place, ptx.size(operand))
        self._move("ld", operand, "%base")

    def store(self, operand: Operand, array: str = "", place: str = "%place") -> None:
        """The registers of an operand to this thread's place in an array."""
        self.point(array or operand.name, place, ptx.size(operand))
        self.store_at(operand, "%base")

    def store_at(self, operand: Operand, address: str) -> None:
        """The registers of an operand to an address."""
        self._move("st", operand, address)

    def _move(self, direction: str, operand: Operand, base: str) -> None:
        names = ptx.names(operand)
        each = ptx.size(operand) // len(names)
        for i, name in enumerate(names):
            address = f"[{base} + {i * each}]"
            pair = f"{name}, {address}" if direction == "ld" else f"{address}, {name}"
            self.do(f"{direction}.global{operand.ptx} {pair};")

    def number(self, register: str, name: str, kind: str, *, of_tile: bool) -> None:
        """One number: this tile's from an array, or a parameter itself."""
        if of_tile:
            self.point(name, "%tile", int(kind[-2:]) // 8)
            self.do(f"ld.global{kind} {register}, [%base];")
        else:
            self.do(f"ld.param{kind} {register}, [{name}];")

    # ── shared memory ───────────────────────────────────────────────────────

    def copy(
        self, direction: str, size: int | str, threads: int, unit: int = UNIT
    ) -> None:
        """Copy the image ``in`` from ``%base``, or ``out`` to it.

        ``size`` is in bytes; all threads take turns, ``unit`` bytes at a time.
        """
        label = f"copy_{direction}"
        self.do(
            f"shl.b32 %at, %thread, {unit.bit_length() - 1};",
            f"{label}:",
            f"setp.ge.u32 %done, %at, {size};",
            f"@%done bra {label}_done;",
            "cvt.u64.u32 %offset, %at;",
            "add.u64 %from, %base, %offset;",
            "add.u32 %to, %shared, %at;",
        )
        self.copy_unit(direction, unit)
        self.do(
            f"add.u32 %at, %at, {threads * unit};",
            f"bra {label};",
            f"{label}_done:",
        )

    def copy_unit(self, direction: str, unit: int = UNIT) -> None:
        """Copy some bytes from global ``%from`` to shared ``%to``, or back."""
        registers = [f"%v{i}" for i in range(unit // 4)]
        several = len(registers) > 1
        form = f".v{len(registers)}" if several else ""
        words = f"{{{', '.join(registers)}}}" if several else registers[0]
        places = [("global", "%from"), ("shared", "%to")]
        (source, start), (goal, end) = places if direction == "in" else places[::-1]
        self.do(
            f"ld.{source}{form}.b32 {words}, [{start}];",
            f"st.{goal}{form}.b32 [{end}], {words};",
        )

    def show_to_wgmma(self) -> None:
        """Make the writes of all threads visible to the async proxy of wgmma."""
        self.do("fence.proxy.async;", "bar.sync 0;")

    def units(self) -> None:
        """``%image_units``: the address of the image in units of 16 bytes."""
        self.do(
            f"shr.u32 %at, %shared, {UNIT.bit_length() - 1};",
            "cvt.u64.u32 %image_units, %at;",
        )

    # ── rounds ──────────────────────────────────────────────────────────────

    def loop(self, statements: Iterable[str]) -> None:
        """Repeat the statements as often as the array ``rounds`` says."""
        self.point("rounds")
        self.do(
            "ld.global.u32 %rounds, [%base];",
            "mov.u32 %round, 0;",
            "loop:",
            *statements,
            "add.u32 %round, %round, 1;",
            "setp.lt.u32 %more, %round, %rounds;",
            "@%more bra loop;",
        )


# ── wgmma ───────────────────────────────────────────────────────────────────


def _statement(op: Instruction, a_registers: bool, immediates: dict[str, int]) -> str:
    return ptx.statement(op, a_registers=a_registers, options=ptx.PLAIN, **immediates)


def group(statements: Iterable[str]) -> list[str]:
    """A group of ``wgmma``, and the wait for its end.

    >>> group([])[-1]
    'wgmma.wait_group.sync.aligned 0;'
    """
    return [
        "wgmma.fence.sync.aligned;",
        *statements,
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]


def add_wgmma(
    entry: KernelBuilder,
    op: Instruction,
    *,
    image_bytes: int,
    a_registers: bool,
    immediates: dict[str, int],
) -> None:
    """The statements of a kernel that runs one ``wgmma`` or ``wgmma.sp``.

    With ``image_bytes`` it does a tile for each block, and all parameters are
    arrays (tiles, …): C is ``c``.  Without, it does one tile: descriptors, the
    number of words in the image and ``scale_d`` are parameters themselves, and
    ``d`` holds C before and D afterwards.
    """
    listed = ptx.operands(op, a_registers=a_registers)
    tiled = image_bytes > 0
    place = "%place" if tiled else "%thread"
    entry.declare(listed)
    entry.do("// the image into shared memory, where wgmma can see it")
    entry.image(image_bytes)
    if tiled:
        entry.tiles(WARPGROUP)
        entry.point("image", "%tile", image_bytes)
        entry.copy("in", image_bytes, WARPGROUP)
    else:
        entry.threads()
        entry.point("image")
        entry.do("ld.param.u32 %size, [image_words];", "shl.b32 %size, %size, 2;")
        entry.copy("in", "%size", WARPGROUP, unit=4)
    entry.show_to_wgmma()
    entry.do("// registers, and descriptors of where the image is, in 16 bytes")
    entry.units()
    for each in listed:
        if each.ptx == ".b64":
            entry.number(f"%{each.name}", each.name, ".u64", of_tile=tiled)
            entry.do(f"add.u64 %{each.name}, %{each.name}, %image_units;")
        elif each.ptx == ".pred":
            entry.number("%word", each.name, ".u32", of_tile=tiled)
            entry.do(f"setp.ne.u32 %{each.name}, %word, 0;")
        elif each.ptx != "immediate":
            entry.load(each, "c" if tiled and each.name == "d" else "", place)
    entry.do(*group([_statement(op, a_registers, immediates)]))
    entry.store(listed[0], place=place)
