"""Copies in machine code: the records that they need, one set for each plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.planes.code.copy_port import COPY
from fragmenta.engine.planes.code.routines import QUIET
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.fast.tasks import MOVE
from fragmenta.ptx.module import Module

if TYPE_CHECKING:
    from fragmenta.engine.planes.shadows import Shadow


@once
def _loaded() -> LoadedRoutines:
    return LoadedRoutines([COPY, MOVE, QUIET])


def copy_functions(module: Module) -> dict[int, int]:
    """What an observer has in machine code, so that copies do not need Python.

    Copies that combine with what memory holds do: then there is nothing.
    """
    combine = any(
        each.is_copy and "reduce" in each.qualifiers
        for function in module.functions.values()
        for each in function.instructions
    )
    if combine:
        return {}
    code = _loaded()
    quiet = (fast.PORT_COPIED, fast.PORT_SIGNAL, fast.PORT_GROUP, fast.PORT_LANES)
    found = dict.fromkeys(quiet, code.address(QUIET))
    return {**found, fast.PORT_COPY: code.address(COPY)}


def attach(planes: Sequence[Sequence[Shadow]]) -> list[NDArray[np.uint8]]:
    """Let copies find the memories of each plane; the records that keep them alive."""
    kept = []
    for shadows in planes:
        cluster = aligned(fast.CLUSTER_BYTES)
        peers = cluster.view(np.int64)[fast.CLUSTER_PEERS // 8 :]
        for rank, shadow in enumerate(shadows):
            state = aligned(fast.STATE_BYTES)
            longs = state.view(np.int64)
            longs[fast.STATE_SHARED // 8] = address_of(shadow.shared)
            longs[fast.STATE_SHARED_SIZE // 8] = shadow.shared.size
            peers[rank] = address_of(state)
            shadow.point(at.CLUSTER, address_of(cluster))
            shadow.point(at.PLANES, len(planes))
            kept.append(state)
        kept.append(cluster)
    return kept
