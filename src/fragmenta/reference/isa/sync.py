"""``sync``: the instructions that order ``wgmma`` in a kernel.

``wgmma`` runs asynchronously and reads shared memory through the async proxy.  So a
kernel needs these four instructions to order it.  They have no matrices.
"""

from __future__ import annotations

from fragmenta.reference.isa.instruction import Instruction, Operand, Parts
from fragmenta.reference.isa.table import Form, Row, read
from fragmenta.reference.isa.target import Version

NAME = "sync"

# ``operand`` is an integer constant.
TABLE = """
instruction                     | operand | ptx | targets | does
wgmma.fence.sync.aligned        |         | 8.0 | sm_90a  | Before the first wgmma, and before each wgmma whose registers of D or A were written by other instructions: orders those accesses before it.
wgmma.commit_group.sync.aligned |         | 8.0 | sm_90a  | After one or more wgmma: puts all wgmma that are not in a group yet into one group.
wgmma.wait_group.sync.aligned   | N       | 8.0 | sm_90a  | Before D is read, or A's registers are written: waits until at most the N newest groups are still running.
fence.proxy.async.{space}       |         | 8.0 | sm_90+  | After shared memory was written with ordinary stores, and before a barrier: makes it visible to wgmma, which reads through the async proxy.
"""
SPACES = ("", "global", "shared::cta", "shared::cluster")


def operands(op: Instruction) -> tuple[Operand, ...]:
    """N of ``wait_group``; the others have no operands."""
    name = op.row.facts["operand"]
    return (Operand(name, "integer", vector=False),) if name else ()


def parts(op: Instruction) -> Parts:
    """No operand is a matrix in registers."""
    return {}


def _form(line: dict[str, str]) -> Form:
    spelling = line["instruction"]
    fields = {"space": SPACES} if "{space}" in spelling else {}
    facts = {"operand": line["operand"], "does": line["does"]}
    row = Row(fields, Version.parse(line["ptx"]), line["targets"], facts=facts)
    return Form(NAME, (spelling,), (row,), operands, parts)


FORMS = tuple(_form(line) for line in read(TABLE))
