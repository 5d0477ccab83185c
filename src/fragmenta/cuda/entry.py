"""How does one instruction become a kernel of its own, in PTX?

A module has one entry.  Registers come from global memory and go back there,
as :meth:`~fragmenta.fragment.Fragment.pack` lays them out: (lanes, registers).
What an instruction wants in shared memory is copied there first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from fragmenta.cuda import ptx
from fragmenta.cuda.inline import Argument, describe
from fragmenta.cuda.page import WIDTH, comment, wrapped
from fragmenta.errors import Error, UnsupportedTarget, one_of
from fragmenta.isa.instruction import Instruction, Operand
from fragmenta.isa.target import check_target

_ROW = 16
"""Bytes of a row that ldmatrix or stmatrix moves."""

Parameters = dict[str, tuple[str, str]]
"""Of each parameter its PTX type and what it is."""


def module(
    op: Instruction,
    name: str,
    *,
    target: str | None = None,
    a_registers: bool = False,
    **immediates: int,
) -> str:
    """A complete module with one entry that does one instruction.

    >>> import fragmenta as fm
    >>> print(module(fm.find("movmatrix"), "transpose").splitlines()[7])
    // Blocks of 32 threads; block x does tile x. Parameters:
    """
    chosen = target or op.requires.targets[0]
    if not op.supported_on(check_target(chosen)):
        raise UnsupportedTarget(f"{chosen} does not have {op}; it needs {op.requires}")
    given = _immediates(op, a_registers, immediates)
    if op.family.startswith("wgmma"):
        text, parameters = _wgmma(op, name, a_registers, given)
    elif op.family in ("ldmatrix", "stmatrix"):
        text, parameters = _matrix(op, name)
    elif op.family in ("wmma.load", "wmma.store"):
        text, parameters = _wmma(op, name)
    elif not op.fragments:
        statement = ptx.statement(op, a_registers=False, **given)
        text, parameters = _entry(name, {}, [statement, "ret;"]), {}
    else:
        text, parameters = ptx.entry(op, name, **given), _pointers(op)
    said = [*describe(op, a_registers=a_registers), "//", *_launch(op, parameters)]
    head = ptx.header(chosen, op.requires.ptx_on(chosen))
    body = [part for line in text.splitlines() for part in _folded(line)]
    return "\n".join([*said, head, *body]) + "\n"


def _launch(op: Instruction, parameters: Parameters) -> list[str]:
    if not parameters:
        return comment("Blocks of 128 threads, a warpgroup; no parameters.")
    threads = next(iter(op.fragments.values())).lanes
    several = "tiles x " in next(iter(parameters.values()))[1]
    which = "block x does tile x" if several else "one block"
    width = max(map(len, parameters))
    lines = comment(f"Blocks of {threads} threads; {which}. Parameters:")
    for name, (kind, what) in parameters.items():
        lines.append(f"//   {kind} {name:<{width}}  {what}")
    return lines


def _folded(line: str) -> list[str]:
    """A statement in lines that fit the page: PTX may break between operands."""
    if len(line) <= WIDTH:
        return [line]
    first, *more = wrapped(line.strip().split(" "), WIDTH - 8)
    indent = line[: len(line) - len(line.lstrip())]
    return [indent + first, *(f"{indent}    {part}" for part in more)]


def _immediates(
    op: Instruction, a_registers: bool, given: dict[str, int]
) -> dict[str, int]:
    """The value of each immediate: as given, else one that does nothing."""
    found: dict[str, int] = {}
    for each in ptx.operands(op, a_registers=a_registers):
        if not (each.values or each.ptx == "integer"):
            continue
        value = given.get(each.name, Argument(each).default)
        legal = each.values or range(1 << 64)
        if type(value) is not int or value not in legal:
            raise Error(
                f"{each.name} {value} is not legal for {op}; "
                f"it is {one_of(each.values) or 'an integer, 0 or more'}"
            )
        found[each.name] = value
    unknown = sorted(given.keys() - found.keys())
    if unknown:
        have = one_of(found, "and") or "none"
        raise Error(f"{op} has no immediate {unknown[0]}; it has {have}")
    return found


def _pointers(op: Instruction) -> Parameters:
    """The parameters of :func:`fragmenta.cuda.ptx.entry`."""
    listed = [each for each in op.operands if each.ptx != "immediate"]
    return {
        f"p_{each.name}": (".u64", _held(each, "tiles x 32", written=each.name == "d"))
        for each in listed
    }


def _held(operand: Operand, lanes: str, *, written: bool) -> str:
    way = "write" if written else "read"
    count = f"{operand.count} {operand.ptx}"
    return f"where to {way} {operand.name}: {lanes} lanes x {count}"


# ── the parts of an entry ───────────────────────────────────────────────────


def _entry(name: str, parameters: Parameters, body: Iterable[str]) -> str:
    listed = ",\n    ".join(f".param {kind} {p}" for p, (kind, _) in parameters.items())
    listed = f"\n    {listed}" if listed else ""
    lines = "\n".join(line if line.endswith(":") else f"    {line}" for line in body)
    return f".visible .entry {name}({listed})\n{{\n{lines}\n}}\n"


_COMMON = [
    ".reg .u64 %base, %offset;",
    ".reg .u32 %thread;",
    "mov.u32 %thread, %tid.x;",
]
_COPY = [
    ".reg .u64 %from;",
    ".reg .b32 %word;",
    ".reg .u32 %to, %index;",
    ".reg .pred %done;",
]


def _pointer(parameter: str, stride: int = 0, index: str = "%thread") -> list[str]:
    """``%base``: a global address, or this thread's part of it."""
    lines = [f"ld.param.u64 %base, [{parameter}];", "cvta.to.global.u64 %base, %base;"]
    if stride:
        lines += [
            f"mul.wide.u32 %offset, {index}, {stride};",
            "add.u64 %base, %base, %offset;",
        ]
    return lines


def _registers(direction: str, operand: Operand) -> list[str]:
    """Load or store this thread's registers of one operand."""
    return ptx.move(direction, operand, place="%thread")


def _copy(direction: str, symbol: str, words: str, threads: int) -> list[str]:
    """Copy words ``to`` shared memory from global ``%base``, or ``from`` it."""
    moves = ["ld.global.b32 %word, [%from];", "st.shared.b32 [%to], %word;"]
    if direction == "from":
        moves = ["ld.shared.b32 %word, [%to];", "st.global.b32 [%from], %word;"]
    return [
        "mov.u32 %index, %thread;",
        "COPY:",
        f"setp.ge.u32 %done, %index, {words};",
        "@%done bra COPIED;",
        "mul.wide.u32 %offset, %index, 4;",
        "add.u64 %from, %base, %offset;",
        f"mov.u32 %to, {symbol};",
        "mad.lo.u32 %to, %index, 4, %to;",
        *moves,
        f"add.u32 %index, %index, {threads};",
        "bra COPY;",
        "COPIED:",
    ]


_ALL_LANES = "bar.warp.sync 0xffffffff;"


# ── ldmatrix and stmatrix ───────────────────────────────────────────────────


def _matrix(op: Instruction, name: str) -> tuple[str, Parameters]:
    """Rows of 16 bytes, one after the other in global memory and in shared."""
    (part,) = op.fragments.values()
    rows = part.shape[0] * part.shape[1]
    loads = op.family == "ldmatrix"
    held = next(each for each in op.operands if each.ptx == ".b32")
    way = "read" if loads else "write"
    parameters = {
        f"p_{held.name}": (".u64", _held(held, "32", written=loads)),
        "p_rows": (".u64", f"where to {way} {rows} rows of {_ROW} bytes"),
    }
    words = "{%w0, %w1, %w2, %w3}"
    to_shared = [
        f"ld.global.v4.b32 {words}, [%base];",
        f"st.shared.v4.b32 [%row], {words};",
    ]
    from_shared = [
        f"ld.shared.v4.b32 {words}, [%row];",
        f"st.global.v4.b32 [%base], {words};",
    ]
    line = _pointer("p_rows", _ROW, "%line")
    generic = ["cvta.shared.u64 %address, %address;"] if not op.values["space"] else []
    body = [
        f".shared .align {_ROW} .b8 tile[{rows * _ROW}];",
        *ptx.declarations(op),
        ".reg .u32 %line, %row;",
        ".reg .b32 %w<4>;",
        *_COMMON,
        "// the row whose address this lane gives; further lanes repeat them",
        f"and.b32 %line, %thread, {rows - 1};",
        "mov.u32 %row, tile;",
        f"mad.lo.u32 %row, %line, {_ROW}, %row;",
        "cvt.u64.u32 %address, %row;",
        *generic,
        *([*line, *to_shared, _ALL_LANES] if loads else _registers("ld", held)),
        ptx.statement(op),
        *(_registers("st", held) if loads else [_ALL_LANES, *line, *from_shared]),
        "ret;",
    ]
    return _entry(name, parameters, body), parameters


# ── wmma.load and wmma.store ────────────────────────────────────────────────


def _wmma(op: Instruction, name: str) -> tuple[str, Parameters]:
    """A matrix in global memory with a stride, or in shared memory without gaps."""
    (part,) = op.fragments.values()
    loads = op.family == "wmma.load"
    held = next(each for each in op.operands if each.name == part.letter)
    size = " x ".join(map(str, part.shape))
    way = "read" if loads else "write"
    parameters = {
        f"p_{held.name}": (".u64", _held(held, "32", written=loads)),
        "p_matrix": (".u64", f"where to {way} {size} {part.dtype}"),
    }
    if op.values["space"].startswith("shared"):
        first, before, after = _wmma_shared(op)
    else:
        parameters["stride"] = (".u32", "elements from one row or column to the next")
        first, after = [], []
        before = [
            "ld.param.u64 %address, [p_matrix];",
            "ld.param.u32 %stride, [stride];",
        ]
        if op.values["space"] == "global":
            before.append("cvta.to.global.u64 %address, %address;")
    body = [
        *first,
        *ptx.declarations(op),
        *_COMMON,
        *before,
        *([] if loads else _registers("ld", held)),
        ptx.statement(op),
        *(_registers("st", held) if loads else after),
        "ret;",
    ]
    return _entry(name, parameters, body), parameters


def _wmma_shared(op: Instruction) -> tuple[list[str], list[str], list[str]]:
    """Declarations, what comes before and after: the matrix goes through shared."""
    (part,) = op.fragments.values()
    rows, cols = part.shape
    words = prod(part.shape) * part.container.bits // 32
    stride = cols if op.values["layout"] == "row" else rows
    first = [f".shared .align 128 .b8 tile[{words * 4}];", *_COPY]
    place = ["mov.u64 %address, tile;", f"mov.b32 %stride, {stride};"]
    if op.family == "wmma.load":
        copy = [*_pointer("p_matrix"), *_copy("to", "tile", str(words), 32)]
        return first, [*place, *copy, _ALL_LANES], []
    copy = [*_pointer("p_matrix"), *_copy("from", "tile", str(words), 32)]
    return first, place, [_ALL_LANES, *copy]


# ── wgmma ───────────────────────────────────────────────────────────────────


def _wgmma(
    op: Instruction, name: str, a_registers: bool, given: dict[str, int]
) -> tuple[str, Parameters]:
    """Shared memory comes as an image; descriptors count from its beginning."""
    listed = ptx.operands(op, a_registers=a_registers)
    held = [each for each in listed if each.ptx in (".b32", ".f32", ".s32")]
    descriptors = [each.name for each in listed if each.ptx == ".b64"]
    parameters = {
        f"p_{each.name}": (".u64", _held(each, "128", written=False)) for each in held
    }
    parameters["p_d"] = (".u64", parameters["p_d"][1].replace("read", "read and write"))
    for each in descriptors:
        what = f"descriptor of {each.upper()}, from the beginning of the image"
        parameters[each] = (".u64", what)
    parameters |= {
        "p_image": (".u64", "where to read the image of shared memory"),
        "image_words": (".u32", "its size in 32-bit words"),
        "scale_d": (".u32", "0: D = A * B; else D = A * B + D"),
    }
    body = [
        *ptx.declarations(op, a_registers=a_registers),
        ".reg .u32 %words, %flag, %start;",
        ".reg .u64 %units;",
        *_COPY,
        *_COMMON,
        "// the image into shared memory, where wgmma can see it",
        *_pointer("p_image"),
        "ld.param.u32 %words, [image_words];",
        *_copy("to", "image", "%words", 128),
        "fence.proxy.async;",
        "bar.sync 0;",
        "// descriptors of where it is; they count in 16 bytes",
        *_based(descriptors),
        "// the registers",
        *(line for each in held for line in _registers("ld", each)),
        "ld.param.u32 %flag, [scale_d];",
        "setp.ne.u32 %scale_d, %flag, 0;",
        "wgmma.fence.sync.aligned;",
        ptx.statement(op, a_registers=a_registers, **given),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        *_registers("st", held[0]),
        "ret;",
    ]
    before = ".extern .shared .align 1024 .b8 image[];\n\n"
    return before + _entry(name, parameters, body), parameters


def _based(descriptors: Iterable[str]) -> Iterator[str]:
    """Descriptors that count from the image's beginning, made to count from 0."""
    yield "mov.u32 %start, image;"
    yield "shr.u32 %start, %start, 4;"
    yield "cvt.u64.u32 %units, %start;"
    for each in descriptors:
        yield f"ld.param.u64 %{each}, [{each}];"
        yield f"add.u64 %{each}, %{each}, %units;"
