"""The surfaces, in the order in which they are run and reported."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz import (
    binaries,
    commands,
    descriptors,
    execution,
    files,
    packing,
    parser,
    ptx_texts,
    sparsity,
    wrong_types,
)
from tests.fuzz.engine import Surface

SURFACES: dict[str, Surface] = {
    module.SURFACE.name: module.SURFACE
    for module in (
        parser,
        packing,
        sparsity,
        execution,
        descriptors,
        files,
        commands,
        wrong_types,
        ptx_texts,
    )
}
_FILES = SURFACES["files"]
SURFACES["files"] = replace(_FILES, games={**_FILES.games, **binaries.GAMES})
