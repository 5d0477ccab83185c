"""Runs one instruction on the GPU of this machine.

``on_device`` takes what ``execute`` takes and returns what it returns; only the
arithmetic is done by the hardware.  A :class:`TileKernel` is one instruction with
its immediates chosen: its PTX, and which arrays it takes.  Modules are
kept in memory and on disk by their source and target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, batch_shape
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_of
from fragmenta.base.jit.cache import Cache
from fragmenta.cuda.source import kernel, ptx, tiled
from fragmenta.cuda.source.kernel import WARP, WARPGROUP
from fragmenta.cuda.tools import assembler, device
from fragmenta.cuda.tools.device import GPU, Array, LoadedCode, Scalar
from fragmenta.errors import BadCall, Error, ShapeError, UnsupportedTarget, one_of
from fragmenta.reference.execution.wgmma import checked_scale_d, in_registers
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import Version, check_target, number
from fragmenta.reference.registers.fragment import Fragment, Words
from fragmenta.reference.shared.descriptor import (
    MAJORS,
    UNIT,
    Descriptor,
    MajorAxis,
    extent,
)
from fragmenta.reference.shared.tiles import (
    PATTERN,
    Image,
    as_image,
    as_words,
    read_tile,
)

POISON = 0xDEADBEEF
"""Bits that no kernel of this package writes: they mark what was left unwritten."""

Arrays = Mapping[str, Array]
Word = TypeVar("Word", bound=np.unsignedinteger)


class Launchable(Protocol):
    """A kernel that can be assembled and launched on arrays."""

    @property
    def name(self) -> str:
        """The name of its entry."""

    @property
    def threads(self) -> int:
        """The threads of one block."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The arrays that it reads, in order; what it writes comes before them."""

    def version(self, target: str) -> Version:
        """The first PTX version that has it on a target."""

    def entry(self) -> str:
        """The kernel in PTX."""


@dataclass(frozen=True)
class TileKernel:
    """One instruction with its immediates chosen, run once for each tile.

    >>> import fragmenta as fm
    >>> kernel = TileKernel(fm.mma("m16n8k64", a="s8", sp="sp"), (("selector", 0),))
    >>> kernel.parameters, kernel.threads
    (('a', 'b', 'c', 'metadata'), 32)
    """

    op: Instruction
    immediates: tuple[tuple[str, int], ...] = ()
    a_registers: bool = False
    image_bytes: int = 0

    @property
    def warpgroup(self) -> bool:
        """Whether it is of a warpgroup, which reads shared memory."""
        return self.op.warpgroup

    @property
    def name(self) -> str:
        """The mnemonic and the immediates, as a name that PTX takes."""
        chosen = [f"{name}_{value}" for name, value in self.immediates]
        if self.warpgroup:
            chosen += ["a_registers" if self.a_registers else "a_memory"]
        return identifier("__".join([str(self.op), *chosen]).replace("-", "minus_"))

    @property
    def threads(self) -> int:
        """The threads of one tile."""
        return WARPGROUP if self.warpgroup else WARP

    @property
    def parameters(self) -> tuple[str, ...]:
        """The arrays it reads, in order; each is (tiles, …)."""
        return tiled.parameters(self.op, a_registers=self.a_registers)[1:]

    def version(self, target: str) -> Version:
        """The PTX version of its instruction."""
        return self.op.requires.ptx_on(target)

    def entry(self) -> str:
        """The kernel in PTX."""
        return tiled.entry(
            self.op,
            self.name,
            image_bytes=self.image_bytes,
            a_registers=self.a_registers,
            **dict(self.immediates),
        )

    def form(self, tiles: int) -> tuple[tuple[int, ...], np.dtype[np.unsignedinteger]]:
        """Shape and type of D in registers (tiles, lanes, n), or of a stored image."""
        if self.op.stores:
            return (tiles, self.image_bytes), np.dtype(np.uint8)
        part = self.op.fragments["D"]
        kind = np.dtype(f"uint{part.register_bits}")
        return (tiles, part.lanes, part.registers), kind


def identifier(text: str) -> str:
    """A mnemonic as a name that PTX takes.

    >>> identifier("ldmatrix.sync.aligned.m8n8.x1.b16")
    'ldmatrix_sync_aligned_m8n8_x1_b16'
    """
    return "".join(each if each.isalnum() else "_" for each in text)


def poisoned(shape: tuple[int, ...], kind: np.dtype[Word]) -> NDArray[Word]:
    """An output that shows what was left unwritten.

    >>> poisoned((2,), np.dtype(np.uint8)).tolist()
    [239, 239]
    """
    return np.full(shape, POISON & int(np.iinfo(kind).max), kind)


def source(kernels: Iterable[Launchable], target: str) -> str:
    """A module of kernels, in the first PTX version that has them all.

    >>> import fragmenta as fm
    >>> text = source([TileKernel(fm.mma("m16n8k16", a="f16", d="f32"))], "sm_90a")
    >>> text.splitlines()[:2]
    ['.version 8.0', '.target sm_90a']
    """
    named = {each.name: each for each in kernels}
    version = max(each.version(target) for each in named.values())
    return kernel.module((each.entry() for each in named.values()), target, version)


def run(
    gpu: GPU,
    module: LoadedCode,
    kernel: Launchable,
    arrays: Arrays,
    output: NDArray[Scalar],
) -> NDArray[Scalar]:
    """Run a kernel of a loaded module, one block for each item of the output."""
    if not output.size:
        return output
    given = [arrays[name] for name in kernel.parameters]
    return gpu.run(module, kernel.name, len(output), kernel.threads, given, output)


@once_of(128)
def load(gpu: GPU, text: str) -> LoadedCode:
    """The module of a PTX source, assembled once for each source and target."""
    try:
        assembler.tool("ptxas")
    except Error:
        return gpu.load_text(text)  # the driver has an assembler, too
    return gpu.load(cubin(text, gpu.target))


def cubin(text: str, target: str, ptxas: Path | None = None) -> bytes:
    r"""The cubin of a source, from the cache if it is there.

    >>> import fragmenta as fm
    >>> text = source([TileKernel(fm.mma("m16n8k16", a="f16", d="f32"))], "sm_90a")
    >>> cubin(text, "sm_90a")[:4]
    b'\x7fELF'
    """
    kept = Cache.present()
    key = "\0".join([f"ptxas {assembler.release(ptxas)}", target, text])
    found = kept.get(key)
    if found is None:
        found = assembler.assemble(text, target, ptxas=ptxas)
        kept.put(key, found)
    return found


# ── registers in, registers out ─────────────────────────────────────────────


def on_device(
    op: Instruction, *operands: Any, gpu: GPU | None = None, **options: Any
) -> Words:
    """The registers of D that the GPU computes.

    Takes the operands and options of :func:`fragmenta.reference.execution.mma.execute`,
    for ``wgmma`` those of :func:`fragmenta.reference.execution.wgmma.execute`, and
    returns arrays of the same shapes.  A ``target`` may be given, and is refused if
    this GPU is another.  Metadata is not checked: the hardware shows what it makes of
    codes that are illegal.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> one = [part.pack(np.ones(part.shape)) for part in (op.a, op.b, op.c)]
    >>> try:
    ...     found = float(op.d.unpack(on_device(op, *one))[0, 0])
    ... except fm.errors.NoDevice:
    ...     found = 17.0
    >>> found
    17.0
    """
    check_multiplies(op)
    chosen = gpu or device.present()
    _check_target(op, chosen, options.pop("target", None))
    prepare = _shared if op.warpgroup else _registers
    kernel, arrays = prepare(op, *operands, **options)
    batch, flat = _flat(arrays, _ends(kernel))
    module = load(chosen, source([kernel], chosen.target))
    tiles = len(next(iter(flat.values())))
    d = run(chosen, module, kernel, flat, poisoned(*kernel.form(tiles)))
    return words_of(_part(op, "d"), d.reshape(*batch, *d.shape[1:]))


def _check_target(op: Instruction, gpu: GPU, target: str | None) -> None:
    if not op.supported_on(gpu.target):
        raise UnsupportedTarget(f"{op} needs {op.requires}; {gpu.name} is {gpu.target}")
    if target is not None and number(check_target(target)) != number(gpu.target):
        raise UnsupportedTarget(
            f"{gpu.name} is {gpu.target}, not {target}; execute() answers for any"
        )


def _registers(
    op: Instruction, a: ArrayLike, b: ArrayLike, c: ArrayLike, **options: Any
) -> tuple[TileKernel, dict[str, Array]]:
    """The kernel and the arrays of an instruction that works on registers."""
    more = {name: options.pop(name, None) for name in _MORE_OPERANDS}
    given = {"a": a, "b": b, "c": c, **more}
    chosen = {"selector": 0, **options}
    allowed = {each.name: each.values for each in op.operands if each.values}
    kernel = TileKernel(op, _immediates(op, chosen, allowed))
    return kernel, {
        name: words_of(_part(op, name), value)
        for name, value in _wanted(op, given, kernel.parameters).items()
    }


_MORE_OPERANDS = ("metadata", "scale_a", "scale_b")
"""Operands that only some instructions have; other options are immediates."""


def _wanted(
    op: Instruction, given: Mapping[str, ArrayLike | None], names: tuple[str, ...]
) -> dict[str, ArrayLike]:
    """Exactly the operands that the instruction has."""
    there = {name: value for name, value in given.items() if value is not None}
    missing = [name for name in names if name not in there]
    if missing:
        raise BadCall(f"{op} needs {one_of(missing, 'and')}")
    extra = [name for name in there if name not in names]
    if extra:
        raise BadCall(f"{op} takes no {one_of(extra)}; it takes {one_of(names, 'and')}")
    return {name: there[name] for name in names}


def _immediates(
    op: Instruction, chosen: dict[str, int], allowed: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[str, int], ...]:
    """The immediates that the instruction has, refused if they are illegal."""
    for name, value in chosen.items():
        plain = (1,) if name.startswith("imm_scale") else (0,)
        legal = allowed.get(name, plain)
        if value not in legal:
            raise ShapeError(
                f"{name} {value} is not allowed; {op} takes {one_of(legal)}"
            )
    return tuple((name, int(chosen.get(name, allowed[name][0]))) for name in allowed)


def _part(op: Instruction, name: str) -> Fragment:
    named = {each.lower(): part for each, part in op.fragments.items()}
    return named[name]


def words_of(part: Fragment, registers: ArrayLike) -> Words:
    """Registers as the kernels take them, checked: (…, lanes, n).

    >>> import fragmenta as fm
    >>> words_of(fm.mma("m16n8k32", a="s8").a, [[1]])
    Traceback (most recent call last):
    ...
    fragmenta.errors.ShapeError: A is in registers of shape (…, 32 lanes, 4); \
given shape (1, 1)
    """
    return part.checked(as_array(registers))


# ── a warpgroup and its shared memory ───────────────────────────────────────


def _shared(
    op: Instruction,
    d: ArrayLike,
    a: ArrayLike | Descriptor,
    b: ArrayLike | Descriptor,
    *,
    smem: ArrayLike,
    scale_d: ArrayLike = 1,
    metadata: ArrayLike | None = None,
    **immediates: int,
) -> tuple[TileKernel, dict[str, Array]]:
    """The kernel and the arrays of ``wgmma``."""
    registers = in_registers(a)
    listed = ptx.operands(op, a_registers=registers)
    allowed = {each.name: each.values for each in listed if each.values}
    chosen = _defaults(immediates)
    if registers and chosen["trans_a"]:
        raise BadCall("A from registers cannot be transposed; trans_a is 0")
    fixed = _immediates(op, chosen, allowed)
    keep = checked_scale_d(scale_d)
    given = {"c": d, "metadata": metadata}
    wanted = ("c", "metadata") if op.sparse else ("c",)
    arrays = {
        name: words_of(_part(op, name), value)
        for name, value in _wanted(op, given, wanted).items()
    }
    arrays["scale_d"] = keep.astype(np.uint32)
    memory = {"b": _words(b)}
    if registers:
        arrays["a"] = words_of(op.a, a)  # type: ignore[arg-type]
    else:
        memory["a"] = _words(a)
    majors = {name: MAJORS[chosen[f"trans_{name}"]] for name in memory}
    image, moved = _window(op, as_image(smem), memory, majors)
    kernel = TileKernel(op, fixed, registers, image.shape[-1])
    return kernel, {**arrays, **moved, "image": image}


def _defaults(given: dict[str, int]) -> dict[str, int]:
    plain = {
        "selector": 0,
        "imm_scale_a": 1,
        "imm_scale_b": 1,
        "trans_a": 0,
        "trans_b": 0,
    }
    unknown = sorted(given.keys() - plain.keys())
    if unknown:
        raise BadCall(f"wgmma takes no {unknown[0]}; it takes {one_of(plain, 'and')}")
    return {**plain, **given}


def _words(descriptor: ArrayLike | Descriptor) -> NDArray[np.uint64]:
    if isinstance(descriptor, Descriptor):
        return np.array(descriptor.encode(), np.uint64)
    return as_words(descriptor)


def _window(
    op: Instruction,
    image: Image,
    words: dict[str, NDArray[np.uint64]],
    majors: dict[str, MajorAxis],
) -> tuple[Image, dict[str, Array]]:
    """The image and descriptors that fit a kernel's shared memory.

    A larger image is cut to what the operands read, one after the other.
    Reads outside the image are refused, as by the emulation.
    """
    for name, each in words.items():
        read_tile(op, name.upper(), image, each, major=majors[name])
    if image.shape[-1] <= tiled.MOST:
        short = -image.shape[-1] % UNIT
        return np.pad(image, [(0, 0)] * (image.ndim - 1) + [(0, short)]), dict(words)
    shapes = {name: each.shape for name, each in words.items()}
    batch = batch_shape(image=image.shape[:-1], **shapes)
    images = np.broadcast_to(image, (*batch, image.shape[-1])).reshape(
        -1, image.shape[-1]
    )
    moved: dict[str, Array] = {}
    pieces: list[Image] = []
    start = 0
    for name, each in words.items():
        flat = np.broadcast_to(each, batch).ravel()
        piece, moved[name] = _piece(op, name.upper(), majors[name], images, flat, start)
        moved[name] = moved[name].reshape(batch)
        pieces.append(piece)
        start += piece.shape[-1]
    if start > tiled.MOST:
        raise ShapeError(
            f"the operands of {op} are spread over {start} bytes of shared memory; "
            f"on the GPU they may span {tiled.MOST}"
        )
    whole = np.concatenate(pieces, axis=-1)
    return whole.reshape(*batch, whole.shape[-1]), moved


def _piece(
    op: Instruction,
    operand: str,
    major: MajorAxis,
    images: Image,
    words: NDArray[np.uint64],
    start: int,
) -> tuple[Image, NDArray[np.uint64]]:
    """What one operand reads of each image, and its descriptors moved there."""
    rows, k = extent(op, operand)
    of = op.types[operand.lower()]
    mn, along = np.ogrid[:rows, :k]
    ranges = {}
    for word in np.unique(words).tolist():
        address = Descriptor.decode(word).address(mn, along, of, major)
        # whole patterns, so that every swizzle stays as it is
        first = int(address.min()) // PATTERN * PATTERN
        ranges[word] = (first, int(address.max()) - first + max(1, of.bits // 8))
    size = -(-max(length for _, length in ranges.values()) // PATTERN) * PATTERN
    piece = np.zeros((len(words), size), np.uint8)
    moved = np.empty_like(words)
    for tile, word in enumerate(words.tolist()):
        first, _ = ranges[word]
        found = images[tile, first : first + size]
        piece[tile, : found.size] = found
        moved[tile] = word + (start - first) // UNIT
    return piece, moved


# ── batches ─────────────────────────────────────────────────────────────────


def _ends(kernel: TileKernel) -> dict[str, int]:
    """How many axes of each array belong to one tile."""
    ends = dict.fromkeys(kernel.parameters, 2)
    if kernel.warpgroup:
        ends |= {"b": 0, "scale_d": 0, "image": 1}
        ends |= {} if kernel.a_registers else {"a": 0}
    return ends


def _flat(
    arrays: dict[str, Array], ends: dict[str, int]
) -> tuple[tuple[int, ...], dict[str, Array]]:
    """The batch axes, and the arrays with one axis instead of them."""
    leading = {
        name: array.shape[: array.ndim - ends[name]] for name, array in arrays.items()
    }
    batch = batch_shape(**leading)
    tiles = int(np.prod(batch))
    flat = {}
    for name, array in arrays.items():
        end = array.shape[array.ndim - ends[name] :]
        flat[name] = np.ascontiguousarray(
            np.broadcast_to(array, (*batch, *end)).reshape(tiles, *end)
        )
    return batch, flat
