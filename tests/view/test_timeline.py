"""The picture of a launch shows what happened, and where the problem is."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.inspect.view.timeline_rows import ClusterRows
from tests.races.test_messages import result

NAMESPACE = {"s": "http://www.w3.org/2000/svg"}


def texts(picture: object, kind: str = "text") -> list[str]:
    tree = ElementTree.fromstring(str(picture))
    return [each.text or "" for each in tree.iterfind(f".//s:{kind}", NAMESPACE)]


def test_rows_and_marks() -> None:
    found = result("pairs-early_release-1")
    picture = found.timeline()
    said = texts(picture)
    assert "block (0, 0, 0), schedule lazy" in said
    for row in ("warp 0", "warp 4", "copies", "wgmma 0", "full", "empty+0x8"):
        assert said.count(row) == 1
    assert [each for each in said if each.startswith("1  overwrite-while-read: ")]
    assert said.count("1") >= 2  # both accesses have the number
    titles = texts(picture, "title")
    assert any(
        each.startswith("arrives at empty, phase 0, pairs.cu:") for each in titles
    )
    assert any(
        each.startswith("cp.async.bulk of warp 4, 2,048 bytes") for each in titles
    )


def test_times_are_those_of_the_events() -> None:
    """Copies in the schedule eager take no time; in lazy they end at the wait."""
    for schedule, instant in (("eager", True), ("lazy", False)):
        found = result("idioms-ring_wgmma", schedule=schedule)
        seen = ClusterRows(found.recorded[0])
        rows = [row for row in seen.bands[0].rows if row.key[0] == "copy"]
        bars = [bar for row in rows for bar in row.bars]
        assert len(bars) == 10
        assert all((bar.start == bar.end) == instant for bar in bars)
        waits = [b for row in seen.bands[0].rows for b in row.bars if b.style == "wait"]
        assert waits


def test_phases_follow_one_another() -> None:
    found = result("idioms-ring_wgmma")
    rows = ClusterRows(found.recorded[0]).bands[0].rows
    mbarriers = [row for row in rows if row.key[0] == "mbarrier"]
    assert mbarriers
    for row in mbarriers:
        assert [bar.label for bar in row.bars] == [str(i) for i in range(len(row.bars))]
        ends = [bar.end for bar in row.bars[:-1]]
        assert ends == [bar.start for bar in row.bars[1:]]


def test_the_blocks_of_a_cluster_have_bands() -> None:
    said = texts(result("clusters-shared_ring-1").timeline())
    assert {"block (0, 0, 0)", "block (1, 0, 0)"} <= {*said}
    assert said.count("warp 0") == 2


def test_a_deadlock_is_drawn() -> None:
    found = result("pairs-counts-1")
    said = texts(found.timeline())
    assert any(each.startswith("1  deadlock") for each in said)
    assert "full 0" in said


def test_everything_is_inside() -> None:
    picture = str(result("pairs-wrong_parity-2", schedule=3).timeline())
    width = int(re.search(r'width="(\d+)"', picture)[1])  # type: ignore[index]
    assert width == 1000
    numbers = [float(each) for each in re.findall(r' x="(-?[\d.]+)"', picture)]
    assert 0 <= min(numbers) <= max(numbers) <= width


def test_some_events() -> None:
    found = result("pairs-early_release-1")
    assert "events 20 to 40 of 173" in texts(found.timeline(start=20, stop=40))
    with pytest.raises(fm.Error, match="the cluster has events 0 to 173; given 200"):
        found.timeline(start=200)
    with pytest.raises(fm.Error, match="events are counted from 0; given -1"):
        found.timeline(start=-1)
    with pytest.raises(fm.Error, match="the launch has clusters 0 to 0; given 7"):
        found.timeline(cluster=7)


def test_nothing_to_draw() -> None:
    found = result("idioms-ring_wgmma", watch=False)
    with pytest.raises(fm.Error, match="was not watched"):
        found.timeline()


def test_pictures_are_saved_and_shown(tmp_path: Path) -> None:
    picture = result("pairs-early_read-1").timeline()
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == str(picture) == picture._repr_svg_()
    assert repr(picture).startswith("<a timeline: ")


def test_a_raised_hazard_has_the_result() -> None:
    with pytest.raises(ptx.KernelHazard) as raised:
        result("pairs-early_read-1", watch=True)
    assert "read-before-arrival" in str(raised.value.result.timeline())


def test_the_cluster_with_the_problem_is_kept() -> None:
    """Only block 2 of 5 has a race."""
    text = """
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry f(.param .u64 out)
    {
        .reg .pred %p;
        .reg .b32 %r<6>;
        .reg .b64 %rd<2>;
        .shared .align 4 .b8 tile[256];
        mov.u32 %r0, %tid.x;
        mov.u32 %r1, tile;
        mov.u32 %r2, %ctaid.x;
        setp.ne.u32 %p, %r2, 2;
        @%p ret;
        and.b32 %r3, %r0, 31;
        shl.b32 %r3, %r3, 2;
        add.u32 %r4, %r1, %r3;
        st.shared.u32 [%r4], %r0;
        ret;
    }
    """
    kernel = ptx.parse(text).kernels["f"]
    found = kernel.launch(5, 64, [np.zeros(1, np.int32)], watch="report")
    said = texts(found.timeline())
    assert "block (2, 0, 0), schedule eager" in said
    assert "1  shared-race: tile (shared 0x400-0x47f)" in said


BETWEEN = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 out)
{
    .reg .pred %p, %q; .reg .b32 %r<4>; .reg .b64 %rd<1>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    bar.sync 0;
    setp.eq.u32 %p, %r0, 0;
    rem.u32 %r2, %r1, 3;
    setp.eq.and.u32 %q, %r2, 1, %p;
    @%q st.global.u32 [%rd0], %r1;
    bar.sync 0;
    ret;
}
"""
"""Blocks 1 and 4 write the same element."""


def test_both_blocks_of_a_race_are_drawn() -> None:
    """One after the other, so that only the events of one of them were kept."""
    kernel = ptx.parse(BETWEEN).kernels["f"]
    out = np.zeros(1, np.int32)
    found = kernel.launch(6, 64, [out], watch="report")
    out[:] = 7
    picture = found.timeline()
    assert out == 7
    said = texts(picture)
    assert [e for e in said if e.startswith("block (")] == [
        "block (1, 0, 0), schedule eager",
        "block (4, 0, 0), schedule eager",
    ]
    assert said.count("1") >= 2  # each block has one of the accesses
    assert said.count("1  global-race: out[0] (argument 0)") == 1
    assert "2 of 6 blocks are drawn; timeline(blocks=) draws others." in said
    assert sum("missing here" in each for each in said) == 1


def test_blocks_are_chosen() -> None:
    kernel = ptx.parse(BETWEEN).kernels["f"]
    found = kernel.launch(3, 64, [np.zeros(1, np.int32)], watch="report")
    said = texts(found.timeline(blocks=[2, 0]))
    assert [e for e in said if e.startswith("block (")] == [
        "block (2, 0, 0), schedule eager",
        "block (0, 0, 0), schedule eager",
    ]
    assert said.count("bar.sync 0") == 2 * 2 * 2
    every = texts(found.timeline(blocks=range(3)))
    assert not any("are drawn" in each for each in every)
    wrong = {
        "the grid has blocks 0 to 2; given 3": {"blocks": [3]},
        "the launch has clusters 0 to 2; given -1": {"cluster": -1},
        r"such as \[0, 3\]; given \[\]": {"blocks": []},
        "numbers in the grid, such as .*; given 1": {"blocks": 1},
        "given both": {"blocks": [1], "cluster": 1},
    }
    for message, given in wrong.items():
        with pytest.raises(fm.Error, match=message):
            found.timeline(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", ["idioms-ring_wgmma", "pairs-early_release-1"])
def test_a_copy_ends_once(name: str, schedule: str) -> None:
    """What ends is a copy that began, and ends once; products end at their waits."""
    found = result(name, schedule=schedule)
    for recorded in found.recorded:
        begun = [each.about[1] for each in recorded.notes if each.what == "copy"]
        ended = [each.about[0] for each in recorded.notes if each.what == "done"]
        assert begun
        assert len(ended) == len({*ended})
        assert {*ended} <= {*begun}


# ── the bug is drawn ────────────────────────────────────────────────────────

TWO_COPIES = Path(__file__).parents[2] / "examples" / "two_copies.ptx"


@pytest.fixture(scope="module")
def two_copies() -> ptx.Result:
    """The kernel of the README, in the schedule eager."""
    x, y = np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)
    return ptx.load(TWO_COPIES).kernels["add"].launch(1, 32, [x, y], watch="report")


def test_the_picture_shows_the_copy_that_may_still_write(
    two_copies: ptx.Result,
) -> None:
    assert {str(each.schedule) for each in two_copies.recorded} == {"eager"}
    picture = two_copies.timeline()
    said = texts(picture)
    assert "block (0, 0, 0), schedule lazy" in said
    assert any(each.startswith("schedule lazy: ") for each in said)
    assert "may still write tile (shared 0x400-0x47f)" in said
    assert "1  missing here: mbarrier.try_wait full, phase 0" in said
    assert "1  read-before-arrival: tile (shared 0x400-0x47f)" in said
    assert "2  leak: cp.async.bulk at PTX line 31" in said
    assert str(picture).count("url(#fm-late)") == 1  # the other copy is waited for


def test_numbers_are_those_of_the_report(two_copies: ptx.Result) -> None:
    rules = [each.rule for each in two_copies.problems]
    assert rules == ["read-before-arrival", "leak"]  # the cause first
    listed = [
        each for each in texts(two_copies.timeline()) if re.match(r"\d  \w", each)
    ]
    shown = [each for each in listed if "missing" not in each]
    assert [each[0] for each in shown] == ["1", "2"]
    assert [each[3:].partition(":")[0] for each in shown] == rules


def test_arrays_are_as_before_the_picture() -> None:
    x, y = np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)
    kernel = ptx.load(TWO_COPIES).kernels["add"]
    found = kernel.launch(1, 32, [x, y], watch="report")
    before = y.copy()
    y[3] = 12345
    found.timeline()
    before[3] = 12345
    assert (y == before).all()
    assert (x == np.arange(64)).all()


def test_of_several_schedules_a_lazy_one_is_drawn() -> None:
    found = result("pairs-early_read-1", schedule=("eager", "lazy"))
    assert any(each.endswith("schedule lazy") for each in texts(found.timeline()))
    assert "run once more" not in str(found.timeline())


def test_what_is_missing_is_where_it_belongs() -> None:
    """A product is waited for before its warps arrive, not where the copy is issued."""
    said = str(result("pairs-early_release-1").timeline())
    tree = ElementTree.fromstring(said)
    boxes = [
        each
        for each in tree.iterfind(".//s:text", NAMESPACE)
        if (each.text or "").endswith("missing here: wgmma.wait_group")
    ]
    rows = {
        each.text: float(each.get("y", "0"))
        for each in tree.iterfind(".//s:text", NAMESPACE)
        if (each.text or "").startswith("warp ")
    }
    assert boxes
    for each in boxes:
        assert rows["warp 0"] < float(each.get("y", "0")) < rows["warp 1"]


def test_barriers_are_drawn() -> None:
    """Also those of blocks that run one after the other: of the one with a problem."""
    code = r"""
    extern "C" __global__ void late(int *x)
    {
        __shared__ int tile[64];
        tile[threadIdx.x] = threadIdx.x;
        __syncthreads();
        int v = tile[63 - threadIdx.x];
        if (blockIdx.x == 2)
            tile[threadIdx.x] = v;
        x[64 * blockIdx.x + threadIdx.x] = v;
    }"""
    kernel = ptx.RawKernel(code, "late").kernel
    x = np.zeros(64 * 5, np.int32)
    found = kernel.launch(5, 64, [x], watch="report")
    said = texts(found.timeline())
    assert "block (2, 0, 0), schedule eager" in said
    assert said.count("bar.sync 0") == 2
    assert "1  missing here: __syncthreads()" in said
    alone = next(each for each in found.recorded if each.cluster == 2)
    whats = [each.what for each in alone.notes]
    assert whats == 2 * ["barrier arrive"] + 2 * ["barrier"]


def test_work_on_tensor_memory_is_drawn() -> None:
    found = result("tensor-pipeline")
    seen = ClusterRows(found.recorded[0])
    bars = [b for row in seen.bands[0].rows if row.key[0] == "tensor" for b in row.bars]
    labels = {each.label.split()[0] for each in bars}
    assert labels == {"mma", "ld"}
    assert all(not each.open and each.start < each.end for each in bars)
    loads = [each for each in bars if each.label.startswith("ld")]
    assert {each.label for each in loads} == {f"ld {warp}" for warp in range(4)}
