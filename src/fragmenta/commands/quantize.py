"""The command ``quantize``: elements and scales of a matrix, and their errors."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import typer

from fragmenta.base.arrays.checks import Array
from fragmenta.base.progress import bar
from fragmenta.commands.app import command
from fragmenta.commands.arguments import complete_instruction, find
from fragmenta.commands.files import (
    Force,
    Output,
    check_output,
    load,
    matrix_argument,
    not_one,
    save_array,
    save_arrays,
    save_tensors,
    size_text,
)
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json
from fragmenta.commands.quantized_files import (
    as_stored,
    from_archive,
    is_quantized,
    to_arrays,
    to_items,
    to_texts,
)
from fragmenta.errors import BadCall, BadFile, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.quant import quantization as library
from fragmenta.reference.quant.quantization import Quantized, described
from fragmenta.reference.quant.reporting import (
    Report as QuantizationReport,
)
from fragmenta.reference.quant.reporting import (
    report as quantization_report,
)


def _complete(incomplete: str) -> list[str]:
    """Formats and instructions that begin with a text, for completion."""
    names = (*library.FORMATS, *library.ELEMENTS)
    found = [name for name in names if name.startswith(incomplete)]
    return found + complete_instruction(incomplete)


@command(
    "quantize",
    "fragmenta quantize w.npy nvfp4 -o w.npz",
    "fragmenta quantize b.npy mxfp8_e4m3 --operand B --rule up",
    "fragmenta quantize a.npy int8 --per tensor --json",
    "fragmenta quantize a.npy int4 --per 16 -o a.npz",
    "fragmenta quantize w.npy mma nvfp4 m16n8k64",
    "fragmenta quantize w.npy mxfp8_e4m3 --packed -o w.safetensors",
    "fragmenta quantize w.npz --dequantize -o back.npy",
)
def quantize(
    file: Annotated[
        str,
        matrix_argument(
            "FILE",
            "A .npy file, or a .safetensors file and :NAME of a tensor; with "
            "--dequantize a file of this command.",
        ),
    ],
    form: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FORMAT...",
            help="nvfp4, mxfp4, mxfp6_e2m3, mxfp6_e3m2, mxfp8_e4m3 or mxfp8_e5m2; an "
            "element type, such as e4m3 or int4; or an instruction.",
            autocompletion=_complete,
            show_default=False,
        ),
    ] = None,
    operand: Annotated[
        Literal["A", "B"],
        typer.Option(help="A has blocks along its rows, B along its columns."),
    ] = "A",
    per: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What shares a float32 scale: row, column, tensor, or how many "
            "elements along k.",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="How scales are chosen: ocp, up or nearest."),
    ] = None,
    tensor_scale: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="The tensor scale of nvfp4; by default it is computed.",
        ),
    ] = None,
    dequantize: Annotated[
        bool,
        typer.Option(
            "--dequantize", help="Write the numbers that such a file stands for."
        ),
    ] = False,
    packed: Annotated[
        bool,
        typer.Option(
            "--packed",
            help="Write the bytes that cuBLAS takes: k contiguous, two e2m1 in a byte, "
            "block scales in blocks of 128 x 4.",
        ),
    ] = False,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prints how far elements and scales are from the numbers: the largest error and
    its place, the root mean square of the errors by that of the numbers, how many
    numbers are clipped at the largest element, and how many become 0.

    -o writes a .npz or .safetensors file with 'values', 'scales', 'tensor_scale' if
    there is one, and what else describes them.  'fragmenta matmul' takes it for A or B,
    and --dequantize writes the numbers that it stands for, float64, to a .npy file.
    """
    if dequantize:
        options = {"--per": per, "--rule": rule, "--tensor-scale": tensor_scale}
        options |= {"--packed": packed or None}
        given = [name for name, value in options.items() if value is not None]
        if form or given:
            extra = one_of([*(form or []), *given], "and")
            raise BadCall(
                f"--dequantize takes a file of quantize alone; given also {extra}"
            )
        _dequantize(file, output, force, as_json)
        return
    if not form:
        known = one_of((*library.FORMATS, *library.ELEMENTS))
        raise BadCall(f"name a format after the file: {known}, or an instruction")
    if output is not None:
        check_output(output, force, ".npz", ".safetensors")
    elif packed:
        raise BadCall("--packed is about the file; name it with -o")
    op = _format(form)
    matrix = _numbers(file)
    q = library.quantize(
        op,
        matrix,
        operand=operand,
        per=int(per) if per is not None and per.isdecimal() else per,
        rule=rule,
        tensor_scale=tensor_scale,
    )
    report = quantization_report(matrix, q)
    if output is not None:
        _save(output, q, packed, force)
    if as_json:
        emit_json(_about(file, q, report, output))
    else:
        emit("\n".join(_lines(file, matrix, q, report, output)))


def _save(path: str, q: Quantized, packed: bool, force: bool) -> None:
    arrays = to_arrays(q, packed)
    with bar("writing") as progress:
        if path.endswith(".npz"):
            save_arrays(path, arrays | to_items(q, packed), force, progress)
            return
        stored = {name: as_stored(array) for name, array in arrays.items()}
        save_tensors(path, stored, to_texts(q, packed), force, progress)


def _format(words: list[str]) -> Instruction | str:
    """A format's name, or the instruction that the words mean."""
    text = " ".join(words)
    return find(text) if "." in text or len(words) > 1 or " " in text else text


def _numbers(path: str) -> Array:
    """The matrix of a file; items without a type are refused."""
    found = load(path)
    if is_quantized(found):
        raise BadFile(f"{path} is quantised already; --dequantize writes its numbers")
    if not isinstance(found, np.ndarray):
        raise not_one(found, path)
    if found.dtype.type.__module__ == "ml_dtypes":  # a safetensors file has types
        return found.astype(np.float32)
    if found.dtype.kind == "V":
        raise BadFile(
            f"{path} holds items of {found.dtype.itemsize} bytes without a type; save "
            ".astype(np.float32) of them"
        )
    return found


def _lines(
    file: str,
    matrix: Array,
    q: Quantized,
    report: QuantizationReport,
    output: str | None,
) -> list[str]:
    size = report.elements
    ends = f"{report.smallest_scale:.4g} to {report.largest_scale:.4g}"
    second = q.tensor_scale
    rows = [
        ("file", f"{file}, {size_text(matrix.shape)} {matrix.dtype.name}"),
        ("format", _described(q)),
        ("scales", f"{size_text(q.scales.shape)}, {ends}"),
        ("error", f"rms {report.relative_rms:.3%} of the rms of the numbers"),
        ("", f"largest {report.max_error:.4g} at {list(report.at)}"),
        ("clipped", f"{report.clipped} of {size} ({report.clipped / size:.2%})"),
        ("zeroed", f"{report.zeroed} of {size} ({report.zeroed / size:.2%})"),
    ]
    if second is not None and second.size == 1:
        rows.insert(3, ("", f"with the tensor scale, {second.item():.6g}"))
    if output is not None:
        rows.append(("written", output))
    return [f"{label:<9}{text}" for label, text in rows]


def _described(q: Quantized) -> str:
    name = f"{q.format}: " if q.format not in ("", q.dtype.name) else ""
    return f"{name}{described(q)}"


def _about(
    file: str, q: Quantized, report: QuantizationReport, output: str | None
) -> dict[str, object]:
    """The report as JSON."""
    scale = q.tensor_scale
    return {
        "file": file,
        "shape": q.shape,
        "format": q.format,
        "type": q.dtype.name,
        "scale_type": q.scale_dtype.name,
        "scales": q.scales.shape,
        "block": q.block,
        "axis": q.axis,
        "rule": q.rule,
        "tensor_scale": None if scale is None else scale.ravel().tolist(),
        **report.to_dict(),
        "output": output,
    }


def _dequantize(path: str, output: str | None, force: bool, as_json: bool) -> None:
    if output is None:
        raise BadCall("--dequantize writes a file; name it with -o FILE.npy")
    check_output(output, force, ".npy")
    found = load(path)
    if isinstance(found, np.ndarray):
        raise BadFile(f"{path} is one matrix; --dequantize takes a file of quantize")
    q = from_archive(found, path)
    numbers = library.dequantize(q)
    with bar("writing") as progress:
        save_array(output, numbers, force, progress)
    if as_json:
        about = {"file": path, "format": q.format, "shape": q.shape, "output": output}
        emit_json(about)
        return
    lines = [f"{'file':<9}{path}", f"{'format':<9}{_described(q)}"]
    emit("\n".join([*lines, f"{'written':<9}{size_text(q.shape)} float64 to {output}"]))
