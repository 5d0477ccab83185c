"""Notes that a user should read before using an instruction.

The notes are about deprecations, and about what the manual or the assembler warns of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction

_FOUR_BIT = ("s4", "u4")

#: When a note applies, and the note.
NOTES: tuple[tuple[Callable[[Instruction], bool], str], ...] = (
    (
        lambda op: op.values.get("sp") == "sp",
        (
            "ptxas advises .sp::ordered_metadata (PTX 8.5) in place of .sp, which may "
            "be much slower on future architectures."
        ),
    ),
    (
        lambda op: op.values.get("a") in _FOUR_BIT,
        (
            "The CUDA programming guide deprecates 4-bit integers from sm_90 on; the "
            "assembler still accepts them on every target and expands them to 8 bits."
        ),
    ),
    (
        lambda op: op.values.get("type") in _FOUR_BIT,
        "The CUDA programming guide deprecates 4-bit integers from sm_90 on.",
    ),
    (
        lambda op: op.values.get("bitop") == "xor.popc",
        (
            "The CUDA programming guide deprecates .xor on bits from sm_90 on; the "
            "assembler still accepts it and computes it from .and."
        ),
    ),
    (
        lambda op: (
            op.unit == "mma"
            and op.values["shape"] == "m8n8k4"
            and op.values["a"] == "f16"
        ),
        (
            "Made for sm_70: from sm_80 on it runs as scalar arithmetic. That is slow, "
            "and the result is rounded as scalar arithmetic rounds."
        ),
    ),
    (
        lambda op: op.unit == "mma" and op.values["a"] == "f64" and op.shape.m == 16,
        "A kernel that uses it needs at least 64 registers per thread.",
    ),
    (
        lambda op: op.unit == "wmma",
        (
            "The manual does not specify the fragment's layout; the one given here "
            "was observed on sm_90 and may differ elsewhere."
        ),
    ),
    (
        lambda op: (
            op.unit == "mma"
            and op.kind == "f8f6f4"
            and "sm_100a" in op.requires.targets
        ),
        (
            "The manual lists sm_120a only; the assembler also takes 8-bit types on "
            "the targets named here."
        ),
    ),
    (
        lambda op: op.kind == "f8f6f4" and op.values.get("shape") == "m16n8k16",
        "Not in the manual; accepted by the assembler.",
    ),
    (
        lambda op: op.warpgroup,
        (
            "Asynchronous: it needs wgmma.fence before it, and wgmma.commit_group and "
            "wgmma.wait_group after it, before D is read or A's registers are written."
        ),
    ),
    (
        lambda op: op.tensor_memory,
        (
            "Asynchronous, and issued by one thread: D may be read after tcgen05.commit, "
            "when its mbarrier has completed, and tcgen05.fence::after_thread_sync."
        ),
    ),
    (
        lambda op: op.unit == "tcgen05" and op.loads,
        "Asynchronous: its registers may be read after tcgen05.wait::ld.",
    ),
    (
        lambda op: op.unit == "tcgen05" and op.stores,
        "Asynchronous: what it stores is there after tcgen05.wait::st.",
    ),
    (
        lambda op: op.moves == "copy",
        "Asynchronous, and issued by one thread: tcgen05.commit tells when it is done.",
    ),
    (
        lambda op: bool(op.values.get("exclusive")),
        (
            "The manual lists .exclusive for sm_107f only; ptxas 13.4 takes it on every "
            "target with tensor memory. What hardware before sm_107 does is not known."
        ),
    ),
    (
        lambda op: (
            op.tensor_memory and op.values.get("scale_vec", "").startswith("scale_vec")
        ),
        (
            "The manual lists .scale_vec for sm_100a only; the assembler also takes it on "
            "the other targets named here."
        ),
    ),
    (
        lambda op: (
            op.tensor_memory
            and op.kind in ("mxf8f6f4", "mxf4")
            and not op.values["scale_vec"]
        ),
        "ptxas 12.9 and 13.0 need PTX 8.8 for it: they read it as .block32.",
    ),
)


def notes(op: Instruction) -> tuple[str, ...]:
    """The notes that apply to an instruction.

    >>> import fragmenta as fm
    >>> notes(fm.mma("m16n8k16", a="f16", d="f32"))
    ()
    """
    does = (op.row.facts["does"],) if "does" in op.row.facts else ()
    return (*does, *(text for applies, text in NOTES if applies(op)))
