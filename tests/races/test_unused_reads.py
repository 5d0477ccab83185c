"""A racy read of shared memory whose value nobody uses is a note, in every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.launch import grid
from fragmenta.launch.launch import Launch
from fragmenta.watch.races import racy_reads, unused_reads
from fragmenta.watch.races.shadow import bank_counts, problem_table
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import cases
from tests.simt.kernels import kernel
from tests.thinning import some

LOADS = {
    "word": "ld.shared.u32 %r1, [%s];",
    "byte": "ld.shared.u8 %r1, [%s];",
    "half": "ld.shared.s16 %r1, [%s+2];",
    "two": "ld.shared.v2.u32 {%r2, %r1}, [%s];",
    "four": "ld.shared.v4.u32 {%r2, %r3, %r4, %r1}, [%s];",
    "wide": "ld.shared.b64 %w, [%s]; cvt.u32.u64 %r1, %w;",
    "generic": "cvt.u64.u32 %w, %s; cvta.shared.u64 %w, %w; ld.u32 %r1, [%w];",
    "guarded": "@%first ld.shared.u32 %r1, [%s];",
    "rows": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%s];",
    "columns": (
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r2, %r3, %r1, %r4}, [%s];"
    ),
}
"""Loads of a lane's 16 bytes of a tile; the value is in ``%r1``."""
USES = {
    "nowhere": "",
    "computed": "add.u32 %r1, %r1, 7; mul.lo.u32 %r1, %r1, 3;",
    "own memory": "st.shared.u32 [%mine_too], %r1; ld.shared.u32 %r1, [%mine_too];",
}
HARM = {
    "memory": "st.global.u32 [%mine], %r1;",
    "branch": "setp.eq.u32 %p1, %r1, 3; @%p1 bra END;",
    "address": (
        "and.b32 %r1, %r1, 4; cvt.u64.u32 %w, %r1; add.u64 %w, %w, %mine; "
        "st.global.u32 [%w], %t;"
    ),
    "collective": (
        "shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1; st.global.u32 [%mine], %r1;"
    ),
    "atomic": "atom.global.add.u32 %r1, [%mine], %r1;",
}
BODY = """
    .shared .align 16 .b8 tile[512];
    .shared .align 16 .b8 more[512];
    .reg .b32 %s; .reg .b32 %mine_too; .reg .b64 %w; .reg .pred %first;
    setp.lt.u32 %first, %t, 32;
    mov.u32 %s, tile;
    mad.lo.u32 %s, %lane, 16, %s;
    mov.u32 %mine_too, more;
    mad.lo.u32 %mine_too, %lane, 4, %mine_too;
    mov.u32 %r2, 5;
    mov.u32 %r1, 0;
    @%first st.shared.v4.u32 [%s], {{%r2, %r2, %r2, %r2}};
    bar.sync 0;
    @!%first bra WRITE;
    {load}
    {use}
    bra END;
WRITE:
    st.shared.v4.u32 [%s], {{%t, %t, %t, %t}};
END:
    ret;
"""


def said(load: str, use: str, **options: Any) -> list[tuple[str, str]]:
    """What is said about a launch whose second warp overwrites what the first loads."""
    made = kernel(BODY.format(load=LOADS[load], use=use))
    out = np.zeros(66, np.uint32)
    result = made.launch(1, 64, [out], watch="report", **options)
    return [(e.rule, e.severity) for e in result.hazards if e.rule != "bank-conflict"]


@pytest.mark.parametrize("load", some(LOADS, 3))
def test_every_form_of_a_load_is_followed(load: str) -> None:
    assert said(load, "") == [("shared-race", "info")]
    assert said(load, HARM["memory"]) == [("shared-race", "error")]


@pytest.mark.parametrize("use", USES)
def test_a_value_that_ends_in_the_thread_is_no_use(use: str) -> None:
    assert said("word", USES[use]) == [("shared-race", "info")]


@pytest.mark.parametrize("use", HARM)
def test_what_others_see_is_a_use(use: str) -> None:
    assert ("shared-race", "error") in said("word", HARM[use])


@pytest.mark.parametrize("bug", [0, 1, 2, 3])
@pytest.mark.parametrize("schedule", ["youngest-waits", "oldest-waits"])
def test_a_later_read_hides_none_before_it(bug: int, schedule: str) -> None:
    made = running.loaded("values", bug).kernels["read_twice"]
    given = [np.zeros(96, np.uint32)]
    found = made.launch(1, 96, given, watch="report", schedule=schedule).hazards
    errors = [each for each in found if each.severity == "error"]
    assert bool(errors) == bool(bug)
    assert not errors or "values.cu:173" in errors[0].paragraph()


@pytest.mark.parametrize("bug, severity", [(0, "info"), (1, "error"), (2, "error")])
def test_rows_of_a_product_that_nobody_uses_may_be_overwritten(
    bug: int, severity: str
) -> None:
    case = next(
        each
        for each in cases()
        if each.row.entry == "few_rows_again" and each.bug == bug
    )
    (found,), _ = running.launch(case, "eager")
    assert (found.rule, found.severity) == ("overwrite-while-read", severity)


def test_the_last_turn_of_a_loop_is_not_the_others() -> None:
    """The same instruction loads what is used, and at last what is not."""
    made = running.loaded("slices", 1).kernels["last_prefetch"]
    out = np.zeros(32, np.uint32)
    given = [np.arange(6 * 256, dtype=np.uint32), out]
    (found,) = made.launch(1, 64, given, watch="report").hazards
    assert (found.rule, found.severity, found.hint) == ("shared-race", "info", "")
    assert "nobody uses the value that was read" in found.message
    right = np.zeros(32, np.uint32)
    running.loaded("slices", 0).kernels["last_prefetch"].launch(
        1, 64, [given[0], right]
    )
    assert (out == right).all()


def test_what_is_not_known_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said("word", "") == [("shared-race", "info")]
    for place, name, value in (
        (problem_table.ProblemTable, "logged", lambda _: None),
        (unused_reads, "ROUNDS", 1),
        (unused_reads, "MOST_SHARED", 10),
        (racy_reads, "FOLLOWED", ()),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            assert said("word", "") == [("shared-race", "error")], name


def test_blocks_and_clusters_are_told_apart() -> None:
    made = kernel(BODY.format(load=LOADS["word"], use=""))
    out = np.zeros(258, np.uint32)
    for options in ({}, {"cluster": 2}):
        result = made.launch(4, 64, [out], watch="report", **options)
        (found,) = [e for e in result.hazards if e.rule == "shared-race"]
        assert found.severity == "info"
        assert "seen 128 times" in " ".join(found.paragraph().split())


class Runs:
    """Counts the runs of launches, and the clusters of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[tuple[int, int] | None] = []
        run = grid.run

        def counted(launch: Launch, limit: int | None) -> None:
            self.parts.append(launch.part)
            run(launch, limit)

        monkeypatch.setattr(grid, "run", counted)

    def of(self, launches: int, kernel: ptx.Kernel, severity: str) -> list[int]:
        """How often each of some launches was run."""
        found = []
        for _ in range(launches):
            self.parts.clear()
            result = kernel.launch(4, 64, [np.zeros(258, np.uint32)], watch="report")
            assert [e.severity for e in result.hazards if e.rule == "shared-race"] == [
                severity
            ]
            found.append(len(self.parts))
        return found


def test_a_use_that_the_text_shows_needs_no_further_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = kernel(BODY.format(load=LOADS["word"], use=HARM["memory"]))
    assert Runs(monkeypatch).of(2, made, "error") == [1, 1]


def test_a_use_is_looked_for_once_and_in_one_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is shuffled may go nowhere: the text does not say that it is used."""
    made = kernel(BODY.format(load=LOADS["word"], use=HARM["collective"]))
    runs = Runs(monkeypatch)
    assert runs.of(1, made, "error") == [3]
    assert runs.parts == [None, (0, 1), (0, 1)]
    assert runs.of(2, made, "error") == [1, 1]


def test_what_nobody_uses_is_looked_at_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = kernel(BODY.format(load=LOADS["word"], use=""))
    first, *later = Runs(monkeypatch).of(9, made, "info")
    assert first > 1
    assert [count > 1 for count in later] == [1, 0, 1, 0, 0, 0, 1, 0]


def test_some_executions_show_a_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that races in a loop is not told of for ever: once in each further run."""
    loop = "mov.u32 %r5, 0;\nAGAIN: {} add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, {};"
    logs: list[racy_reads.ReadLog] = []
    start = racy_reads.ReadLog.__init__

    def kept(log: racy_reads.ReadLog, *given: Any) -> None:
        start(log, *given)
        logs.append(log)

    monkeypatch.setattr(racy_reads.ReadLog, "__init__", kept)
    counts = []
    for turns in (50, 200):
        load = loop.format(LOADS["word"], turns) + "@%p1 bra AGAIN;"
        text = BODY.format(load=load, use=HARM["collective"])
        logs.clear()
        found = kernel(text).launch(1, 64, [np.zeros(66, np.uint32)], watch="report")
        assert "error" in {e.severity for e in found.hazards}
        counts.append(sum(len(each.racy) for each in logs))
        assert len(logs[0].racy) <= racy_reads.ENOUGH
    assert counts[0] == counts[1] <= racy_reads.ENOUGH + unused_reads.ROUNDS


def test_further_launches_ask_no_bank_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    advice = bank_counts.advice

    def counted(given: Any, width: int) -> str:
        asked.append(width)
        return advice(given, width)

    monkeypatch.setattr(bank_counts, "advice", counted)
    made = kernel("""
    .shared .align 16 .b8 tile[4096];
    .reg .b32 %s;
    mov.u32 %s, tile;
    mad.lo.u32 %s, %lane, 128, %s;
    st.shared.u32 [%s], %lane;
    ret;""")
    for _ in range(5):
        result = made.launch(1, 32, [np.zeros(34, np.uint32)], watch="report")
        assert [each.rule for each in result.hazards] == ["bank-conflict"]
    assert len(asked) <= 1


READ_AND_WRITE = """
    .reg .pred %first;
    setp.lt.u32 %first, %t, {many};
    @%first bra CHANGE;
    ld.global.u32 %r1, [%out];
    {use}
    bra END;
CHANGE:
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra END;
    ld.global.u32 %r2, [%out];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%out], %r2;
END:
    ret;
"""


@pytest.mark.parametrize("schedule", ["eager", "youngest-waits", "oldest-waits"])
@pytest.mark.parametrize("use", ["", "st.global.u32 [%mine], %r1;"])
def test_what_reads_and_writes_does_not_hide_a_read_before_it(
    schedule: str, use: str
) -> None:
    """In some orders another warp has read the word already."""
    made = kernel(READ_AND_WRITE.format(many=32, use=use))
    for block in (64, 96):
        out = np.zeros(128, np.uint32)
        result = made.launch(1, block, [out], watch="report", schedule=schedule)
        severities = {e.severity for e in result.hazards if e.rule == "global-race"}
        assert severities == {"error" if use else "info"}
