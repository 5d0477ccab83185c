"""Draw the plots of the documentation.

    python docs/plots/make.py              # all of them
    python docs/plots/make.py kernels      # one of them; see PLOTS

Needs matplotlib.  Run it after the arithmetic or a benchmark has changed.  The plots
about numerics and quantization are computed with ``fm.matmul``; the one about kernels
shows docs/benchmarks/h200-gemm.json, the one about a model h200-model.json, the one
about 4-bit weights h200-int4.json, the one about growth peers.json.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import fragmenta as fm

HERE = Path(__file__).resolve().parent
LENGTHS = [2**n for n in range(5, 15)]

MEASURED = HERE.parent / "benchmarks" / "h200-gemm.json"
MODEL = HERE.parent / "benchmarks" / "h200-model.json"
INTEGERS = HERE.parent / "benchmarks" / "h200-int4.json"
PEERS = HERE.parent / "benchmarks" / "peers.json"
CORES = HERE.parent / "benchmarks" / "cores.json"

# Colours that colour-blind readers can tell apart, and a mark for each.
CURVES = """
f16, f32 sums, sm_80         mma    m16n8k16  f16   f32  sm_80   #0072b2  o
f16, f32 sums, sm_90         mma    m16n8k16  f16   f32  sm_90   #56b4e9  s
f16, f16 sums, sm_90         mma    m16n8k16  f16   f16  sm_90   #cc79a7  v
e4m3, f32 sums, sm_90 wgmma  wgmma  m64n8k32  e4m3  f32  sm_90a  #d55e00  D
e4m3, f32 sums, sm_90 mma    mma    m16n8k32  e4m3  f32  sm_90   #009e73  ^
e4m3, f32 sums, sm_120       mma    m16n8k32  e4m3  f32  sm_120  #7f7f7f  x
"""


def bits_kept(found: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    """Correct bits of a typical sum, from the median relative error."""
    error = np.median(np.abs(found - exact) / np.abs(exact))
    return float(min(24.0, -np.log2(max(error, 2.0**-24))))


def curve(op: fm.Instruction, target: str, signed: bool) -> list[float]:
    """Bits kept at each length, for terms of one sign or of both."""
    kept, low = [], -1.0 if signed else 0.0
    for length in LENGTHS:
        rng = np.random.default_rng(length)
        a = rng.uniform(low, 1, (64, length)).astype(op.types["a"].storage)
        b = rng.uniform(low, 1, (length, 8)).astype(op.types["b"].storage)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        found = fm.matmul(op, a, b, target=target).astype(np.float64)
        kept.append(bits_kept(found, exact))
    return kept


def style() -> None:
    """Text as text, nothing random in the file, a grey that reads on any page."""
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "fragmenta",
            "font.size": 9,
            "font.family": "sans-serif",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.facecolor": "white",
        }
    )


def save(name: str, shows: str | None = None) -> None:
    """Write one plot, the same bytes every time; it may say what it shows."""
    plt.tight_layout()
    about = {"Date": None, "Creator": None, "Description": shows}
    plt.savefig(HERE / f"{name}.svg", metadata=about)
    plt.close()


def numerics(name: str) -> None:
    """Correct bits by the length of the sum, for terms of one sign or of both."""
    signed = name == "signed"
    what = "terms of both signs" if signed else "terms of one sign"
    plt.figure(figsize=(7.2, 3.8))
    for line in CURVES.strip().splitlines():
        label, make, shape, a, d, target, colour, mark = re.split(r"\s{2,}", line)
        kept = curve(getattr(fm, make)(shape, a=a, d=d), target, signed)
        plt.plot(LENGTHS, kept, color=colour, marker=mark, ms=4, label=label)
    plt.xscale("log", base=2)
    plt.xlabel("products in the sum")
    plt.ylabel("correct bits, median")
    plt.title(f"What is left of a dot product: {what}", loc="left", fontsize=10)
    plt.ylim(0, 25)
    plt.grid(alpha=0.3)
    plt.legend(fontsize=7.5, ncols=2, frameon=False, loc="lower left")
    save(name)


# Block-scaled instructions of sm_120, by the format of their operands.
FORMATS = """
mxfp4       m16n8k64  e2m1  mxf4      ue8m0  #0072b2  o
nvfp4       m16n8k64  e2m1  mxf4nvf4  ue4m3  #d55e00  D
mxfp6_e3m2  m16n8k32  e3m2  mxf8f6f4  ue8m0  #009e73  ^
mxfp8_e4m3  m16n8k32  e4m3  mxf8f6f4  ue8m0  #cc79a7  v
"""


def errors(op: fm.Instruction, length: int) -> tuple[float, float]:
    """Quantisation and arithmetic error of a product, relative to its size."""
    rng = np.random.default_rng(length)
    x, y = rng.standard_t(2, (64, length)), rng.standard_t(2, (length, 64))
    a, b = fm.quant.quantize(op, x), fm.quant.quantize(op, y, operand="B")
    d = fm.matmul(op, a.values, b.values, scale_a=a.scales, scale_b=b.scales)
    found = d.astype(np.float64)
    if a.tensor_scale is not None and b.tensor_scale is not None:
        found *= a.tensor_scale.astype(np.float64) * b.tensor_scale
    exact, stored = x @ y, fm.quant.dequantize(a) @ fm.quant.dequantize(b)
    size = np.linalg.norm(exact)
    parts = (stored - exact, found - stored)
    quantised, added = (float(np.linalg.norm(part) / size) for part in parts)
    return quantised, added


def quantization(name: str) -> None:
    """What rounding the operands costs, and what the Tensor Core adds to it."""
    plt.figure(figsize=(7.2, 3.8))
    lengths = LENGTHS[1:-1]
    for line in FORMATS.strip().splitlines():
        label, shape, a, kind, stype, colour, mark = line.split()
        op = fm.mma(shape, a=a, kind=kind, block_scale="block_scale", stype=stype)
        stored, added = zip(*(errors(op, k) for k in lengths), strict=True)
        look = {"color": colour, "marker": mark, "ms": 4}
        plt.plot(lengths, stored, label=f"{label}, operands", **look)
        # Less than 1e-12 is the rounding of the float64 that judges.
        shown = [each if each > 1e-12 else np.nan for each in added]
        if not all(np.isnan(shown)):
            plt.plot(lengths, shown, "--", label=f"{label}, sums", **look)
    plt.xscale("log", base=2)
    plt.yscale("log")
    plt.xlabel("products in the sum")
    plt.ylabel("error, relative")
    plt.title("Quantised products on sm_120", loc="left", fontsize=10)
    plt.ylim(1e-9, 1)
    plt.grid(alpha=0.3)
    plt.legend(fontsize=7.5, ncols=2, frameon=False, loc="center left")
    save(name)


# Which rows of the benchmark are compared, and their colours.
SERIES = {
    "torch dense": (r"torch[._]", "#7f7f7f"),
    "cuSPARSELt 2:4": (r"cuSPARSELt tuned$", "#56b4e9"),
    "fragmenta 2:4": (r"fragmenta 2:4 \[", "#d55e00"),
}
TYPES = {"e4m3": "#d55e00", "s8": "#0072b2", "bf16": "#009e73", "tf32": "#cc79a7"}
BATCHES = (1, 16, 64, 256, 2048, 8192)


def measured(series: str, of: str, n: int, key: str) -> float:
    """One number of the benchmark: a series, a type, 8192 x n x 8192."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
    pattern = re.compile(SERIES[series][0])
    (found,) = (
        row[key]
        for row in rows
        if pattern.match(row["what"]) and (row["type"], row["size"][1]) == (of, n)
        if row["size"][::2] == [8192, 8192]
    )
    return float(found)


def rates(axes: plt.Axes) -> None:
    """TFLOP/s of large products, as bars."""
    for place, (label, (_, colour)) in enumerate(SERIES.items()):
        found = [measured(label, of, 8192, "rate") for of in TYPES]
        left = np.arange(len(TYPES)) + 0.28 * (place - 1)
        bars = axes.bar(left, found, 0.26, color=colour, label=label)
        axes.bar_label(bars, fmt="%.0f", fontsize=6.5, padding=1)
    axes.set_xticks(range(len(TYPES)), list(TYPES))
    axes.set_ylabel("TFLOP/s")
    axes.set_title("8192 x 8192 x 8192", loc="left", fontsize=10)
    axes.legend(fontsize=7.5, frameon=False)


def advantage(axes: plt.Axes) -> None:
    """How many times as fast as a dense layer, by batch."""
    for (of, colour), mark in zip(TYPES.items(), "osD^", strict=True):
        dense, sparse = (
            np.array([measured(label, of, n, "microseconds") for n in BATCHES])
            for label in ("torch dense", "fragmenta 2:4")
        )
        axes.plot(BATCHES, dense / sparse, color=colour, marker=mark, ms=4, label=of)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCHES, [f"{n}" for n in BATCHES], fontsize=7.5)
    axes.set_ylim(0, 2.6)
    axes.set_xlabel("batch")
    axes.set_ylabel("times as fast as torch dense")
    axes.set_title("a layer of 8192 x 8192", loc="left", fontsize=10)
    axes.legend(fontsize=7.5, ncols=4, frameon=False, loc="lower left")


def kernels(name: str) -> None:
    """What the Hopper kernels reach, beside PyTorch and cuSPARSELt."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.3), width_ratios=(5, 4))
    rates(left)
    advantage(right)
    save(name)


# The linears of benchmarks/gpu/bench_model.py, their colours and marks.
LINEARS = {
    "dense bf16": ("#7f7f7f", "o"),
    "dense fp8, scale per row": ("#cc79a7", "v"),
    "dense fp8, one scale": ("#e69f00", "^"),
    "cuSPARSELt 2:4 bf16": ("#56b4e9", "s"),
    "fragmenta 2:4 bf16": ("#009e73", "D"),
    "fragmenta 2:4 fp8": ("#d55e00", "P"),
    "fragmenta 2:4 int4": ("#0072b2", "X"),
}


def tokens(rows: list[dict[str, Any]], phase: str, what: str) -> dict[int, float]:
    """Tokens per second of a whole model by batch; what failed is left out."""
    return {
        row["batch"]: row["rate"]
        for row in rows
        if (row["phase"], row["what"]) == (phase, what) and row["rate"]
    }


def by_batch(axes: plt.Axes, batches: list[int], shown: str, title: str) -> None:
    """Batches as an axis of powers of two, and what is shown of them from 0 on."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [f"{n}" for n in batches], fontsize=7.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch")
    axes.set_ylabel(shown)
    axes.set_title(title, loc="left", fontsize=10)


def decoding(axes: plt.Axes, rows: list[dict[str, Any]]) -> None:
    """How many times as many tokens as with dense bf16, by batch."""
    base = tokens(rows, "decode", "dense bf16")
    for what, (colour, mark) in LINEARS.items():
        found = tokens(rows, "decode", what)
        batches = sorted(found.keys() & base.keys())
        ratios = [found[batch] / base[batch] for batch in batches]
        if batches:
            axes.plot(batches, ratios, color=colour, marker=mark, ms=4, label=what)
    by_batch(axes, sorted(base), "tokens/s, dense bf16 = 1", "decoding")
    axes.legend(fontsize=5.8, frameon=False, loc=(0.02, 0.185), labelspacing=0.3)


def prefilling(axes: plt.Axes, rows: list[dict[str, Any]]) -> None:
    """Tokens per second of a prefill, as bars."""
    found = {what: tokens(rows, "prefill", what).get(1) for what in LINEARS}
    shown = {what: rate / 1e3 for what, rate in found.items() if rate}
    colours = [LINEARS[what][0] for what in shown]
    bars = axes.barh(list(shown), list(shown.values()), color=colours)
    axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7.5)
    axes.set_xlabel("1000 tokens/s")
    axes.set_title("prefill", loc="left", fontsize=10)


def model(name: str) -> None:
    """Tokens per second of a whole decoder, by its linears."""
    rows = json.loads(MODEL.read_text(encoding="utf-8"))["rows"]
    _, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.3), width_ratios=(5, 4))
    decoding(left, rows)
    prefilling(right, rows)
    save(name)


# Layers beside dense bf16, their colours and marks.
LAYERS = {
    "2:4 int4 x fp8": ("#d55e00", "D"),
    "2:4 int4 x bf16": ("#0072b2", "o"),
    "2:4 fp8": ("#009e73", "^"),
    "fp8": ("#7f7f7f", "s"),
    "int4": ("#cc79a7", "v"),
}


def gains(axes: plt.Axes, cases: list[dict[str, Any]]) -> None:
    """How many times as fast as dense bf16: geometric means by batch."""
    batches = sorted({case["n"] for case in cases if case["n"] <= 256})
    for what, (colour, mark) in LAYERS.items():
        ratios = [
            [case["us"]["bf16"] / case["us"][what] for case in cases if case["n"] == n]
            for n in batches
        ]
        means = [float(np.exp(np.mean(np.log(each)))) for each in ratios]
        label = what if what.startswith("2:4") else f"dense {what}"
        axes.plot(batches, means, color=colour, marker=mark, ms=4, label=label)
    axes.axhline(1, color="#bbbbbb", lw=0.8)
    named = [n for n in batches if n & (n - 1) == 0]  # the others are too close
    by_batch(axes, named, "dense bf16 = 1", "eight layers of 8B and 70B models")
    axes.legend(fontsize=6.5, frameon=False)


def limits(axes: plt.Axes, cases: list[dict[str, Any]]) -> None:
    """The time of a large layer by batch, beside that of moving its bytes."""
    some = [case for case in cases if (case["m"], case["k"]) == (28672, 8192)]
    some = [case for case in some if case["n"] <= 128]
    batches = [case["n"] for case in some]
    for what in ("2:4 int4 x fp8", "2:4 int4 x bf16", "2:4 fp8"):
        colour, mark = LAYERS[what]
        times = [case["us"][what] for case in some]
        axes.plot(batches, times, color=colour, marker=mark, ms=4, label=what)
    least = [28672 * 8192 * 3.125 / 8 / 4.8e6 for _ in batches]
    axes.plot(batches, least, color="black", ls="--", lw=1, label="bytes at 4.8 TB/s")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch")
    axes.set_ylabel("microseconds")
    axes.set_title("28672 x 8192", loc="left", fontsize=10)
    axes.legend(fontsize=6.5, frameon=False)


def integers(name: str) -> None:
    """Layers of 4-bit weights beside others."""
    cases = json.loads(INTEGERS.read_text(encoding="utf-8"))["cases"]
    _, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.3), width_ratios=(5, 4))
    gains(left, cases)
    limits(right, cases)
    save(name)


# Who takes part in benchmarks/peers, their colours and marks.
CONTENDERS = {
    "fragmenta": ("#0072b2", "o"),
    "fragmenta, watched": ("#d55e00", "D"),
    "Triton's interpreter": ("#7f7f7f", "s"),
    "numba's simulator": ("#cc79a7", "v"),
}
LABELS = {"blocks": "blocks", "k": "k", "warps": "warps of a block"}


def grown(axes: plt.Axes, axis: str) -> None:
    """CPU time along an axis; asynchronous kernels have broken lines."""
    rows = json.loads(PEERS.read_text(encoding="utf-8"))["growth"]
    for row in (each for each in rows if each["axis"] == axis):
        colour, mark = CONTENDERS[row["tool"]]
        mapped = row["case"] == "matmul_by_maps"
        label = None if mapped else row["tool"]
        look = {"color": colour, "marker": mark, "ms": 4, "label": label}
        line = "--" if mapped else "-"
        axes.plot(row["at"], [1e3 * each for each in row["cpu"]], line, **look)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(LABELS[axis])
    axes.set_ylabel("CPU time, ms")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6.5, frameon=False)


def cores(axes: plt.Axes, rows: list[dict[str, Any]]) -> None:
    """How many times as fast a launch is on several cores."""
    most = 1
    for row in rows:
        colour, mark = CONTENDERS[row["tool"]]
        mapped = row["case"] == "matmul_by_maps"
        what = "tensor maps, wgmma" if mapped else "mma"
        label = f"{what}{', watched' if 'watched' in row['tool'] else ''}"
        speed = [row["wall"][0] / each for each in row["wall"]]
        look = {"color": colour, "marker": mark, "ms": 4, "label": label}
        axes.plot(row["at"], speed, "--" if mapped else "-", **look)
        most = max(most, *row["at"])
    axes.plot([1, most], [1, most], color="black", linewidth=0.8)
    axes.set_xlabel("cores")
    axes.set_ylabel("times as fast as one core")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6.5, frameon=False)


def shown() -> str:
    """A checksum of the numbers that the picture of growth shows."""
    files = [each for each in (PEERS, CORES) if each.exists()]
    numbers = [json.loads(each.read_text(encoding="utf-8"))["growth"] for each in files]
    return f"growth {zlib.crc32(json.dumps(numbers).encode()):08x}"


def growth(name: str) -> None:
    """How the cost of a launch grows with blocks, k and warps, and with cores."""
    file = CORES if CORES.exists() else PEERS
    every = json.loads(file.read_text(encoding="utf-8"))["growth"]
    rows = [each for each in every if each["axis"] == "cores"]
    _, parts = plt.subplots(2, 2, figsize=(8.4, 6))
    for axes, axis in zip(parts.flat, LABELS, strict=False):
        grown(axes, axis)
    if rows:
        cores(parts[1, 1], rows)
    else:
        parts[1, 1].set_axis_off()
    save(name, shown())


PLOTS = {
    "growth": growth,
    "positive": numerics,
    "signed": numerics,
    "kernels": kernels,
    "quantization": quantization,
    "model": model,
    "int4": integers,
}


def main() -> None:
    """Draw the plots that are named, or all."""
    style()
    every = [name for name in PLOTS if name != "model" or MODEL.exists()]
    for name in sys.argv[1:] or every:
        PLOTS[name](name)


if __name__ == "__main__":
    main()
