"""How certain the statements about ``tcgen05`` and the newest instructions are.

No GPU with tensor memory has checked any of it, and no sm_107.  Each statement rests on the
assembler, on the manual, on several independent programs that agree, or on a single
source.  What no source settles is open, and is refused where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fragmenta.reference.isa.table import read

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction

#: What each word of the column "how sure" means.
WORDS = {
    "assembler": "ptxas 13.0 and 13.5 say so, and tests ask them",
    "agreed": "the manual and independent programs, or several programs, agree",
    "manual": "the PTX manual says so",
    "one source": "a single program or text says so",
    "published": "MMA-Sim, a published model, says so, and tests compare with it",
    "assumed": "as on other hardware; no source says so",
    "open": "no source settles it; it is refused",
}

# ``of`` names the layouts (A to G), the groups or the kinds that a line is about; an
# empty cell is about all.  The first line that fits counts.
TABLE = """
what       | of      | how sure   | because
spelling   |         | assembler  | every spelling, version and target, and near misses
order      |         | assembler  | which words may stand in another order
descriptor |         | agreed     | the manual and five programs have the same fields and codes
shape      | k96     | one source | the manual has K = 96 for a pair with M = 256; CUTLASS and TVM have it for one CTA, too
shape      |         | manual     | tables 39 (PTX 9.1) and 42 (PTX 9.3); of N, what all sources allow
D          | s8.s4   | agreed     | an H200, which tests replay, vLLM's and Humming's probes, and a simulator: rows of 8 bytes, low nibbles first
D          |         | agreed     | the manual's text and five programs, two of which were run on a B200
A          | E G     | one source | a simulator repeats A for each part of N
A          |         | agreed     | CUTLASS, two simulators and reports from users
scale_A    | k96     | one source | the manual's tables contradict its figures; ids are limited to 0 and 2
scale_A    |         | agreed     | CUTLASS, JAX, Triton and a simulator
scale_B    | k96     | one source | the manual's tables contradict its figures; ids are limited to 0 and 2
scale_B    | B       | agreed     | CUTLASS, a simulator and the code of JAX; the text of JAX says otherwise
scale_B    |         | agreed     | CUTLASS, JAX, Triton and a simulator
metadata   | E G     | one source | CUTLASS repeats it for each part of N
metadata   | C F     | open       | only figures of the manual show it
metadata   |         | agreed     | CUTLASS, JAX and a simulator
ld         | spcompress | manual  | as spcompress of f32; no sm_107 has run it, and which of equal elements remains is refused
ld         | red     | assumed    | as max and redux: NaN counts only with .NaN; results that depend on more are refused
ld         |         | agreed     | the manual and all 74 of CuTe's copies
st         |         | agreed     | the manual and all 74 of CuTe's copies
reach      |         | one source | DeepGEMM: ld and st ignore the bits of the lane that are the warp's, so lane 0 is its own quarter's; learn-cuda: those from 128 on, too
cp         | 2       | one source | each CTA copies from its own shared memory, as DeepGEMM needs it; no text says so
cp         |         | agreed     | CUTLASS, TVM (run on a B200) and a simulator
shift      |         | open       | the manual does not pin down the direction
swizzle    |         | agreed     | the manual, CUTLASS, CuTe's Python compiler, TVM and PTX.jl
masks      | 2       | one source | a simulator: the second four words are those of the odd CTA
masks      |         | manual     | bit b of word w is lane 32 w + b
elements   | spcompress   | agreed | the manual's text and example, and two simulators; no sm_107 has run it, and which of equal elements remains is refused
elements   | spdecompress | agreed | the manual's text and example, and two simulators; no sm_107 has run it
"""


class Certainty(NamedTuple):
    """How certain one statement is, and why."""

    word: str
    because: str

    def __str__(self) -> str:
        return f"{self.word}: {self.because}"


def certainty(what: str, *of: str) -> Certainty:
    """How certain a statement is, in the case of these words.

    >>> print(certainty("metadata", "F"))
    open: only figures of the manual show it
    """
    for line in read(TABLE):
        cases = line["of"].split()
        if line["what"] == what and (not cases or set(cases) & set(of)):
            return Certainty(line["how sure"], line["because"])
    raise KeyError(what)


def _form_of_load(op: Instruction) -> str:
    """What a load does besides; ``.spcompress`` has the word of a reduction, too."""
    if ".spcompress" in op.mnemonic:
        return "spcompress"
    return "red" if op.values.get("red") else ""


def of_instruction(op: Instruction) -> Mapping[str, Certainty]:
    """How certain each part of an instruction is; empty where a GPU was measured.

    >>> import fragmenta as fm
    >>> print(fm.find("spcompress.b8.b4.x1").certainty["elements"].word)
    agreed
    """
    found = {"spelling": certainty("spelling")}
    if op.unit == "sparsity":
        return MappingProxyType(found | {"elements": certainty("elements", op.family)})
    if op.values.get("type") == "s8.s4":
        return MappingProxyType(found | {"D": certainty("D", "s8.s4")})
    if op.unit != "tcgen05":
        return MappingProxyType({})
    group = str(op.cta_group or "")
    name = op.family.removeprefix("tcgen05").removeprefix(".") or op.mnemonic
    for move in ("ld", "st", "cp"):
        if name == move:
            found[move] = certainty(move, group, _form_of_load(op))
    if op.mnemonic.startswith("tcgen05.shift"):
        found["shift"] = certainty("shift")
    if op.idesc is not None:
        wide = "k96" if op.shape.k == 96 else ""
        found["descriptor"] = certainty("descriptor")
        for part in ("shape", *op.fragments):
            found[part] = certainty(part, op.layout_letter, wide)
    return MappingProxyType(found)
