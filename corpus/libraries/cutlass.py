"""CUTLASS: GEMMs of ours around its headers, for Hopper and for Ampere.

``programs/`` has the sources; nvcc compiles them with the headers of the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import fragmenta as fm
from corpus import host
from corpus.registry import case
from corpus.trial import TF32, TOLERANCES, Trial
from fragmenta import ptx
from fragmenta.reference.sparse import exchange

HALF, SINGLE = TOLERANCES[torch.float16], TOLERANCES[torch.float32]


def launch(
    trial: Trial, name: str, kind: int, sizes: tuple[int, int, int], *arrays: Any
) -> None:
    """Launch a GEMM of a program twice; each has a name of its own."""
    program = name.partition("_")[0]
    text = host.text(program, kind).replace("cutlass_gemm", name)
    kernel = ptx.parse(text, name).kernels[name]
    made = host.prepared(program, kind, *sizes)
    trial.call(
        lambda: kernel.launch(
            made.grid,
            made.block,
            [made.parameter(list(arrays))],
            cluster=made.cluster,
            shared=made.shared,
            target="sm_90a",
        )
    )


def _matrix(trial: Trial, rows: int, columns: int, dtype: Any) -> Any:
    if np.issubdtype(dtype, np.integer):
        return trial.whole(rows, columns, low=-9, high=9).numpy().astype(dtype)
    return trial.floats(rows, columns).numpy().astype(dtype)


def _product(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    """The result in double precision; B is stored by columns."""
    wide = alpha * (a.astype(float) @ b.astype(float).T)
    return wide + beta * c.astype(float)


def _hopper(
    trial: Trial, name: str, kind: int, dtype: Any, sizes: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    a, b = _matrix(trial, m, k, dtype), _matrix(trial, n, k, dtype)
    c, d = _matrix(trial, m, n, np.float16), np.zeros((m, n), np.float16)
    launch(trial, name, kind, sizes, a, b, c, d)
    trial.judge(d, _product(a, b, c, 1.5, -0.5), HALF)


@case(programs=[("hopper", 0)])
def hopper_warp_specialised(trial: Trial) -> None:
    _hopper(trial, "hopper_warp_specialised", 0, np.float16, (192, 256, 192))


@case(programs=[("hopper", 3)])
def hopper_row_bias_relu(trial: Trial) -> None:
    sizes = m, n, k = 256, 128, 192
    a, b = _matrix(trial, m, k, np.float16), _matrix(trial, n, k, np.float16)
    c, d = _matrix(trial, m, n, np.float16), np.zeros((m, n), np.float16)
    bias = trial.floats(m).numpy()
    launch(trial, "hopper_row_bias_relu", 3, sizes, a, b, c, d, bias)
    want = _product(a, b, c, 1.5, -0.5) + bias[:, None].astype(float)
    trial.judge(d, np.maximum(want, 0), HALF)


def _ampere(
    trial: Trial, name: str, kind: int, dtype: Any, out: Any, tolerance: float | None
) -> None:
    sizes = m, n, k = 128, 192, 160
    a, b = _matrix(trial, m, k, dtype), _matrix(trial, n, k, dtype)
    c, d = _matrix(trial, m, n, out), np.zeros((m, n), out)
    launch(trial, name, kind, sizes, a, b, c, d)
    trial.judge(d, _product(a, b, c, 3, -2), tolerance)


@case(programs=[("ampere", 0)])
def ampere_half(trial: Trial) -> None:
    _ampere(trial, "ampere_half", 0, np.float16, np.float32, SINGLE)


@case(programs=[("ampere", 1)])
def ampere_tf32(trial: Trial) -> None:
    _ampere(trial, "ampere_tf32", 1, np.float32, np.float32, TF32)


@case(programs=[("ampere", 2)])
def ampere_integers(trial: Trial) -> None:
    _ampere(trial, "ampere_integers", 2, np.int8, np.int32, None)


@case(programs=[("ampere", 3)])
def ampere_double(trial: Trial) -> None:
    _ampere(trial, "ampere_double", 3, np.float64, np.float64, None)


@case(programs=[("ampere", 4)])
def ampere_sparse(trial: Trial) -> None:
    sizes = m, n, k = 128, 192, 128
    op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    a = fm.sparse.prune(op, _matrix(trial, m, k, np.float16))
    stored, meta = exchange.to_torch(op, fm.sparse.compress(op, a))
    b = _matrix(trial, n, k, np.float16)
    c, d = _matrix(trial, m, n, np.float32), np.zeros((m, n), np.float32)
    launch(trial, "ampere_sparse", 4, sizes, stored, b, c, d, np.asarray(meta))
    trial.judge(d, _product(a, b, c, 3, -2), SINGLE)
