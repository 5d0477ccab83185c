"""Forms of PTX 9.2 to 9.4 that exist, and that are neither checked nor run here.

Their opcodes are in the table of opcodes, with older forms.  Without this list a check
would say that PTX has no such modifier, and a launch might ignore the modifier.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from fragmenta.errors import one_of
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import expand

# ``has``: the instruction has one word of each group; ``*`` stands for the
# rest of a word.  What is on a target since a later version than 9.4 has that of the
# target.  Tests give the example to ptxas, for all targets and versions.
TABLE = """
opcode   | has                                         | ptx | targets         | example
cvt      | ue5m3x2                                     | 9.4 | sm_107a sm_107f | cvt.rn.satfinite.ue5m3x2.f32 %h1, %f1, %f2;
cvt      | scaled::n2::ue8m0                           | 9.2 | 100a/f 110a/f 120a/f | cvt.rn.scaled::n2::ue8m0.bf16x2.e4m3x2 %r1, %h1, %h2;
cvt      | pzo                                         | 9.4 | sm_107a sm_107f | cvt.rn.pzo.f16x2.f32 %r1, %f1, %f2;
cvt      | rz; e4m3x2 e5m2x2 e2m3x2 e3m2x2 e2m1x2      | 9.4 | sm_107a sm_107f | cvt.rz.satfinite.e4m3x2.f32 %h1, %f1, %f2;
add      | e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4          | 9.4 | sm_100a sm_103a | add.rn.satfinite.e5m2x4.e4m3x4 %r1, %r2, %r3;
sub      | e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4          | 9.4 | sm_100a sm_103a | sub.rn.satfinite.e5m2x4.e4m3x4 %r1, %r2, %r3;
mul      | e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4          | 9.4 | sm_100a sm_103a | mul.rn.satfinite.e4m3x4.e4m3x4.e4m3x4 %r1, %r2, %r3;
fma      | e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4          | 9.4 | sm_100a sm_103a | fma.rn.satfinite.e4m3x4.e4m3x4.e5m2x4 %r1, %r2, %r3, %r4;
set      | s8x4 u8x4 s16x2 u16x2                       | 9.4 | sm_107a sm_107f | set.lt.s8x4 %r1, %r2, %r3;
mbarrier | phase_type::*                               | 9.3 | sm_90+          | mbarrier.test_wait.phase_type::primary.shared.b64 %p1, [bar], %rd1;
mbarrier | layout::*                                   | 9.3 | sm_90+          | mbarrier.init.layout::v1.shared.b64 [bar], 1;
mbarrier | multicast::cluster::*                       | 9.4 | sm_107a sm_107f | mbarrier.arrive.multicast::cluster::32b.shared::cluster.b64 _, [bar], %r1;
cp       | mbarrier::report::*                         | 9.4 | sm_107a sm_107f | cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes.mbarrier::report::disabled [s], [%rd1, {%r1}], [bar];
cp       | im2col_no_offs::w                           | 9.4 | sm_107a sm_107f | cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs::w.bulk_group [%rd1, {%r1, %r2, %r3}], [s];
cp       | override::*                                 | 9.4 | sm_107a sm_107f | cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes.override::global_address [s], [%rd1, %rd2, {%r1}], [bar];
applypriority | async                                  | 9.4 | sm_107a sm_107f | applypriority.async.bulk.global.L2::evict_normal.bulk_group [%rd1], %r1;
applypriority | async                                  | 9.4 | sm_107a sm_107f | applypriority.async.bulk.tensor.1d.global.tile.L2::evict_normal.bulk_group [%rd1, {%r1}];
atom     | noftz; f32                                  | 9.4 | sm_90+          | atom.global.add.noftz.f32 %f1, [%rd1], %f2;
red      | noftz; f32                                  | 9.4 | sm_90+          | red.global.add.noftz.f32 [%rd1], %f2;
"""


class Newer(NamedTuple):
    """A form that exists and is not covered."""

    opcode: str
    groups: tuple[tuple[str, ...], ...]
    ptx: str
    targets: str
    example: str

    def word(self, words: list[str]) -> str:
        """The first of the words that makes the form; nothing if it is another."""
        found = [_first(group, words) for group in self.groups]
        return found[-1] if all(found) else ""


def _first(group: tuple[str, ...], words: list[str]) -> str:
    for word in words:
        for each in group:
            if word == each or (each.endswith("*") and word.startswith(each[:-1])):
                return word
    return ""


LINES = tuple(
    Newer(
        line["opcode"],
        tuple(tuple(group.split()) for group in line["has"].split(";")),
        line["ptx"],
        line["targets"],
        line["example"],
    )
    for line in read(TABLE)
)


@cache
def not_covered(mnemonic: str) -> str:
    """The message for an instruction of a newer form; empty for others.

    >>> print(not_covered("cvt.rn.satfinite.ue5m3x2.f32"))
    cvt with .ue5m3x2 exists since PTX 9.4, on sm_107a and sm_107f; it is not covered here
    >>> not_covered("cvt.rn.satfinite.e4m3x2.f32")
    ''
    """
    opcode, *words = mnemonic.split(".")
    for line in LINES:
        word = line.word(words) if line.opcode == opcode else ""
        if word:
            text = line.targets
            later = text.endswith("+")
            where = f"{text[:-1]} and later" if later else one_of(expand(text), "and")
            return (
                f"{opcode} with .{word} exists since PTX {line.ptx}, on {where}; it is "
                "not covered here"
            )
    return ""
