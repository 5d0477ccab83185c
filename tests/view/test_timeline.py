"""The picture of a launch shows what happened, and where the problem is."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.view.timeline_rows import ClusterRows
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
    assert "1  deadlock" in said
    assert "full 0" in said


def test_everything_is_inside() -> None:
    picture = str(result("pairs-wrong_parity-2", schedule=3).timeline())
    width = int(re.search(r'width="(\d+)"', picture)[1])  # type: ignore[index]
    assert width == 1000
    numbers = [float(each) for each in re.findall(r' x="(-?[\d.]+)"', picture)]
    assert 0 <= min(numbers) <= max(numbers) <= width


def test_some_events() -> None:
    found = result("pairs-early_release-1")
    assert "events 20 to 40 of 163" in texts(found.timeline(start=20, stop=40))
    with pytest.raises(fm.Error, match="the cluster has events 0 to 163; given 200"):
        found.timeline(start=200)
    with pytest.raises(fm.Error, match="events are counted from 0; given -1"):
        found.timeline(start=-1)
    with pytest.raises(fm.Error, match="the events of cluster 7 were not kept"):
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
    assert "1  shared-race: PTX line 19 and PTX line 19" in said


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
