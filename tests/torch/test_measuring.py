"""The benchmarks for the GPU measure what they say."""

from pathlib import Path

import bench_change
import measuring
import pytest

from fragmenta.kernels.arguments import geometry
from fragmenta.kernels.config import Kernel, Tile, choose
from fragmenta.kernels.source import source

ROOT = Path(__file__).parents[2]
PRODUCT = bench_change.Product(
    "2:4 scaled e4m3",
    Kernel("e4m3", out="bf16", tile=Tile(64, 64), scaled=True, transposed=True),
    (256, 64, 1024),
)


@pytest.fixture
def replays(monkeypatch):
    """Graphs are numbers: the microseconds that they take.  What was replayed."""
    seen = []

    def replayed(graph):
        seen.append(graph)
        return graph

    monkeypatch.setattr(measuring, "replayed", replayed)
    return seen


def test_rivals_take_turns(replays):
    assert measuring.in_turn([1.0, 2.0], 0.0, least=3) == [[1.0] * 3, [2.0] * 3]
    assert replays == [1.0, 2.0] * 3


@pytest.mark.parametrize(
    "seconds, most, count", [(1e-3, 2000, 250), (1e-3, 100, 100), (1e-6, 2000, 7)]
)
def test_replays_go_on_until_the_card_was_busy(replays, seconds, most, count):
    times = measuring.in_turn([1.0, 7.0], seconds, most=most)
    assert [len(each) for each in times] == [count, count]


def test_a_median_is_that_of_one_call(replays, monkeypatch):
    monkeypatch.setattr(
        measuring, "captured", sum
    )  # a graph takes as long as its calls
    assert measuring.medians_us([[2.0, 4.0], [9.0]], 0.0, 0.0, most=7) == [3.0, 9.0]
    assert len(replays) == 2 * 2 * 7  # two rivals, warm and timed


def test_a_checkout_says_how_it_computes_a_product():
    (found,) = bench_change.described(ROOT, [PRODUCT], 132)
    chosen = choose(PRODUCT.kernel, *PRODUCT.size)
    assert (found.tile, found.source) == (str(chosen.tile), source(chosen))
    made = geometry(chosen, *PRODUCT.size, 132)
    assert found.geometry(chosen) == made
    assert found.starts_early


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    """Python would find the package elsewhere, and compare it with itself."""
    with pytest.raises(SystemExit, match="is no checkout: it has no src/fragmenta"):
        bench_change.described(tmp_path, [PRODUCT], 132)


def test_a_checkout_that_fails_says_why(tmp_path):
    (tmp_path / "src" / "fragmenta").mkdir(parents=True)
    (tmp_path / "src" / "fragmenta" / "__init__.py").write_text("1 / 0")
    with pytest.raises(SystemExit, match=r"(?s)cannot say what it has:.*by zero"):
        bench_change.described(tmp_path, [PRODUCT], 132)


def test_what_got_slower_stands_first():
    rows = [
        bench_change.Row("2:4 e4m3", (64, 8, 64), "64x8", "64x8", 10.0, after)
        for after in (9.0, 11.0)
    ]
    lines = bench_change.table(rows, {"gpu": "none"}).splitlines()
    assert [line.split()[-2] for line in lines[-2:]] == ["1.100", "0.900"]
