"""The families of instructions, the catalogue of all, and what is not covered."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from fragmenta.base.arrays.checks import is_among
from fragmenta.errors import BadCall, UnknownInstruction, nearest, one_of
from fragmenta.reference.isa import sync
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import Form, read
from fragmenta.reference.isa.tables import (
    mma,
    mma_sp,
    moves,
    sparse,
    tcgen05,
    tcgen05_mma,
    wgmma,
    wmma,
)
from fragmenta.reference.isa.target import expand

FORMS: tuple[Form, ...] = (
    mma.FORM,
    mma_sp.FORM,
    wmma.MMA_F16,
    wmma.MMA,
    wmma.LOAD,
    wmma.STORE,
    wgmma.DENSE,
    wgmma.SPARSE,
    moves.LDMATRIX,
    moves.STMATRIX,
    moves.MOVMATRIX,
    sparse.SPCOMPRESS,
    sparse.SPDECOMPRESS,
    *tcgen05_mma.FORMS,
    *tcgen05.FORMS,
    *sync.FORMS,
)
FAMILIES = tuple(dict.fromkeys(form.name for form in FORMS))


def _multiplying(where: str) -> tuple[str, ...]:
    found = [form.name for form in FORMS if form.multiplies == where]
    return tuple(dict.fromkeys(found))


IN_REGISTERS = _multiplying("registers")
"""The families that multiply with D in registers."""
IN_TENSOR_MEMORY = _multiplying("tensor memory")
"""The families that multiply with D in tensor memory."""
MULTIPLYING = (*IN_REGISTERS, *IN_TENSOR_MEMORY)
"""The families that multiply matrices; the others move, load or order."""
OF_WARPS = tuple(
    dict.fromkeys(f.name for f in FORMS if f.multiplies and f.unit in ("mma", "wmma"))
)
"""The families that multiply with one warp."""


def catalogue(
    family: str | None = None, *, form: Form | None = None
) -> Iterator[Instruction]:
    """Every instruction, in table order; optionally of one family.

    >>> sum(1 for op in catalogue("movmatrix"))
    1
    """
    if family is not None and not is_among(family, FAMILIES):
        raise UnknownInstruction(
            f"no family {family}{nearest(str(family), FAMILIES)}; there are "
            f"{one_of(FAMILIES, 'and')}"
        )
    if form is not None and not any(form is each for each in FORMS):
        raise UnknownInstruction(f"form is one of the tables' forms; given {form!r}")
    return _combinations(family, FORMS if form is None else (form,))


def _combinations(family: str | None, forms: Iterable[Form]) -> Iterator[Instruction]:
    seen: set[str] = set()
    for each in forms:
        if family is not None and each.name != family:
            continue
        for op in _of_form(each):
            if op.mnemonic not in seen:  # rows may overlap; the first one counts
                seen.add(op.mnemonic)
                yield op


def _of_form(form: Form) -> Iterator[Instruction]:
    """Every combination of each row of a form; rows may overlap."""
    for number in range(len(form.rows)):
        yield from of_row(form, number)


@cache  # all callers share the instructions, and what they cache
def of_row(form: Form, number: int) -> tuple[Instruction, ...]:
    """Every combination of one row of a form."""
    row = form.rows[number]
    return tuple(Instruction(form, row, values) for values in row.combinations())


def check_multiplies(op: Instruction) -> None:
    """Refuse instructions that move or load.

    >>> import fragmenta as fm
    >>> check_multiplies(fm.find("movmatrix"))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: movmatrix.sync.aligned.m8n8.trans.b16 does not multiply; \
mma, mma.sp, wmma.mma, wgmma, wgmma.sp, tcgen05.mma, tcgen05.mma.sp, tcgen05.mma.ws \
and tcgen05.mma.ws.sp do
    """
    if op.tensor_memory:
        op.shape  # noqa: B018 - without a descriptor, this says what is missing
    if not op.multiplies:
        raise BadCall(f"{op} does not multiply; {one_of(MULTIPLYING, 'and')} do")


# ── pickles ─────────────────────────────────────────────────────────────────


def _written(op: Instruction) -> tuple[Any, ...]:
    """A record is pickled by its place in the tables; what extends it, by its name."""
    form = next(i for i, each in enumerate(FORMS) if each is op.form)
    row = next(i for i, each in enumerate(op.form.rows) if each is op.row)
    return _read_back, (form, row, dict(op.values), op.idesc)


def _read_back(
    form: int, row: int, values: Mapping[str, str], idesc: int | None
) -> Instruction:
    return Instruction(FORMS[form], FORMS[form].rows[row], values, idesc)


copyreg.pickle(Instruction, _written)


# What else a kernel with Tensor Cores may need, and which targets have it.
NOT_YET = """
begins    | targets
cp.async  | sm_80+
cp.reduce | sm_90+
mbarrier  | sm_80+
setmaxnreg | sm_90a 100a/f 110a/f 120a/f
"""

# Every other opcode of PTX: it exists, but does not use the Tensor Cores.
OTHERS = """
abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk
bra brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt
cvta discard div dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol
isspacep istypep ld ldu lg2 lop3 mad mad24 madc mapa match max membar min mov mul mul24 multimem
nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt
sad selp set setp shf shfl shl shr sin slct sqrt st stackrestore stacksave sub subc suld
suq sured sust szext tanh tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd
vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4
vshl vshr vsub vsub2 vsub4 xor
"""
_OTHERS = frozenset(OTHERS.split())


def uncovered(words: Sequence[str]) -> str:
    """Why instructions that begin with these words are not here; or nothing.

    >>> print(uncovered(["mbarrier", "init"]))
    mbarrier is not covered yet; sm_80 and later have it
    >>> uncovered(["mma", "sync"])
    ''
    """
    for line in read(NOT_YET):
        begins = line["begins"].split(".")
        if list(words[: len(begins)]) == begins:
            text = line["targets"]
            later = text.endswith("+")
            have = f"{text[:-1]} and later" if later else one_of(expand(text), "and")
            return f"{line['begins']} is not covered yet; {have} have it"
    if words and words[0] in _OTHERS:
        covered = [
            form.spellings[0].partition(".{")[0]
            for form in FORMS
            if form.spellings[0].split(".")[0] == words[0]
        ]
        only = f", except {one_of(covered, 'and')}" if covered else ""
        return (
            f"{words[0]} is an instruction of PTX, but not one of the Tensor Cores: "
            f"it is not covered{only}; the families are {one_of(FAMILIES, 'and')}"
        )
    return ""
