"""The table of effects against the table of opcodes and the catalogue."""

from itertools import product

import pytest

import fragmenta as fm
from fragmenta.ptx.effects import (
    AT_ONCE,
    LINES,
    SYNCHRONOUS,
    WAYS,
    find,
    in_order,
    not_run,
)
from fragmenta.ptx.opcodes import TABLE


def mnemonics(syntax):
    """The shortest mnemonics of a line of the table of opcodes."""
    needed = [piece.words for piece in syntax.pieces if not piece.optional]
    for words in product(*needed):
        yield ".".join((syntax.opcode, *words))


def asynchronous(mnemonic):
    """Whether the name says that an instruction belongs to asynchronous work."""
    opcode, *words = mnemonic.split(".")
    if opcode in ("fence", "membar", "multimem", "applypriority"):
        return False
    if opcode in ("wgmma", "tcgen05", "clusterlaunchcontrol"):
        return True
    return "async" in words


def every():
    """All mnemonics of the opcode table and of the catalogue that are asynchronous."""
    found = [
        each
        for lines in TABLE.lines.values()
        for syntax in lines
        for each in mnemonics(syntax)
    ]
    found += [
        str(op) for op in fm.catalogue() if str(op).startswith(("wgmma", "tcgen"))
    ]
    return sorted({each for each in found if asynchronous(each)})


def at_once(mnemonic):
    words = mnemonic.split(".")
    starts = (".".join(words[:n]) for n in range(1, len(words) + 1))
    return next((each for each in starts if each in SYNCHRONOUS), None)


def test_every_asynchronous_line_has_its_row_and_every_row_a_line():
    rows, immediate = set(), set()
    for mnemonic in every():
        row, now = find(mnemonic), at_once(mnemonic)
        assert (row is None) != (now is None), mnemonic
        rows.add(row)
        immediate.add(now)
    assert rows - {None} == set(LINES)
    assert immediate - {None} == set(AT_ONCE.split())


def test_a_mnemonic_names_what_the_row_says():
    """PTX spells the completion and the reduction out; the row must agree."""
    for mnemonic in every():
        row, words = find(mnemonic), mnemonic.split(".")
        if row is None:
            continue
        if "mbarrier::complete_tx::bytes" in words:
            assert row.done_by == "mbarrier", mnemonic
        assert (row.done_by == "bulk_group") == ("bulk_group" in words), mnemonic
        reduces = words[0] == "red" or words[:2] == ["cp", "reduce"]
        assert row.combines == reduces, mnemonic
        assert ("tensormap" in row.reads) == (words[0] == "cp" and "tensor" in words)


def test_the_words_of_the_table_are_few():
    for row in LINES:
        assert row.issuer in ("thread", "warp", "warpgroup", "thread, pair")
        assert row.proxy in ("generic", "async", "cp.async", "tensor")
        assert not row.done_by or row.done_by in WAYS
        spaces = {each.lstrip("+") for each in (*row.reads, *row.writes)}
        assert spaces <= {"global", "shared", "tensor", "registers", "tensormap"}
        for each in row.after:
            name, _, how = each.partition(":")
            assert name in {other.instruction for other in LINES}
            assert how in ("", "accumulator", "reads", "unpromised")
    for way in WAYS.values():
        known = {*AT_ONCE.split(), "tcgen05.commit", "ld.acquire"}
        assert all(each in known or each.startswith("mbarrier.") for each in way.waits)


@pytest.mark.parametrize("was_write", [False, True])
@pytest.mark.parametrize("accumulates", [False, True])
def test_what_tcgen05_keeps_in_order(was_write, accumulates):
    """The pairs of the manual, typed in: 9.7.16.6, pipelined tcgen05 instructions."""
    promised = {("cp", "mma"), ("shift", "mma"), ("shift", "cp"), ("mma", "shift")}
    for pair in product(("mma", "cp", "shift"), repeat=2):
        wanted = pair in promised
        if pair == ("mma", "mma"):
            wanted = accumulates
        if pair == ("cp", "cp") or (not was_write and pair != ("mma", "shift")):
            wanted = None
        old, new = (f"tcgen05.{each}" for each in pair)
        assert in_order(old, new, was_write, accumulates) is wanted, pair


def test_what_is_not_run():
    assert not not_run("tcgen05.ld.sync.aligned.32x32b.x1.b32")
    assert not_run("tcgen05.mma.cta_group::1.kind::f16.ashift").endswith("not known")
    assert not not_run("st.async.release.gpu.global.u32")
