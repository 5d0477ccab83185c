"""The commands ``matmul`` and ``explain``: results of instructions on matrices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

import numpy as np
import typer

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress, bar, ignore_progress
from fragmenta.commands import float64_errors
from fragmenta.commands.app import command
from fragmenta.commands.arguments import InstructionText, find
from fragmenta.commands.files import (
    Force,
    Output,
    as_elements,
    check_output,
    complete_file,
    described,
    load,
    load_matrix,
    matrix_argument,
    save_array,
    size_text,
)
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.commands.quantized_files import from_archive, is_quantized
from fragmenta.commands.targets import complete_target, target_of
from fragmenta.errors import BadCall, BadFile, Error, ValueRangeError, one_of
from fragmenta.reference.execution.explain import explain as explained
from fragmenta.reference.execution.matmul import matmul
from fragmenta.reference.execution.scaled import ScaledOperand, operand, rescaled
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.quant.quantization import ELEMENTS
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.sparse.compression import Compressed
from fragmenta.reference.sparse.pruning import prune

FileA = Annotated[str, matrix_argument("A", "A .npy or .npz file, M x K.")]
FileB = Annotated[str, matrix_argument("B", "A .npy or .npz file, K x N.")]
FileC = Annotated[
    str | None, matrix_argument("C", "A .npy file, M x N; zeros if left out.")
]
OptionalA = Annotated[str | None, matrix_argument("A", "A .npy or .npz file, M x K.")]
OptionalB = Annotated[str | None, matrix_argument("B", "A .npy or .npz file, K x N.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Compute as this GPU does, such as sm_80, hopper or h100.  Default: "
        "sm_90a, or the first target that has the instruction.",
        autocompletion=complete_target,
    ),
]


def _scale(name: str) -> object:
    return typer.Option(
        name,
        metavar="FILE",
        help=f"The block scales of {name[-1].upper()}, a .npy file.",
        autocompletion=complete_file,
    )


ScaleA = Annotated[str | None, _scale("--scale-a")]
ScaleB = Annotated[str | None, _scale("--scale-b")]

# ── matmul ──────────────────────────────────────────────────────────────────


@command(
    "matmul",
    "fragmenta matmul mma.m16n8k16.f32.f16 a.npy b.npy -o d.npy",
    "fragmenta matmul mma.m16n8k16.f32.f16 a.npy b.npy c.npy --compare float64",
    "fragmenta matmul mma nvfp4 m16n8k64 qa.npz qb.npz --target blackwell",
)
def multiply(
    instruction: InstructionText,
    a: FileA,
    b: FileB,
    c: FileC = None,
    output: Output = None,
    target: Target = None,
    compare: Annotated[
        Literal["float64"] | None,
        typer.Option(help="Also print how far the result is from float64."),
    ] = None,
    scale_a: ScaleA = None,
    scale_b: ScaleB = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """D = A B + C, with the steps along K in the order that a kernel takes them.
    D is printed, or written to the file that -o names.

    The numbers in a file must be exact in the instruction's type.  The low 13
    bits of tf32 are ignored, as in hardware.  NumPy saves bf16, fp8, int4
    and other types of ml_dtypes as raw items; they are read as the type that the
    instruction takes.  A sparse instruction takes a pruned A, or a .npz file that
    'fragmenta sparsity' wrote.

    A and B may be .npz files of 'fragmenta quantize'.  Block scales go into the
    instruction.  D is multiplied with the other scales, such as the tensor scales
    of nvfp4, in float32.
    """
    op = find(instruction)
    if output is not None:
        check_output(output, force, ".npy")
    task = _Task.load(op, (a, b, c), {"scale_a": scale_a, "scale_b": scale_b}, target)
    head = [] if as_json else [str(op), *task.given_lines()]
    result = task.result(head)
    if output is not None:  # first of all, so that nothing can lose it
        with bar("writing") as progress:
            save_array(output, result, force, progress)
    judged = None if compare is None else task.compared(result)
    if as_json:
        emit_json(task.about(result, output, judged))
        return
    lines = [task.result_line(result, output)]
    if judged:
        lines.append(str(judged))
    elif output is None:
        lines.append(shown(result))
    emit("\n".join(lines))


def shown(matrix: Array) -> str:
    """The numbers of a small matrix, the corners of a large one."""
    return np.array2string(matrix, max_line_width=width(), threshold=256)


@dataclass(frozen=True)
class _Task:
    """One product: the instruction, and what its files hold."""

    op: Instruction
    target: str
    a: Array | Compressed
    b: Array
    c: Array | None
    scales: dict[str, Array]
    files: dict[str, str]
    factors: tuple[ScaledOperand, ...] = ()
    """The factors of D, if A or B is quantised."""

    @classmethod
    def load(
        cls,
        op: Instruction,
        files: tuple[str, str, str | None],
        scales: dict[str, str | None],
        target: str | None,
    ) -> _Task:
        """Read the files, after a target without the instruction was refused."""
        check_multiplies(op)
        where = chosen_target(op, target_of(target, op))
        a, b = (
            _load_operand(op, name, file, scales[f"scale_{name.lower()}"])
            for name, file in zip("AB", files[:2], strict=True)
        )
        c = files[2]
        if c is not None and any(part.factor is not None for part in (a, b)):
            raise BadCall(
                "C would be multiplied with the scales of A and B; leave it out"
            )
        of_c = op.types.get("c", op.types["d"])
        named = dict(zip("ABC", files, strict=True)) | scales
        return cls(
            op,
            where,
            a.values,
            b.values,
            None if c is None else _elements(c, of_c),
            _given_scales(op, a, b),
            {name: file for name, file in named.items() if file is not None},
            (a, b),
        )

    @classmethod
    def random(cls, op: Instruction, seed: int, target: str | None) -> _Task:
        """Matrices of the instruction's own size, the same for the same seed."""
        check_multiplies(op)
        if seed < 0:
            raise ValueRangeError(f"a seed must be 0 or more; given {seed}")
        generator = np.random.default_rng(seed)
        m, n, k = op.shape
        a = _random(generator, op.types["a"], (m, k))
        b = _random(generator, op.types["b"], (k, n))
        c = _random(generator, op.types.get("c", op.types["d"]), (m, n))
        named = ("scale_a", "scale_b") if op.scale_vec else ()
        parts = {name: getattr(op, name) for name in named}
        scales = {
            name: _random(generator, part.dtype, part.shape)
            for name, part in parts.items()
        }
        a = prune(op, a) if op.sparse else a
        where = chosen_target(op, target_of(target, op))
        return cls(op, where, a, b, c, scales, {})

    def result(self, head: list[str]) -> Array:
        """The product; the first lines are printed when all is checked."""
        try:
            with bar("multiplying") as shown:
                D = self._product(partial(_begin, head, shown))
            _begin(head, ignore_progress, 1.0)
            return rescaled(D, *self.factors) if self.factors else D
        except MemoryError:
            size = size_text((*self.a.shape[:-1], self.b.shape[-1]))
            raise Error(f"there is not enough memory for a D of {size}") from None

    def _product(self, progress: Progress) -> Array:
        return matmul(
            self.op,
            self.a,
            self.b,
            self.c,
            scale_a=self.scales.get("scale_a"),
            scale_b=self.scales.get("scale_b"),
            target=self.target,
            progress=progress,
        )

    def compared(self, result: Array) -> float64_errors.Comparison:
        with bar("comparing") as progress:
            return float64_errors.compare(
                self.op,
                self.a,
                self.b,
                self.c,
                result,
                self.scales,
                progress,
                [each.factor for each in self.factors if each.factor is not None],
            )

    def _operands(self) -> dict[str, tuple[Array | Compressed, DType]]:
        """The matrices that were given, each with its element type."""
        types = self.op.types
        given: dict[str, tuple[Array | Compressed | None, DType]] = {
            "A": (self.a, types["a"]),
            "B": (self.b, types["b"]),
            "C": (self.c, types.get("c", types["d"])),
        }
        for name, matrix in self.scales.items():
            if name in self.files:
                given[name] = (matrix, self.op.scale_a.dtype)
        return {
            n: (matrix, of) for n, (matrix, of) in given.items() if matrix is not None
        }

    def factor(self, row: int, col: int) -> float | None:
        """The factor of an element of D that follows from quantised operands."""
        if all(part.factor is None for part in self.factors):
            return None
        whole = np.ones((self.a.shape[-2], self.b.shape[-1]))
        return float(rescaled(whole, *self.factors)[row, col])

    def _type(self, result: Array) -> DType:
        """The type of D: float32 where it was multiplied with factors."""
        of = self.op.types["d"]
        return of if result.dtype == of.storage else dtype("f32")

    def given_lines(self) -> list[str]:
        """What is multiplied, and for which target."""
        rows = [("target", self.target)]
        for name, (matrix, of) in self._operands().items():
            text = f"{described(matrix, of)} from {self.files[name]}"
            ignored = _ignored(matrix, of)
            many = "s" * (ignored > 1)
            more = f", low bits of {ignored} element{many} ignored" if ignored else ""
            rows.append((name, text + more))
        return [f"{label:<8}{text}" for label, text in rows]

    def result_line(self, result: Array, output: str | None) -> str:
        """What came of it, and where it was written."""
        kept = f" to {output}" if output else ""
        return f"{'D':<8}{described(result, self._type(result))}{kept}"

    def about(
        self,
        result: Array,
        output: str | None,
        judged: float64_errors.Comparison | None,
    ) -> dict[str, object]:
        """The result as JSON."""
        operands: dict[str, object] = {
            name: {"file": self.files[name], "shape": matrix.shape, "type": of.name}
            for name, (matrix, of) in self._operands().items()
        }
        of_d = self._type(result).name
        operands["D"] = {"file": output, "shape": result.shape, "type": of_d}
        about = {"instruction": str(self.op), "target": self.target, **operands}
        return about if judged is None else {**about, "compare": judged.to_dict()}


def _begin(head: list[str], progress: Progress, done: float) -> None:
    """Progress that prints some lines first, once."""
    if head:
        emit("\n".join(head))
        head.clear()
    progress(done)


def _load_operand(
    op: Instruction, name: str, path: str, scales: str | None
) -> ScaledOperand:
    """A or B with its scales; the file of a quantised matrix has them."""
    if scales is not None and not op.scale_vec:
        raise BadCall(f"{op} takes no scales")
    option = f"--scale-{name.lower()}"
    found = load(path)
    if isinstance(found, Mapping) and is_quantized(found):
        if scales is not None:
            raise BadCall(f"{path} has its own scales; leave {option} out")
        return operand(op, name, from_archive(found, path), None)
    values = load_a(path, op) if name == "A" else _elements(path, op.types["b"])
    if scales is None:
        return ScaledOperand(values)
    return ScaledOperand(values, _elements(scales, op.scale_a.dtype))


def _given_scales(
    op: Instruction, a: ScaledOperand, b: ScaledOperand
) -> dict[str, Array]:
    if not op.scale_vec:
        return {}
    if a.scales is None or b.scales is None:
        raise BadCall(
            f"{op} is block-scaled: give --scale-a and --scale-b, or files of "
            "fragmenta quantize"
        )
    return {"scale_a": a.scales, "scale_b": b.scales}


# ── explain ─────────────────────────────────────────────────────────────────


@command(
    "explain",
    "fragmenta explain wgmma.m64n8k32.f32.e4m3.e4m3 --seed 1 --row 3 --col 5",
    "fragmenta explain mma.m16n8k16.f32.f16 a.npy b.npy c.npy --row 0 --col 0",
    "fragmenta explain mma nvfp4 qa.npz qb.npz --row 3 --col 5",
)
def explain(
    instruction: InstructionText,
    row: Annotated[int, typer.Option(help="The row of D.", show_default=False)],
    col: Annotated[int, typer.Option(help="The column of D.", show_default=False)],
    a: OptionalA = None,
    b: OptionalB = None,
    c: FileC = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Use random matrices of this seed, not files."),
    ] = None,
    target: Target = None,
    scale_a: ScaleA = None,
    scale_b: ScaleB = None,
    as_json: AsJson = False,
) -> None:
    """Prints each product and its exponent, how the terms are aligned and which
    bits that cuts off, the sum, its rounding, and the difference from the exact
    value.  A and B may be .npz files of 'fragmenta quantize'.
    """
    op = find(instruction)
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    if seed is not None:
        if a is not None or any(scales.values()):
            raise BadCall("--seed replaces the files; give either --seed or files")
        task = _Task.random(op, seed, target)
    elif a is None or b is None:
        raise BadCall("give the files of A and B, or --seed N")
    else:
        task = _Task.load(op, (a, b, c), scales, target)
    found = explained(
        op, task.a, task.b, task.c, row=row, col=col, target=task.target, **task.scales
    )
    factor = task.factor(row, col)
    more = {} if factor is None else {"factor": factor}
    if as_json:
        emit_json({**found.to_dict(), **more})
    else:
        emit(
            str(found) if factor is None else f"{found}\nD is multiplied with {factor}"
        )


def _random(generator: np.random.Generator, of: DType, shape: tuple[int, ...]) -> Array:
    """Normally distributed values, or integers of the whole range of a small type."""
    if of.is_integer:
        low, high = of.limits if of.bits < 32 else (-1000, 1000)
        return generator.integers(low, high, shape, endpoint=True)
    values = generator.standard_normal(shape)
    if of.kind == "scale":
        values = 2.0 ** values.round()
    return values.astype(of.storage)


# ── reading operands ─────────────────────────────────────────────────────


def load_a(path: str, op: Instruction) -> Array | Compressed:
    """A from a ``.npy`` file, or from an archive of ``fragmenta sparsity``."""
    of, found = op.types["a"], load(path)
    if not isinstance(found, Mapping):
        return _checked(as_elements(found, of, path), of, path)
    if "pruned" in found:
        return _typed(found, "pruned", op, path)
    if not {"values", "indices", "width"} <= set(found):
        have = one_of(found, "and") or "nothing"
        raise BadFile(
            f"{path} contains {have}; a file of fragmenta sparsity contains pruned, or "
            "values, indices and width"
        )
    if op.granularity is None:
        raise BadFile(f"{path} holds a compressed A, but {op} is dense")
    width = found["width"]
    if width.shape != () or width.dtype.kind not in "iu":
        raise BadFile(
            f"the width in {path} must be one whole number; given {width.dtype} of "
            f"shape {width.shape}"
        )
    values = _typed(found, "values", op, path)
    try:
        return Compressed(values, found["indices"], op.granularity, int(width))
    except Error as error:
        raise type(error)(f"{path}: {error}") from None


def _typed(found: Mapping[str, Array], name: str, op: Instruction, path: str) -> Array:
    """An array of an archive; only one of the same type can be taken by its bits."""
    of, array = op.types["a"], found[name]
    if array.dtype.kind == "V" and "type" in found:
        written = found["type"]
        if written.shape != () or written.dtype.kind != "U":
            raise BadFile(
                f"the type in {path} must be a name such as {of}; given {written}"
            )
        if str(written) != of.name:
            raise BadFile(f"{path} holds {dtype(str(written))}, but A of {op} is {of}")
    return _checked(as_elements(array, of, path), of, path)


def _elements(path: str, of: DType) -> Array:
    return _checked(load_matrix(path, of), of, path)


def _checked(array: Array, of: DType, path: str) -> Array:
    """The matrix in its type; an error names the file."""
    try:
        return of.decode(of.encode(array))
    except Error as error:
        scaled = of.name in ELEMENTS and isinstance(error, ValueRangeError)
        how = "; 'fragmenta quantize' scales numbers so that they fit" if scaled else ""
        raise type(error)(f"{path}: {error}{how}") from None


def _ignored(matrix: Array | Compressed, of: DType) -> int:
    """How many numbers have more bits than tf32 reads."""
    if of.name != "tf32":
        return 0
    values = matrix.values if isinstance(matrix, Compressed) else matrix
    read = of.to_float64(of.encode(values))
    return int(np.count_nonzero((read != values) & ~np.isnan(values)))
