"""The commands ``sparsity`` and ``metadata``: sparse matrices and their codes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.progress import bar
from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.arguments import InstructionText, InstructionWords, find
from fragmenta.commands.files import (
    Force,
    Output,
    check_output,
    load_matrix,
    matrix_argument,
    save_arrays,
    size_text,
)
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import complain, emit, emit_json, width
from fragmenta.errors import BadCall, ValueRangeError, one_of, ranges
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import check_lane
from fragmenta.reference.registers.granularity import Granularity, locate
from fragmenta.reference.registers.metadata import Nibble
from fragmenta.reference.sparse import compression as library
from fragmenta.reference.sparse import pruning
from fragmenta.reference.sparse.compression import Report as SparsityReport

SHOWN = 5
"""The most violating chunks that are listed."""
_BLOCK = 1 << 20
"""Elements of a block of the search for violations."""

# ── sparsity ────────────────────────────────────────────────────────────────


@command(
    "sparsity",
    "fragmenta sparsity sparse.npy mma.sp.m16n8k32.f32.f16",
    "fragmenta sparsity w.npy mma.sp.m16n8k32.f32.f16 --prune --compress -o w.npz",
    "fragmenta sparsity sparse.npy sparse mma m16n8k32 half f32",
)
def sparsity(
    file: Annotated[str, matrix_argument("FILE", "A .npy file.")],
    instruction: InstructionWords,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Keep the largest values of each chunk, by magnitude; of pairs, the "
            "largest sums.",
        ),
    ] = False,
    compress: Annotated[
        bool,
        typer.Option(
            "--compress", help="Store only the values that are kept, and their codes."
        ),
    ] = False,
    pad: Annotated[
        bool, typer.Option("--pad", help="Fill the last chunk with zeros.")
    ] = False,
    selector: Annotated[
        int | None,
        typer.Option(
            help="With --compress: also store metadata words for this selector."
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """The exit status is 1 if it is not.

    --prune sets the smallest values to zero.  --compress stores the others without
    the zeros.  With both, the matrix is pruned first.  The result is a .npz file,
    which 'fragmenta matmul' takes for A.

    Without --compress the file has 'pruned', the matrix with its zeros.  With it,
    the file has 'values', the stored values; 'indices', one 4-bit code per chunk;
    and 'width', the number of columns of A.  'type' is the element type.  With
    --selector it also has 'metadata', the words of every tile by tile row, tile
    column and lane; incomplete tiles are filled with zeros.
    """
    if os.path.exists(instruction[-1]) and not os.path.exists(file):
        *instruction, file = file, *instruction  # other commands take them so
    op, _ = library.sparse(find(" ".join(instruction)))
    _check_request(prune or compress, output, force)
    if selector is not None:
        if not compress:
            raise BadCall("--selector needs --compress")
        _check_selector(op, selector)
    matrix = load_matrix(file, op.types["a"])
    with bar("checking") as progress:
        pattern = _pattern(matrix, op)
        report = library.report(op, pattern, pad=pad, progress=progress)
    found = [] if report.satisfied else list(_violations(pattern, report))
    arrays: dict[str, Array] = {}
    if output is not None:
        arrays = _arrays(matrix, op, prune, compress, pad, selector)
        with bar("writing") as progress:
            save_arrays(output, arrays, force, progress)
    if as_json:
        emit_json({"file": file, **_about(report, found, output, arrays)})
    else:
        shown = _lines(file, op, report, found)
        if output is not None:
            listed = (f"{k} {size_text(v.shape)}" for k, v in arrays.items() if v.ndim)
            shown.append(f"{'written':<11}{one_of(listed, 'and')} to {output}")
        emit("\n".join([str(op), *shown]))
    if output is None and not report.satisfied:
        raise typer.Exit(NOTHING)


def _check_request(making: bool, output: str | None, force: bool) -> None:
    if making and output is None:
        raise BadCall("--prune and --compress write a file; name it with -o FILE")
    if output is not None and not making:
        raise BadCall("-o needs --prune, --compress or both")
    if output is not None:
        check_output(output, force, ".npz")


def _pattern(matrix: Array, op: Instruction) -> Array:
    """The matrix, or one with the same zeros if its values are not of the type."""
    of = op.types["a"]
    if matrix.dtype == of.storage or matrix.dtype.kind not in "biuf":
        return matrix
    pattern: Array = (matrix != 0).astype(of.storage)
    return pattern


def _violations(
    matrix: Array, report: SparsityReport
) -> Iterator[tuple[tuple[int, ...], int]]:
    """The first chunks that are too full, and how many values each has."""
    granularity, at = report.granularity, report.first
    assert at is not None
    rows = matrix.reshape(-1, matrix.shape[-1])
    first = int(np.ravel_multi_index(at[:-1], matrix.shape[:-1]))
    step = max(1, _BLOCK // rows.shape[1])
    left = min(SHOWN, report.violating)
    for start in range(first, len(rows), step):
        counts = _counts(rows[start : start + step], granularity)
        found = np.argwhere(counts > granularity.picks)[:left]
        for row, chunk in found.tolist():
            index = np.unravel_index(start + row, matrix.shape[:-1])
            yield (*(int(i) for i in index), chunk), int(counts[row, chunk])
        left -= len(found)
        if not left:
            return


def _counts(rows: Array, granularity: Granularity) -> NDArray[np.int64]:
    """How many places of each chunk have a value."""
    short = -rows.shape[1] % granularity.chunk
    values = np.pad(rows != 0, ((0, 0), (0, short)))
    shape = (len(rows), -1, granularity.places, granularity.group)
    counts: NDArray[np.int64] = values.reshape(shape).any(axis=-1).sum(axis=-1)
    return counts


def _arrays(
    matrix: Array,
    op: Instruction,
    prune: bool,
    compress: bool,
    pad: bool,
    selector: int | None,
) -> dict[str, Array]:
    """The arrays of the .npz file."""
    of = op.types["a"].name
    if prune:
        with bar("pruning") as progress:
            columns = matrix.shape[-1]
            matrix = pruning.prune(op, matrix, pad=pad, progress=progress)
            if compress:  # the padding is not A's
                matrix = matrix[..., :columns]
    if not compress:
        named = {"type": np.array(of)} if matrix.dtype == op.types["a"].storage else {}
        return {"pruned": matrix, **named}
    with bar("compressing") as progress:
        sp = library.compress(op, matrix, pad=pad, progress=progress)
    stored = {
        "values": sp.values,
        "indices": sp.indices,
        "width": np.array(sp.width),
        "type": np.array(of),
    }
    if selector is None:
        return stored
    words = op.metadata.pack_tiles(sp.indices, pad=True, selector=selector)
    return {**stored, "metadata": words[..., 0]}


def _about(
    report: SparsityReport,
    found: list[tuple[tuple[int, ...], int]],
    output: str | None,
    arrays: dict[str, Array],
) -> dict[str, object]:
    """The report as JSON."""
    chunk = report.granularity.chunk
    return {
        "instruction": report.instruction,
        "shape": report.shape,
        "sparsity": str(report.granularity),
        "satisfied": report.satisfied,
        "chunks": report.chunks,
        "violating": report.violating,
        "share": report.share,
        "zeros": report.zeros,
        "first": [
            {
                "index": index,
                "columns": [index[-1] * chunk, index[-1] * chunk + chunk - 1],
                "non_zeros": count,
            }
            for index, count in found
        ],
        "output": output,
        "arrays": {name: array.shape for name, array in arrays.items()},
    }


def _lines(
    file: str,
    op: Instruction,
    report: SparsityReport,
    found: list[tuple[tuple[int, ...], int]],
) -> list[str]:
    size = 1
    for each in report.shape:
        size *= each
    granularity = report.granularity
    is_not = "satisfies" if report.satisfied else "does not satisfy"
    rows = [
        ("file", f"{file}, {size_text(report.shape)}, {is_not} {granularity}"),
        ("zeros", f"{report.zeros} of {size} ({report.zeros / max(1, size):.2%})"),
        (
            "too full",
            f"{report.violating} of {report.chunks} chunks ({report.share:.2%})",
        ),
    ]
    what = "pairs" if granularity.group == 2 else "values"
    for index, count in found:
        low = index[-1] * granularity.chunk
        columns = f"columns {low} to {low + granularity.chunk - 1}"
        label = "first" if index == found[0][0] else ""
        rows.append((label, f"{locate(index)} ({columns}): {count} {what}"))
    if len(found) < report.violating:
        rows.append(("", f"and {report.violating - len(found)} more"))
    return [f"{label:<11}{text}" for label, text in rows]


# ── metadata ────────────────────────────────────────────────────────────────


@command(
    "metadata",
    "fragmenta metadata mma.sp::ordered_metadata.m16n8k64.s4.s4 0xe4e4d894",
    "fragmenta metadata mma.sp.m16n8k32.s8.s8 e4e4e4e4 44 --lane 1 --selector 0",
    "fragmenta metadata wgmma.sp.m64n8k32.f32.f16 44ee44ee --warp 1 --json",
)
def metadata(
    instruction: InstructionText,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORD",
            help="Words in hexadecimal, of this lane and the next.",
            show_default=False,
        ),
    ],
    lane: Annotated[int, typer.Option(help="The lane of the first word.")] = 0,
    warp: Annotated[int, typer.Option(help="The warp of a warpgroup.")] = 0,
    selector: Annotated[
        int | None, typer.Option(help="Show only what this sparsity selector reads.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The exit status is 1 if a code is illegal, or if --selector reads no word."""
    op, granularity = library.sparse(find(instruction))
    _check_place(op, lane, warp, selector)
    given = [_word(text) for text in words]
    codes = [
        code
        for code in library.read_words(op, given, lane=lane, warp=warp)
        if selector is None or code.selector == selector
    ]
    if not codes:
        complain(f"No word is in a lane that selector {selector} reads.")
        raise typer.Exit(NOTHING)
    if as_json:
        emit_json(
            {
                "instruction": str(op),
                "sparsity": str(granularity),
                "ordered": op.metadata.ordered,
                "legal": not any(code.problem for code in codes),
                "codes": [{**vars(code), "code": f"{code.code:04b}"} for code in codes],
            }
        )
    else:
        lines = [str(op), *_code_lines(codes, granularity), *_problems(codes)]
        emit("\n".join(lines))
    if any(code.problem for code in codes):
        raise typer.Exit(NOTHING)


def _word(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise ValueRangeError(
            f"{text!r} is not a hexadecimal number such as 0xe4e4e4e4"
        ) from None


def _check_place(op: Instruction, lane: int, warp: int, selector: int | None) -> None:
    check_lane(lane, warp, op.metadata.lanes // 32)
    if selector is not None:
        _check_selector(op, selector)


def _check_selector(op: Instruction, selector: int) -> None:
    if selector not in op.selectors:
        allowed = one_of(op.selectors)
        raise ValueRangeError(f"selector {selector} is out of range; it is {allowed}")


def _code_lines(codes: list[Nibble], granularity: Granularity) -> list[str]:
    """A table for each lane, a line for each code."""
    room = max(4, granularity.chunk)
    head = f"{'nibble':>8}  code  {'row':>3}  chunk  {'kept':<{room}}  columns"
    lines = []
    for number, code in enumerate(codes):
        before = codes[number - 1] if number else None
        place = (code.warp, code.lane, code.selector)
        if before is None or place != (before.warp, before.lane, before.selector):
            warp = "" if code.warp is None else f"warp {code.warp}, "
            lines.append(f"{warp}lane {code.lane}, read with selector {code.selector}")
            lines.append(head)
        kept = "".join(
            "x" if at in code.positions else "." for at in range(granularity.chunk)
        )
        what = " ".join(map(str, code.columns))
        if code.problem:
            kept, what = "?" * granularity.chunk, "illegal"
        lines.append(
            f"{code.nibble:>8}  {code.code:04b}  {code.row:>3}  {code.chunk:>5}  "
            f"{kept:<{room}}  {what}"
        )
    return lines


def _problems(codes: list[Nibble]) -> list[str]:
    """The illegal codes, each reason once, with its places."""
    places: dict[tuple[str, int | None, int], list[int]] = {}
    for code in codes:
        if code.problem:
            said = f"code {code.code:04b} {code.problem}"
            places.setdefault((said, code.warp, code.lane), []).append(code.nibble)
    lines = []
    for (said, warp, lane), nibbles in places.items():
        of = "" if warp is None else f"warp {warp}, "
        many = "s" * (len(nibbles) > 1)
        text = f"{of}lane {lane}, nibble{many} {ranges(nibbles)}: {said}"
        lines += textwrap.wrap(text, width(), subsequent_indent="  ")
    return lines
