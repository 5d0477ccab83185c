"""The surfaces, in the order in which they are run and reported."""

from __future__ import annotations

from tests.fuzz import (
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
