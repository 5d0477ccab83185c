"""Draw the plots of the page about numerics; run after the arithmetic changes.

    python docs/plots/make.py

Needs matplotlib.  Every point is computed with ``fragmenta.execution.matmul``.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import fragmenta as fm

HERE = Path(__file__).resolve().parent
LENGTHS = [2**n for n in range(5, 15)]

# Colours that stay apart for the colour-blind, and a mark for each.
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
        found = fm.matmul(a, b, op, target=target).astype(np.float64)
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


def save(name: str) -> None:
    """Write one plot, the same bytes every time."""
    plt.tight_layout()
    plt.savefig(HERE / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close()


def main() -> None:
    """Draw both plots."""
    style()
    for name, signed, what in (
        ("positive", False, "terms of one sign"),
        ("signed", True, "terms of both signs"),
    ):
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


if __name__ == "__main__":
    main()
