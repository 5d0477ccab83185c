"""The memory of a launch is free when it has ended, without Python's collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt.context import Context
from fragmenta.watch.races.global_watch import GlobalWatch
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import cases
from tests.thinning import some

CASES = {case.name: case for case in cases()}
FAULTS = """
.version 8.0 .target sm_90 .address_size 64
.entry beyond(.param .u64 p) {
    .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd2, %r1, 4096;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    st.global.u32 [%rd3], %r2;
    ret;
}
.entry stuck(.param .u64 p) {
    .reg .b32 %r<3>; .reg .pred %p;
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p, %r1, 32;
    @%p bar.sync 1, 64;
    bar.sync 0;
    ret;
}
"""


def hazard(name: str, **options: Any) -> Callable[[], Any]:
    """A launch of one of the small kernels."""

    def launch() -> Any:
        case = CASES[name]
        row = case.row
        kernel = running.loaded(row.source, case.bug).kernels[row.entry]
        given = running.for_launch(row, running.made(row))
        if row.cluster > 1:
            options["cluster"] = row.cluster
        return kernel.launch(
            row.grid,
            row.block,
            given,
            limits=ptx.Limits(instructions=2_000_000),
            **options,
        )

    return launch


def fault(name: str, **options: Any) -> Callable[[], Any]:
    """A launch that cannot go on."""
    kernel = ptx.parse(FAULTS).kernels[name]
    return lambda: kernel.launch(8, 64, [np.zeros(2048, np.int32)], **options)


REPORT = {"watch": "report"}
SEVERAL = {"schedule": ("eager", "lazy", 1)}
LAUNCHES: dict[str, Callable[[], Any]] = {
    "not watched": hazard("plain-neighbour", watch=False),
    "not watched, a cluster": hazard("pairs-relaxed_arrival", watch=False),
    "not watched, a copy": hazard("pairs-early_read", watch=False),
    "watched, several threads": hazard("plain-neighbour"),
    "watched, blocks in turns": hazard("plain-grid_barrier"),
    "watched, mbarriers": hazard("pairs-wrong_parity"),
    "watched, wgmma": hazard("pairs-early_release", schedule="lazy"),
    "watched, a cluster": hazard("pairs-relaxed_arrival"),
    "watched, tensor memory": hazard("tensor-product"),
    "several schedules": hazard("plain-double_buffer", **SEVERAL),
    "a race is reported": hazard("plain-exchange-1", **REPORT),
    "a race between blocks is reported": hazard("plain-neighbour-1", **REPORT),
    "an early read is reported": hazard("pairs-wrong_parity-2", **REPORT),
    "a race is raised": hazard("plain-exchange-1"),
    "a race of a cluster is raised": hazard("pairs-relaxed_arrival-1"),
    "an ended block": hazard("pairs-exited_block-1"),
    "an ended block is reported": hazard("pairs-exited_block-1", **REPORT),
    "a fault": fault("beyond"),
    "a fault is reported": fault("beyond", **REPORT),
    "a fault, not watched": fault("beyond", watch=False),
    "a deadlock": fault("stuck"),
    "a deadlock, not watched": fault("stuck", watch=False),
    "an mbarrier is misused": hazard("pairs-overwritten_barrier-1"),
    "some lanes": hazard("plain-some_lanes-1"),
}


def outcome(launch: Callable[[], Any]) -> Any:
    """The result, or the error."""
    try:
        return launch()
    except ptx.KernelError as error:
        return error


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Python's collector does not run by itself, and looks at what is new alone.

    In a process of many tests, all that there is takes more than a second.
    """
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize("name", some(LAUNCHES, 4))
def test_nothing_is_left_for_the_collector(name: str, by_hand: None) -> None:
    outcome(LAUNCHES[name])  # what is made once is not meant
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    outcome(LAUNCHES[name])
    gc.collect()
    left = [
        type(each).__qualname__
        for each in gc.garbage
        if isinstance(each, (np.ndarray, BaseException))
        or type(each).__module__.startswith("fragmenta")
    ]
    assert not left


@pytest.mark.parametrize("name", some(LAUNCHES, 2, 1))
def test_a_result_or_error_that_is_kept_keeps_no_memory(
    name: str, by_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, list[Any]] = {"shadow": [], "context": []}
    watched, context = GlobalWatch.__init__, Context.__init__

    def watch(self: Any, *given: Any, **options: Any) -> None:
        watched(self, *given, **options)
        for each in self._shadows.values():
            made["shadow"] += [weakref.ref(each.writes), weakref.ref(each.reads)]

    def begin(self: Any, *given: Any, **options: Any) -> None:
        context(self, *given, **options)
        made["context"] += [weakref.ref(each) for each in self.parts.values()]

    monkeypatch.setattr(GlobalWatch, "__init__", watch)
    monkeypatch.setattr(Context, "__init__", begin)
    kept = outcome(LAUNCHES[name])
    assert made["context"]
    assert bool(made["shadow"]) == ("not watched" not in name)
    assert not [each for each in made["shadow"] if each() is not None]
    # The traceback of an error has the context that failed.
    if isinstance(kept, ptx.Result):
        assert not [each for each in made["context"] if each() is not None]
        assert isinstance(kept.problems, list)  # they can still be told
        if kept.recorded:
            assert "<svg" in str(kept.timeline())
    else:
        assert str(kept)
