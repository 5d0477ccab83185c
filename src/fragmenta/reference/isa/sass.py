"""SASS: the machine instructions of a PTX instruction, and the way back.

Disassemblers and profilers print SASS, the instructions of the machine:
``HMMA.16816.F32``.  :mod:`fragmenta.reference.isa.sass_records` has what ptxas wrote for every
instruction; here it is looked up in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import UnknownInstruction, one_of, shortened
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.isa.sass_records import Code, ranges, recorded
from fragmenta.reference.isa.target import (
    check_target,
    chosen_target,
    number,
)

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction


@dataclass(frozen=True)
class Sass:
    """What the assembler writes for an instruction on one target.

    >>> import fragmenta as fm
    >>> code = fm.mma("m16n8k64", a="s4").sass("sm_90")
    >>> print(code)
    IMMA.16832.S8.S8 x 2, and 178 others; expanded to s8/u8
    >>> code.names, code.others, code.toolkit
    (('IMMA.16832.S8.S8',), 178, '13.5')
    """

    target: str
    code: Code
    """The machine instructions that do the work, each with its number."""
    others: int
    """How many more there are that compute or move data; moves of registers, loads of
    constants and control are not counted."""
    expanded: str | None
    """What the instruction is expanded to, if the target does not have it."""
    ptxas: str
    """The version of the assembler, such as 13.4.92."""
    nvdisasm: str
    """The version of the disassembler."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the machine instructions that do the work."""
        return tuple(name for name, _ in self.code)

    @property
    def alone(self) -> bool:
        """Whether the instruction is one machine instruction and nothing else.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").sass("sm_80").alone
        True
        """
        return self.expanded is None and not self.others and _total(self.code) == 1

    @property
    def toolkit(self) -> str:
        """The version of the CUDA toolkit that the assembler is from."""
        return ".".join(self.ptxas.split(".")[:2])

    def __str__(self) -> str:
        text = code_text(self.code, self.others)
        return text + (f"; expanded to {self.expanded}" if self.expanded else "")

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON.

        >>> import fragmenta as fm
        >>> fm.find("movmatrix").sass("sm_90").to_dict()["code"]
        {'MOVM.16.MT88': 1}
        """
        return {
            "code": dict(self.code),
            "others": self.others,
            "expanded": self.expanded,
            "ptxas": self.ptxas,
            "nvdisasm": self.nvdisasm,
        }


@dataclass(frozen=True, repr=False)
class Origin:
    """An instruction of PTX from which a machine instruction comes.

    >>> import fragmenta as fm
    >>> first = fm.from_sass("HMMA.16816.F32.BF16")[0]
    >>> print(first.instruction)
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    >>> first.name, first.targets[:2], first.alone
    ('HMMA.16816.F32.BF16', ('sm_80', 'sm_86'), True)
    >>> fm.from_sass("IMMA.16864.S4.S4")[0]
    <IMMA.16864.S4.S4 is mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 on sm_80..89>
    """

    name: str
    """The machine instruction."""
    instruction: Instruction
    targets: tuple[str, ...]
    """The targets on which the assembler writes it so."""
    alone: bool
    """Whether it is all that the assembler writes, not a part of a sequence."""

    def __repr__(self) -> str:
        part = "is" if self.alone else "is part of"
        where = targets_text(self.targets)
        return f"<{self.name} {part} {self.instruction} on {where}>"


def code_text(code: Code, others: int) -> str:
    """A sequence in words.

    >>> code_text((("HMMA.16816.F32", 2),), 4)
    'HMMA.16816.F32 x 2, and 4 others'
    >>> code_text((), 0)
    'no instruction of its own'
    """
    parts = [name if count == 1 else f"{name} x {count}" for name, count in code]
    if others:
        more = f"{others} other{'s' * (others > 1)}"
        parts.append(f"and {more}" if parts else f"{more} only")
    return ", ".join(parts) or "no instruction of its own"


def _total(code: Code) -> int:
    return sum(count for _, count in code)


# ── from an instruction ─────────────────────────────────────────────────────


def sass(op: Instruction, target: str | None = None) -> Sass:
    """The machine instructions that the assembler writes for an instruction.

    The default target is sm_90a, or else the first that has the instruction.

    >>> import fragmenta as fm
    >>> print(sass(fm.wgmma("m64n256k16", a="bf16")))
    HGMMA.64x256x16.F32.BF16
    >>> print(sass(fm.find("wmma.mma.row.col.m16n16k16.f32.f16"), "sm_80"))
    HMMA.16816.F32 x 2, and 8 others
    """
    chosen = chosen_target(op, target)
    recording = recorded()
    arch = number(chosen)
    code, others = recording.on(op.mnemonic, arch)
    return Sass(chosen, code, others, op.expanded_to(chosen), *recording.tools[arch])


def by_architecture(op: Instruction) -> list[tuple[str, Sass]]:
    """What the assembler writes everywhere, alike targets together.

    >>> import fragmenta as fm
    >>> for targets, code in by_architecture(fm.mma("m16n8k32", a="s4")):
    ...     print(f"{targets}: {code}")
    sm_80..89: IMMA.16832.S4.S4
    sm_90..121: IMMA.16816.S8.S8 x 2, and 91 others; expanded to s8/u8
    """
    found: dict[str, tuple[list[str], Sass]] = {}
    for targets in _by_number(op.requires.targets).values():
        code = sass(op, targets[0])
        found.setdefault(str(code), ([], code))[0].extend(targets)
    return [(targets_text(targets), code) for targets, code in found.values()]


def targets_text(targets: Iterable[str]) -> str:
    """Targets in short: with any suffix, or with those that are named.

    >>> targets_text(["sm_80", "sm_86", "sm_90", "sm_90a"]), targets_text(["sm_90a"])
    ('sm_80..86,90', 'sm_90a')
    >>> targets_text(["sm_100a", "sm_100f", "sm_103a", "sm_103f"])
    'sm_100a/f..103a/f'
    """
    groups: dict[str, list[int]] = {}
    for arch, some in _by_number(targets).items():
        suffixes = [target.removeprefix(f"sm_{arch}") for target in some]
        groups.setdefault("" if "" in suffixes else "/".join(suffixes), []).append(arch)
    return ", ".join(
        "sm_" + re.sub(r"\d+", rf"\g<0>{suffix}", ranges(archs))
        for suffix, archs in groups.items()
    )


def _by_number(targets: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for target in targets:
        found.setdefault(number(target), []).append(target)
    return found


# ── from a name ─────────────────────────────────────────────────────────────


def from_sass(text: str, target: str | None = None) -> tuple[Origin, ...]:
    """The instructions of PTX that become a machine instruction.

    It is named in full, or by the beginning of its name (``HMMA.16816``), or by some
    of its words in their order (``HMMA.BF16``), in any case.  A line that a
    disassembler or a profiler prints is read, too: its address, predicate and operands
    are left out.  Instructions that are this machine instruction and nothing else come
    first.  With ``target``, only what is written for it counts.

    >>> line = "/*0090*/  @P0 HMMA.16816.F32 R4, R8.reuse, R12, R4 ;"
    >>> print(from_sass(line, "sm_90")[0].instruction)
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    >>> from_sass("HMMA.16818.F32")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnknownInstruction: no machine instruction HMMA.16818.F32 is \
recorded; the nearest are HMMA.1688.F32, HMMA.16816.F32 and HMMA.SP.16816.F32
    """
    if target is not None:
        target = check_target(target)
    name = machine_name(text)
    found = [
        origin
        for each in names(name)
        for origin in _origins(each)
        if target is None or target in origin.targets
    ]
    if not found:
        have = dict.fromkeys(
            t for n in names(name) for o in _origins(n) for t in o.targets
        )
        raise UnknownInstruction(
            f"ptxas writes no {name} for {target}; it does for {targets_text(have)}"
        )
    if target is not None:
        found = [Origin(o.name, o.instruction, (target,), o.alone) for o in found]
    return tuple(sorted(found, key=lambda origin: not origin.alone))


def written_as(text: str) -> list[Instruction]:
    """The instructions that are one machine instruction of exactly this name.

    >>> [str(op) for op in written_as("LDTM.16dp128bit.x2")]
    ['tcgen05.ld.sync.aligned.16x128b.x2.b32']
    >>> written_as("HMMA.16816")
    []
    """
    name = machine_name(text)
    found = _origins(name) if name in _index() else ()
    return list(dict.fromkeys(each.instruction for each in found if each.alone))


def machine_name(text: str) -> str:
    """The name of the machine instruction in a line of a disassembler.

    >>> machine_name("  17  0x7f00  @!UP1 hmma.16816.f32 R4, R8, R12, R4 ;  /* 0x0 */")
    'HMMA.16816.F32'
    """
    if not isinstance(text, str) or not text.strip() or len(text) > 1000:
        given = shortened(str(text))
        raise UnknownInstruction(
            f"a machine instruction is written as HMMA.16816.F32; given {given}"
        )
    words = re.sub(r"/\*.*?\*/", " ", text).replace(";", " ").split()
    known = [word for word in words if _opcode(word) in opcodes()]
    likely = [word for word in words if re.fullmatch(r"[A-Za-z][\w.]*", word)]
    if len(known) > 1:
        raise UnknownInstruction(
            f"one machine instruction at a time; given {one_of(known[:3], 'and')}"
        )
    found = (known or likely or [text.strip()])[0]
    return _spelled().get(found.lower(), found.upper().rstrip("."))


def is_machine_name(text: str) -> bool:
    """Whether a text names a machine instruction that is recorded, or seems to.

    >>> is_machine_name("HMMA.16818"), is_machine_name("mma.m16n8k16")
    (True, False)
    """
    return any(_opcode(word) in opcodes() for word in text.replace(";", " ").split())


def _opcode(word: str) -> str:
    return word.upper().partition(".")[0]


def names(name: str) -> tuple[str, ...]:
    """The recorded names that a name means: itself, all below it, or all with its words.

    >>> names("HMMA.16816.F32")
    ('HMMA.16816.F32',)
    >>> names("HMMA.SP.16832")
    ('HMMA.SP.16832.F16', 'HMMA.SP.16832.F32', 'HMMA.SP.16832.F32.BF16')
    >>> names("DMMA.RZ")
    ('DMMA.16x8x16.RZ', 'DMMA.16x8x4.RZ', 'DMMA.16x8x8.RZ', 'DMMA.884.RZ', 'DMMA.8x8x4.RZ')
    """
    wanted = name.lower().split(".")
    split = {each: each.lower().split(".") for each in _index()}
    exact = [each for each, words in split.items() if words == wanted]
    below = [each for each, words in split.items() if words[: len(wanted)] == wanted]
    found = exact or below or [each for each, w in split.items() if _among(wanted, w)]
    if found:
        return tuple(sorted(found))
    raise _unknown(name)


def names_below(name: str) -> tuple[str, ...]:
    """The recorded names that begin with all words of a name, and go on.

    >>> names_below("HMMA.16816.F32")
    ('HMMA.16816.F32.BF16',)
    """
    return tuple(sorted(each for each in _index() if each.startswith(f"{name}.")))


def _among(wanted: list[str], words: list[str]) -> bool:
    rest = iter(words)
    return words[0] == wanted[0] and all(word in rest for word in wanted)


def _unknown(name: str) -> UnknownInstruction:
    from difflib import get_close_matches  # imported only when there is an error

    given = name if len(name) <= 60 else shortened(name)
    near = get_close_matches(name, _index(), n=3, cutoff=0.6) if len(name) <= 60 else []
    hint = f"; the nearest are {one_of(near, 'and')}" if near else ""
    first = name.partition(".")[0]
    also = ""
    if first not in opcodes():
        also = f"; the names begin with {one_of(opcodes(), 'and')}"
    return UnknownInstruction(f"no machine instruction {given} is recorded{hint}{also}")


@cache
def opcodes() -> tuple[str, ...]:
    """The first words of the names.

    >>> [name for name in opcodes() if name.endswith("GMMA")]
    ['BGMMA', 'HGMMA', 'IGMMA', 'QGMMA']
    """
    return tuple(sorted({name.partition(".")[0] for name in _index()}))


@cache
def _spelled() -> dict[str, str]:
    """The names as they are written, by their lower case: LDTM.x8, not LDTM.X8."""
    return {name.lower(): name for name in _index()}


@cache
def _index() -> Mapping[str, dict[str, None]]:
    """For each name, the mnemonics whose rows have it."""
    found: dict[str, dict[str, None]] = {}
    for mnemonic, row in recorded().rows.items():
        for _, code, _ in row:
            for name, _ in code:
                found.setdefault(name, {})[mnemonic] = None
    return found


@cache
def _origins(name: str) -> tuple[Origin, ...]:
    found = []
    for mnemonic in _index()[name]:
        op = instruction(mnemonic)
        groups: dict[bool, list[str]] = {}
        for targets in _by_number(op.requires.targets).values():
            code = sass(op, targets[0])
            if name in code.names:
                groups.setdefault(code.alone, []).extend(targets)
        found += [Origin(name, op, tuple(t), alone) for alone, t in groups.items()]
    return tuple(found)
