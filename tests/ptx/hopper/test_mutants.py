"""The mutants have the mistakes that they name, and these are reported."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fragmenta import ptx
from tests.ptx.hopper import equivalence, judging, reporting, subjects
from tests.ptx.hopper.mutants import mutants
from tests.ptx.hopper.pool import answers
from tests.thinning import some

ROOT = Path(__file__).parents[3]
COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
SOME = {
    "do not wait at try_wait": "rule",
    "expect 16 bytes more": "deadlock",
    "remove fence.proxy.async": "rule",
    "remove wgmma.fence": "rule",
    "relax try_wait": "rule",
}
"""Changes that are tried whenever the tests run, and what shows them."""
CORPUS = (
    "pipelines.sm_80-gemm_f16_trans",
    "scan.sm_80-scan_tree",
    "scan.sm_80-scan_look_back",
    "locks.sm_80-chain",
)
TEXT = """.version 8.0
.target sm_90a
.address_size 64
.entry f()
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .shared .align 8 .b64 bars[2];
    mov.u32 %r1, bars;
    mbarrier.init.shared::cta.b64 [%r1], 4;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
    @!%p2 bra again;
    mbarrier.arrive.shared::cluster.b64 _, [%r1];
    mbarrier.arrive.shared::cta.b64 _, [%r1];
    fence.acq_rel.gpu;
    st.release.gpu.global.u32 [%rd1], 1;
    atom.global.add.u32 %r3, [%rd1], 1;
    setp.eq.s32 %p1, %r2, 5;
    wgmma.wait_group.sync.aligned 1;
    cp.async.bulk.wait_group 0;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    bar.sync 1, 128;
    ret;
}
"""
CHANGED = {
    "count 1 more at mbarrier.init": (
        "{ .reg .b32 %mutant; mov.b32 %mutant, 4; add.s32 %mutant, %mutant, 1; "
        "mbarrier.init.shared::cta.b64 [%r1], %mutant; }"
    ),
    "expect -16 bytes more": (
        "{ .reg .b32 %mutant; mov.b32 %mutant, %r2; add.s32 %mutant, %mutant, -16; "
        "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %mutant; }"
    ),
    "do not expect bytes": "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];",
    "do not wait at try_wait": "setp.eq.u32 %p2, 0, 0;",
    "flip parity of try_wait": (
        "{ .reg .b32 %mutant; mov.b32 %mutant, 0; xor.b32 %mutant, %mutant, 1; "
        "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %mutant; }"
    ),
    "relax try_wait": (
        "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p2, [%r1], 0;"
    ),
    "the next mbarrier at try_wait": (
        "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0;"
    ),
    "the next mbarrier at mbarrier.arrive": (
        "mbarrier.arrive.shared::cta.b64 _, [%r1+8];"
    ),
    "the other role's bar.sync": (
        "{ .reg .b32 %mutant; mov.b32 %mutant, 1; xor.b32 %mutant, %mutant, 3; "
        "bar.sync %mutant, 128; }"
    ),
    "one for all at bar.sync": (
        "{ .reg .b32 %mutant; mov.b32 %mutant, 1; mov.b32 %mutant, 1; "
        "bar.sync %mutant, 128; }"
    ),
    "-32 threads more at bar.sync": "bar.sync 1, 96;",
    "narrow mbarrier.arrive": (
        "mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r1];"
    ),
    "narrow fence": "fence.acq_rel.cta;",
    "narrow st": "st.release.cta.global.u32 [%rd1], 1;",
    "relax st": "st.relaxed.gpu.global.u32 [%rd1], 1;",
    "narrow atom": "atom.relaxed.cta.global.add.u32 %r3, [%rd1], 1;",
    "relax mbarrier.arrive": "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r1];",
    "4 stages instead of 5": "setp.eq.s32 %p1, %r2, 4;",
    "wait for one group less at wgmma.wait_group": "wgmma.wait_group.sync.aligned 2;",
    "wait for the reads only at cp.async.bulk.wait_group": (
        "cp.async.bulk.wait_group.read 0;"
    ),
    "relax barrier.cluster.arrive": "barrier.cluster.arrive.relaxed.aligned;",
    "remove barrier.cluster.wait": "",
    "remove bar.sync": "",
}


def test_what_each_change_writes():
    found = {each.change: each for each in mutants(TEXT, "f", ring=5)}
    for change, new in CHANGED.items():
        assert found[change].new == new
        lines = zip(TEXT.splitlines(), found[change].text.splitlines(), strict=True)
        assert [ours.strip() for its, ours in lines if its != ours] == [new]
    assert len(found) == 35


@pytest.mark.parametrize("kernel", some(subjects.KERNELS[::4], 4), ids=str)
def test_every_mutant_is_ptx_with_one_difference(kernel):
    subject = subjects.of_kernel(kernel)
    listed = subject.mutants()
    assert len({each.name for each in listed}) == len(listed) > 60
    for each in judging.one_of_each(listed):
        ptx.parse(each.text)
        assert each.where
        assert each.text != subject.text


def test_a_mutant_knows_who_calls_its_function():
    subject = subjects.of_kernel(subjects.KERNELS[1])
    found = [x for x in subject.mutants() if x.change == "remove wgmma.fence"]
    calls = [[statement for _, statement in each.calls] for each in found]
    assert all(each[1] == "wgmma_fence();" for each in calls)
    assert all(each[-1].startswith("consume(") for each in calls)
    assert {each[-2] for each in calls} == {
        "one_stage(even, k);",
        "if (k + 1 < stages_k) one_stage(odd, k + 1);",
    }
    assert max(each.copy for each in subject.mutants()) >= 1


# ── tasks that never end ────────────────────────────────────────────────────


def test_a_task_that_never_ends_is_given_up():
    def work(task):
        if task == "endless":
            while True:
                pass
        if task == "dead":
            os._exit(1)
        return task.upper()

    tasks = ["a", "endless", "b", "dead", "c"]
    found = dict(answers(work, tasks, 2, 0.1))
    assert found == {"a": "A", "b": "B", "c": "C", "endless": None, "dead": None}


# ── verdicts ────────────────────────────────────────────────────────────────


def unexplained(subject, listed=None, schedules=("eager", "lazy")):
    """The mutants that nobody noticed, and nobody knows why."""
    table = judging.run_mutants(subject, schedules, listed)
    assert table
    return [
        f"{each.mutant.name}: {each.mutant.where}"
        for each in table
        if judging.way(subject.name, each) == "silent"
    ]


@pytest.mark.long
def test_mutants_of_a_small_kernel_are_seen():
    subject = subjects.of_kernel(subjects.KERNELS[0])
    subject = replace(subject, launches=subject.launches[:1])
    kinds = {each.change: each for each in judging.one_of_each(subject.mutants())}
    table = judging.run_mutants(subject, ("lazy",), [kinds[each] for each in SOME])
    assert {each.mutant.change: each.way for each in table} == SOME


@pytest.mark.parametrize("identity", some(CORPUS, 2))
def test_mutants_of_the_corpus_are_seen(identity):
    subject = subjects.subject(identity)
    assert not unexplained(subject, some(subject.mutants()[::2], 2), ("eager",))


if COMPLETE:  # it takes minutes

    @pytest.mark.parametrize("kernel, ring", subjects.JUDGED, ids=str)
    def test_all_mutants_are_seen(kernel, ring):
        assert not unexplained(subjects.of_kernel(kernel, ring))


# ── the report ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def report():
    return reporting.load()


def test_every_mutant_of_the_report_is_caught_or_explained(report):
    assert not reporting.unexplained(report)
    for descriptors, least in ((False, 0.985), (True, 0.86), (None, 0.97)):
        good, every = reporting.caught(report, descriptors)
        assert good / every >= least


def test_every_explanation_is_about_silent_mutants_only(report):
    """A reason for mutants that are caught, or that nobody makes, excuses others."""
    for each in equivalence.explanations():
        assert each.reason.endswith(".")
        ways = {
            report.way(name, row) for name, row in report.rows if each.covers(name, row)
        }
        assert each.kind in ways <= {each.kind, "never runs"}, each


def test_the_report_is_about_the_mutants_that_there_are(report):
    for kernel, ring in subjects.JUDGED[:2]:
        subject = subjects.of_kernel(kernel, ring)
        ours = {(each.change, each.where, each.copy) for each in subject.mistakes()}
        named = [row for name, row in report.rows if name == subject.name]
        assert ours == {(each.change, each.where, each.copy) for each in named}


def test_the_page_has_the_table_of_the_report(report):
    page = (ROOT / "docs" / "hazards.md").read_text(encoding="utf-8")
    assert reporting.table(report) in page
    assert reporting.words(report) in page


def test_of_two_verdicts_on_a_mutant_the_later_one_holds(tmp_path):
    row = {"kernel": "k", "change": "c", "line": 3, "copy": 0}
    lines = [{**row, "way": way} for way in ("silent", "rule")]
    path = tmp_path / "judged.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    assert [each["way"] for each in judging.judged(path)["k"]] == ["rule"]
