"""A PTX module whose one entry runs one instruction.

Registers come from global memory and go back there,
as :meth:`fragmenta.Fragment.pack` lays them out: (lanes, registers).
Operands in shared memory are copied there first.
"""

from __future__ import annotations

from math import prod

from fragmenta.cuda.source import kernel, ptx, tensor_entry, tiled
from fragmenta.cuda.source.formatting import WIDTH, comment, wrapped
from fragmenta.cuda.source.inline import describe
from fragmenta.cuda.source.kernel import WARP, WARPGROUP, KernelBuilder, ParameterType
from fragmenta.errors import UnsupportedTarget
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.operand_lists import is_written
from fragmenta.reference.isa.tables.moves import row_bytes
from fragmenta.reference.isa.target import check_target
from fragmenta.reference.isa.unsupported import lacking

_ALL_LANES = "bar.warp.sync 0xffffffff;"


def module(
    op: Instruction,
    name: str,
    *,
    target: str | None = None,
    a_registers: bool = False,
    options: ptx.MmaOptions = ptx.PLAIN,
    **immediates: int,
) -> str:
    """A complete module with one entry that runs one instruction.

    >>> import fragmenta as fm
    >>> print(module(fm.find("movmatrix"), "transpose").splitlines()[7])
    // Blocks of 32 threads; block x does tile x. Parameters:
    """
    chosen = target or op.requires.targets[0]
    if not op.supported_on(check_target(chosen)):
        raise UnsupportedTarget(lacking(op, chosen))
    given = ptx.immediates(op, immediates, a_registers=a_registers, options=options)
    text, parameters = _entry(op, name, a_registers, options, given)
    said = describe(op, a_registers=a_registers, options=options)
    said = [*said, "//", *_launch(op, parameters)]
    head = kernel.header(chosen, op.requires.ptx_on(chosen))
    body = [part for line in text.splitlines() for part in _folded(line)]
    return "\n".join([*said, head, *body]) + "\n"


def _entry(
    op: Instruction,
    name: str,
    a_registers: bool,
    options: ptx.MmaOptions,
    given: dict[str, int],
) -> tuple[str, dict[str, ParameterType]]:
    """The entry, and what its parameters are."""
    if op.unit == "tcgen05":
        made = tensor_entry.entry(op, name, options, given)
    elif not op.fragments:
        made = _plain(op, name, given)
    elif op.warpgroup:
        made = _wgmma(op, name, a_registers, given)
    elif op.unit == "matrix" and (op.loads or op.stores):
        made = _matrix(op, name)
    elif op.unit == "wmma" and op.moves:
        made = _wmma(op, name)
    else:
        return tiled.entry(op, name, a_registers=False, **given), _pointers(op)
    return made.text(), made.parameters


def _launch(op: Instruction, parameters: dict[str, ParameterType]) -> list[str]:
    if op.unit == "tcgen05":
        return tensor_entry.launch(op, parameters)
    if not parameters:
        return comment("Blocks of 128 threads, a warpgroup; no parameters.")
    threads = next((part.lanes for part in op.fragments.values()), WARP)
    several = "tiles x " in next(iter(parameters.values())).what
    which = "block x does tile x" if several else "one block"
    width = max(map(len, parameters))
    lines = comment(f"Blocks of {threads} threads; {which}. Parameters:")
    for name, each in parameters.items():
        lines.append(f"//   {each.kind} {name:<{width}}  {each.what}")
    return lines


def _folded(line: str) -> list[str]:
    """A statement in lines that fit the page: PTX may break between operands."""
    if len(line) <= WIDTH:
        return [line]
    first, *more = wrapped(line.strip().split(" "), WIDTH - 8)
    indent = line[: len(line) - len(line.lstrip())]
    return [indent + first, *(f"{indent}    {part}" for part in more)]


def _pointers(op: Instruction) -> dict[str, ParameterType]:
    """The parameters of :func:`fragmenta.cuda.source.tiled.entry`."""
    listed = [each for each in op.operands if each.ptx != "immediate"]
    return {
        f"p_{each.name}": _held(each, "tiles x 32", written=each.name == "d")
        for each in listed
    }


def _held(operand: Operand, lanes: str, *, written: bool) -> ParameterType:
    way = "write" if written else "read"
    count = f"{operand.count} {operand.ptx}"
    return ParameterType(
        ".u64", f"where to {way} {operand.name}: {lanes} lanes x {count}"
    )


# ── instructions without fragments ──────────────────────────────────────────


def _plain(op: Instruction, name: str, given: dict[str, int]) -> KernelBuilder:
    """The statement alone, or with registers of each thread's own."""
    held = {each: is_written(op, each) for each in op.operands if each.ptx == ".b32"}
    lanes = f"tiles x {WARP}"
    parameters = {
        f"p_{each.name}": _held(each, lanes, written=written)
        for each, written in held.items()
    }
    made = KernelBuilder(name, parameters)
    made.declare(held)
    if held:
        made.tiles(WARP)
    for each in (each for each, written in held.items() if not written):
        made.load(each)
    made.do(ptx.statement(op, a_registers=False, options=ptx.PLAIN, **given))
    for each in (each for each, written in held.items() if written):
        made.store(each)
    return made


# ── ldmatrix and stmatrix ───────────────────────────────────────────────────


def _matrix(op: Instruction, name: str) -> KernelBuilder:
    """Rows of 16 or 8 bytes, one after the other in global memory and in shared."""
    (part,) = op.fragments.values()
    rows, width = part.shape[0] * part.shape[1], row_bytes(op)
    loads = op.loads
    held = next(each for each in op.operands if each.ptx == ".b32")
    way = "read" if loads else "write"
    parameters = {
        f"p_{held.name}": _held(held, "32", written=loads),
        "p_rows": ParameterType(".u64", f"where to {way} {rows} rows of {width} bytes"),
    }
    made = KernelBuilder(name, parameters)
    made.declare(op.operands)
    made.image(rows * width, width)
    made.threads()
    made.do(
        "// the row whose address this lane gives; further lanes repeat them",
        f"and.b32 %line, %thread, {rows - 1};",
        f"mad.lo.u32 %to, %line, {width}, %shared;",
        "cvt.u64.u32 %address, %to;",
    )
    if not op.values["space"]:
        made.do("cvta.shared.u64 %address, %address;")
    made.point("rows")
    made.step("%from", "%line", width)
    if loads:
        made.copy_unit("in", width)
        made.do(_ALL_LANES, ptx.statement(op))
        made.store(held, place="%thread")
    else:
        made.load(held, place="%thread")
        made.do(ptx.statement(op), _ALL_LANES)
        made.copy_unit("out", width)
    return made


# ── wmma.load and wmma.store ────────────────────────────────────────────────


def _wmma(op: Instruction, name: str) -> KernelBuilder:
    """A matrix in global memory with a stride, or in shared memory without gaps."""
    (part,) = op.fragments.values()
    loads = op.loads
    held = next(each for each in op.operands if each.name == part.letter)
    shape = " x ".join(map(str, part.shape))
    way = "read" if loads else "write"
    parameters = {
        f"p_{held.name}": _held(held, "32", written=loads),
        "p_matrix": ParameterType(".u64", f"where to {way} {shape} {part.dtype}"),
    }
    made = KernelBuilder(name, parameters)
    made.declare(op.operands)
    shared = op.values["space"].startswith("shared")
    size = prod(part.shape) * part.container.bits // 8
    made.threads()
    if shared:
        made.image(size, 128)
        rows, cols = part.shape
        stride = cols if op.values["layout"] == "row" else rows
        made.do("cvt.u64.u32 %address, %shared;", f"mov.b32 %stride, {stride};")
    else:
        _add_matrix(made, op)
    if not loads:
        made.load(held, place="%thread")
    elif shared:
        made.point("matrix")
        made.copy("in", size, WARP, unit=4)
        made.do(_ALL_LANES)
    made.do(ptx.statement(op))
    if loads:
        made.store(held, place="%thread")
    elif shared:
        made.do(_ALL_LANES)
        made.point("matrix")
        made.copy("out", size, WARP, unit=4)
    return made


def _add_matrix(made: KernelBuilder, op: Instruction) -> None:
    """Where the matrix is, and its stride, from the parameters."""
    what = "elements from one row or column to the next"
    made.parameters["stride"] = ParameterType(".u32", what)
    made.do(
        "ld.param.u64 %address, [p_matrix];",
        "ld.param.u32 %stride, [stride];",
    )
    if op.values["space"] == "global":
        made.do("cvta.to.global.u64 %address, %address;")


# ── wgmma ───────────────────────────────────────────────────────────────────


def _wgmma(
    op: Instruction, name: str, a_registers: bool, given: dict[str, int]
) -> KernelBuilder:
    """Shared memory comes as an image; descriptors count from its beginning."""
    listed = ptx.operands(op, a_registers=a_registers)
    held = [each for each in listed if each.ptx in (".b32", ".f32", ".s32")]
    lanes = str(WARPGROUP)
    parameters = {f"p_{each.name}": _held(each, lanes, written=False) for each in held}
    both = parameters["p_d"].what.replace("read", "read and write")
    parameters["p_d"] = ParameterType(".u64", both)
    for each in listed:
        if each.ptx == ".b64":
            what = f"descriptor of {each.name.upper()}, from the beginning of the image"
            parameters[each.name] = ParameterType(".u64", what)
    parameters |= {
        "p_image": ParameterType(".u64", "where to read the image of shared memory"),
        "image_words": ParameterType(".u32", "its size in 32-bit words"),
        "scale_d": ParameterType(".u32", "0: D = A * B; else D = A * B + D"),
    }
    made = KernelBuilder(name, parameters)
    kernel.add_wgmma(made, op, image_bytes=0, a_registers=a_registers, immediates=given)
    return made
