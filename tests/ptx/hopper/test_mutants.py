"""Are the mutants what they say, and are they seen?"""

import os

import pytest

from fragmenta import ptx
from tests.ptx.hopper import equivalence, judging, subjects
from tests.ptx.hopper.mutants import mutants

COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
SOME = (
    "count 1 more at mbarrier.init",
    "do not wait at try_wait",
    "expect 16 bytes more",
    "remove fence.proxy.async",
    "remove wgmma.wait_group",
    "remove cp.async.bulk.wait_group.read",
)
"""The changes that are tried whenever the tests run."""
CORPUS = ("pipelines.sm_80-gemm_f16_3_stages", "scan.sm_80-scan_tree")
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
    mbarrier.arrive.shared::cta.b64 _, [%r1];
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
    assert len(found) == 21


@pytest.mark.parametrize("kernel", subjects.KERNELS[::3], ids=str)
def test_every_mutant_is_ptx_with_one_difference(kernel):
    subject = subjects.of_kernel(kernel)
    listed = subject.mutants()
    assert len({each.name for each in listed}) == len(listed) > 60
    for each in judging.one_of_each(listed):
        ptx.parse(each.text)
        assert each.where
        assert each.text != subject.text


def test_every_equivalent_mutant_exists():
    """A reason for mutants that nobody makes would excuse later ones."""
    judged = [
        subjects.of_kernel(each, ring)
        for each in subjects.KERNELS
        for ring in subjects.RINGS
    ]
    judged += [subjects.subject(name) for name in CORPUS]
    listed = [(each.name, mutant) for each in judged for mutant in each.mutants()]
    for each in equivalence.equivalents():
        assert each.reason
        assert any(each.covers(name, mutant) for name, mutant in listed), each


def silent(subject, listed=None, schedules=("lazy",)):
    """The mutants that nobody noticed, but those that are no mistakes."""
    table = judging.run_mutants(subject, schedules, listed)
    assert table
    return [
        f"{each.mutant.name}: {each.mutant.where}"
        for each in table
        if judging.way(subject.name, each) == "silent"
    ]


def test_mutants_of_a_small_kernel_are_seen():
    subject = subjects.of_kernel(subjects.KERNELS[0])
    kinds = {each.change: each for each in judging.one_of_each(subject.mutants())}
    chosen = [kinds[each] for each in SOME]
    assert not silent(subject, chosen)


if COMPLETE:  # it takes minutes

    @pytest.mark.parametrize("ring", subjects.RINGS)
    @pytest.mark.parametrize("kernel", subjects.KERNELS, ids=str)
    def test_all_mutants_are_seen(kernel, ring):
        subject = subjects.of_kernel(kernel, ring)
        assert not silent(subject, schedules=judging.SCHEDULES)


@pytest.mark.parametrize("identity", CORPUS)
def test_mutants_of_the_corpus_are_seen(identity):
    assert not silent(subjects.subject(identity))
