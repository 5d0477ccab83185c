"""A fast path says which functions of an observer it calls: no others are loaded."""

from typing import Any

import pytest

from fragmenta.engine.simt import library
from fragmenta.engine.units import fast
from fragmenta.engine.units.fast import handlers, layout, step, tasks

TASK = ("units.task.",)
ROWS = """
fence.mbarrier_init.release.cluster 0
fence.proxy.async.shared::cta 0
fence.proxy.tensormap::generic.acquire.gpu 2
tensormap.replace.tile.global_address.global.b1024.b64 2
tensormap.replace.tile.global_stride.global.b1024.b64 3
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned 3
mbarrier.init.shared::cta.b64 2
mbarrier.inval.shared::cta.b64 1
mbarrier.arrive.shared::cta.b64 2
mbarrier.arrive.expect_tx.shared::cta.b64 3
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 2
mbarrier.try_wait.parity.shared::cta.b64 3
cp.async.ca.shared.global 3
cp.async.commit_group 0
cp.async.wait_group 1
cp.async.mbarrier.arrive.noinc.shared.b64 1
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes 4
cp.async.bulk.global.shared::cta.bulk_group 3
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes 4
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes 3
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group 2
cp.async.bulk.commit_group 0
cp.async.bulk.wait_group 1
barrier.cluster.arrive 0
barrier.cluster.wait 0
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 8
wgmma.fence.sync.aligned 0
wgmma.commit_group.sync.aligned 0
wgmma.wait_group.sync.aligned 1
tcgen05.mma.cta_group::1.kind::f16 5
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 1
tcgen05.fence::before_thread_sync 0
tcgen05.ld.sync.aligned.32x32b.x1.b32 2
tcgen05.st.sync.aligned.32x32b.x1.b32 2
tcgen05.wait::ld.sync.aligned 0
"""
FORMS = [(name, int(count)) for name, count in map(str.split, ROWS.split("\n")[1:-1])]


@pytest.fixture(scope="module")
def called() -> dict[str, tuple[set[int], set[str]]]:
    """By routine: the calls of an observer in its code, and the routines it calls."""
    found: dict[str, tuple[set[int], set[str]]] = {}
    seen: set[int] = set()
    observe = step.observe

    def observing(code: Any, cluster: Any, call: int, *more: Any) -> Any:
        seen.add(call)
        return observe(code, cluster, call, *more)

    with pytest.MonkeyPatch.context() as patch:
        for module in (step, tasks):
            patch.setattr(module, "observe", observing)
        for routine in handlers.ROUTINES:
            seen.clear()
            _, calls, _ = library._text(routine)
            found[routine.name] = {*seen}, {*calls}
    return found


@pytest.mark.parametrize("name, count", FORMS, ids=[name for name, _ in FORMS])
def test_a_handler_lists_its_calls(
    name: str, count: int, called: dict[str, tuple[set[int], set[str]]]
) -> None:
    found = handlers.handler(tuple(name.split(".")), count)
    assert found is not None
    own, left = set[int](), [found.routine.name]
    while left:  # what a task calls when it is done, its issuer has listed
        each = left.pop()
        slots, calls = called.get(each, (set(), set()))
        own |= slots
        left += [n for n in calls if n in called and n != "units.task.wanted"]
    finishing = {layout.PORT_COPIED, layout.PORT_SIGNAL, layout.PORT_PHASE}
    needed = (
        own if "units.task.issue" in called[found.routine.name][1] else own - finishing
    )
    assert needed <= {*found.calls, layout.PORT_USED} | missing_signals(found)


def missing_signals(found: handlers.Handler) -> set[int]:
    """Copies without an mbarrier signal none."""
    silent = {layout.PORT_SIGNAL, layout.PORT_PHASE}
    return set() if silent & {*found.calls} else silent


def test_every_fast_path_is_asked_about() -> None:
    every = {handlers.handler(tuple(name.split(".")), count) for name, count in FORMS}
    begun = {each.routine.name for each in every if each}
    ends = ("_prefetch", "setmaxnreg", "operand", "needed", "finish", "settle", "run")
    left = {
        each.name
        for each in handlers.ROUTINES
        if not each.name.startswith(TASK) and not each.name.endswith(ends)
    }
    assert left - begun == {"units.tensor.multiply"}, fast
