"""``tcgen05``: allocate, load, store, copy to and wait for tensor memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fragmenta.reference.isa.instruction import Instruction, Operand, Parts
from fragmenta.reference.isa.table import Form, Move, Row, read
from fragmenta.reference.isa.tables.tcgen05_mma import GROUPS
from fragmenta.reference.isa.tables.tcgen05_registers import load_parts, store_parts
from fragmenta.reference.isa.target import Version

# One warp, of each CTA of a pair, allocates and waits.  One thread shifts, commits.
SPELLINGS = """
name                    | spelling                                                                          | does
alloc                   | {exclusive}.{cta_group}.sync.aligned.{space}.b32                                  | Allocates columns of tensor memory, and writes their address to shared memory; waits while too few are free.
dealloc                 | {exclusive}.{cta_group}.sync.aligned.b32                                          | Frees columns of tensor memory. All must be free before the kernel ends.
relinquish_alloc_permit | {cta_group}.sync.aligned                                                          | After it, the CTA must not allocate again.
wait::ld                | sync.aligned                                                                      | Waits until all tcgen05.ld of this thread are done: before their registers are read.
wait::st                | sync.aligned                                                                      | Waits until all tcgen05.st of this thread are done.
shift                   | {cta_group}.down                                                                  | Shifts rows of 32 bytes in tensor memory down by one lane, except the last of 32.
commit                  | {cta_group}.mbarrier::arrive::one.{restrict}.{space}.{multicast}.b64              | An mbarrier arrives when all tcgen05.mma, .cp and .shift that this thread issued before are done.
fence::before_thread_sync | | Orders all tcgen05 before it: before a barrier, after which other threads go on.
fence::after_thread_sync  | | Orders all tcgen05 after it: after a barrier, at which other threads arrived.
"""

# A word with ``?`` may be left out.
ROWS = """
name                    | exclusive | space            | restrict                              | multicast                                | ptx | targets
alloc                   |           | shared::cta?     |                                       |                                          | 8.6 | 100a/f 110a/f
alloc                   | exclusive | shared::cta?     |                                       |                                          | 9.4 | 100a/f 110a/f
dealloc                 |           |                  |                                       |                                          | 8.6 | 100a/f 110a/f
dealloc                 | exclusive |                  |                                       |                                          | 9.4 | 100a/f 110a/f
relinquish_alloc_permit |           |                  |                                       |                                          | 8.6 | 100a/f 110a/f
wait::ld                |           |                  |                                       |                                          | 8.6 | 100a/f 110a/f
wait::st                |           |                  |                                       |                                          | 8.6 | 100a/f 110a/f
shift                   |           |                  |                                       |                                          | 8.6 | sm_100a sm_103a sm_107a sm_110a
commit                  |           | shared::cluster? |                                       | multicast::cluster?                      | 8.6 | 100a/f 110a/f
commit                  |           | shared::cluster? |                                       | multicast::cluster::16b                  | 9.4 | 100a/f 110a/f
commit                  |           | shared::cluster? |                                       | multicast::cluster::32b                  | 9.4 | sm_107a sm_107f
commit                  |           | shared::cluster? | sync_restrict::shared::read::mma::a   | multicast::cluster? multicast::cluster::16b multicast::cluster::32b | 9.4 | sm_107a sm_107f
fence::before_thread_sync |         |                  |                                       |                                          | 8.6 | 100a/f 110a/f
fence::after_thread_sync  |         |                  |                                       |                                          | 8.6 | 100a/f 110a/f
"""

# Between tensor memory and registers.  ``num`` is how often the tile is repeated.
MOVES = """
name              | tile                   | num      | pack      | unpack      | red     | abs  | nan  | type    | ptx | targets
ld                | 32x32b 16x64b 16x32bx2 | x1..x128 | pack::16b? |            |         |      |      | b32     | 8.6 | 100a/f 110a/f
ld                | 16x128b                | x1..x64  | pack::16b? |            |         |      |      | b32     | 8.6 | 100a/f 110a/f
ld                | 16x256b                | x1..x32  | pack::16b? |            |         |      |      | b32     | 8.6 | 100a/f 110a/f
st                | 32x32b 16x64b 16x32bx2 | x1..x128 |           | unpack::16b? |        |      |      | b32     | 8.6 | 100a/f 110a/f
st                | 16x128b                | x1..x64  |           | unpack::16b? |        |      |      | b32     | 8.6 | 100a/f 110a/f
st                | 16x256b                | x1..x32  |           | unpack::16b? |        |      |      | b32     | 8.6 | 100a/f 110a/f
ld.red            | 32x32b 16x32bx2        | x2..x128 |           |             | min max | abs? | NaN? | f32     | 8.8 | sm_103a sm_103f sm_107a sm_107f 110a/f
ld.red            | 32x32b 16x32bx2        | x2..x128 |           |             | min max |      |      | u32 s32 | 8.8 | sm_103a sm_103f sm_107a sm_107f 110a/f
ld.spcompress     | 32x32b                 | x4..x128 |           |             | min max | abs? |      | f32.b2  | 9.4 | sm_107a
ld.red.spcompress | 32x32b                 | x4..x128 |           |             | min max | abs? | NaN? | f32.b2  | 9.4 | sm_107a
"""
MOVE_SPELLINGS = {
    "ld": "sync.aligned.{tile}.{num}.{pack}.{type}",
    "st": "sync.aligned.{tile}.{num}.{unpack}.{type}",
    "ld.red": "sync.aligned.{tile}.{num}.{red}.{abs}.{nan}.{type}",
    "ld.spcompress": "sync.aligned.{tile}.{num}.{red}.sp::2:4.{abs}.{type}",
    "ld.red.spcompress": "sync.aligned.{tile}.{num}.{red}.sp::2:4.{abs}.{nan}.{type}",
}
#: The registers that one thread has of one tile.
TILE_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}

# From shared to tensor memory.  Elements of 4 and 6 bits become bytes on the way.
COPIES = """
tile                     | multicast                   | source
128x256b 128x128b 4x256b |                             | b8x16.b4x16_p64? b8x16.b6x16_p32?
64x128b                  | warpx2::02_13 warpx2::01_23 | b8x16.b4x16_p64? b8x16.b6x16_p32?
32x128b                  | warpx4                      | b8x16.b4x16_p64? b8x16.b6x16_p32?
"""


def _values(cell: str) -> tuple[str, ...]:
    """The values of a cell; nothing is one if a word has ``?``, or there is none."""
    words = cell.split()
    if len(words) == 1 and ".." in cell:
        least, most = (int(word[1:]) for word in cell.split(".."))
        return tuple(f"x{2**i}" for i in range(8) if least <= 2**i <= most)
    left_out = ("",) if not words or "?" in cell else ()
    return (*left_out, *(word.rstrip("?") for word in words))


def _row(line: Mapping[str, str], spelling: str, does: str = "") -> Row:
    fields = {
        name: _values(cell) for name, cell in line.items() if f"{{{name}}}" in spelling
    }
    if "{cta_group}" in spelling:
        fields = {"cta_group": GROUPS, **fields}
    facts = {"does": does} if does else {}
    return Row(fields, Version.parse(line["ptx"]), line["targets"], facts=facts)


# ── operands ────────────────────────────────────────────────────────────────


def count(op: Instruction) -> int:
    """How many registers a thread loads or stores; half of them once compressed."""
    every = TILE_REGISTERS[op.values["tile"]] * int(op.values["num"].removeprefix("x"))
    return every // 2 if "spcompress" in op.mnemonic else every


def move_operands(op: Instruction) -> tuple[Operand, ...]:
    """Registers and the address in tensor memory; 16x32bx2 has a second, as a distance."""
    address = [Operand("taddr", "tensor", vector=False)]
    if op.values["tile"] == "16x32bx2":
        address.append(Operand("imm_half_splitoff", "constant", vector=False))
    registers = [Operand("r", ".b32", count(op))]
    if op.stores:
        return (*address, *registers)
    if ".spcompress" in op.mnemonic:
        registers.insert(0, Operand("spmeta", ".b32", max(1, count(op) // 16)))
    if ".red" in op.mnemonic:
        registers.append(Operand("redval", ".b32", vector=False))
    return (*registers, *address)


def copy_operands(op: Instruction) -> tuple[Operand, ...]:
    """The address in tensor memory, and a descriptor of the matrix in shared memory."""
    return (
        Operand("taddr", "tensor", vector=False),
        Operand("s", ".b64", vector=False),
    )


def operands(op: Instruction) -> tuple[Operand, ...]:
    """What the rest takes, by name."""
    name = op.mnemonic.split(".")[1]
    columns = Operand("nCols", "columns", vector=False)
    if name == "alloc":
        return (Operand("dst", "address", vector=False), columns)
    if name == "dealloc":
        return (Operand("taddr", "number", vector=False), columns)
    if name == "shift":
        return (Operand("taddr", "tensor", vector=False),)
    if name != "commit":
        return ()
    barrier = Operand("mbar", "address", vector=False)
    multicast = op.values["multicast"]
    if not multicast:
        return (barrier,)
    wide = multicast.endswith("::32b")
    mask = Operand("ctaMask", "number" if wide else ".b16", vector=False)
    return (barrier, mask)


def parts(op: Instruction) -> Parts:
    """No operand is spread over registers."""
    return {}


def _form(
    family: str,
    name: str,
    tail: str,
    rows: tuple[Row, ...],
    takes: Callable[[Instruction], tuple[Operand, ...]],
    holds: Callable[[Instruction], Parts] = parts,
    moves: Move = "",
) -> Form:
    head = f"tcgen05.{name}"
    spelling = f"{head}.{tail}" if tail else head
    return Form(
        family,
        (spelling,),
        rows,
        takes,
        holds,
        any_order=head,
        unit="tcgen05",
        moves=moves,
    )


def _others() -> tuple[Form, ...]:
    forms = []
    for line in read(SPELLINGS):
        name, tail = line["name"], line["spelling"]
        rows = [each for each in read(ROWS) if each["name"] == name]
        found = tuple(_row(each, tail, line["does"]) for each in rows)
        forms.append(_form("tcgen05", name, tail, found, operands))
    return tuple(forms)


def _moves() -> tuple[Form, ...]:
    forms = []
    for name, tail in MOVE_SPELLINGS.items():
        rows = [each for each in read(MOVES) if each["name"] == name]
        family = f"tcgen05.{name[:2]}"
        found = tuple(_row(each, tail) for each in rows)
        holds = store_parts if name == "st" else load_parts
        moves: Move = "store" if name == "st" else "load"
        forms.append(_form(family, name, tail, found, move_operands, holds, moves))
    return tuple(forms)


def _copies() -> Form:
    tail = "{cta_group}.{tile}.{multicast}.{source}"
    version = {"ptx": "8.6", "targets": "100a/f 110a/f"}
    rows = tuple(_row({**line, **version}, tail) for line in read(COPIES))
    return _form("tcgen05.cp", "cp", tail, rows, copy_operands, moves="copy")


FORMS = (*_moves(), _copies(), *_others())
