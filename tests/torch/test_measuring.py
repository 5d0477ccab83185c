"""The benchmarks for the GPU measure what they say."""

import json
from pathlib import Path
from types import SimpleNamespace

import bench_change
import bench_experts
import bench_fallback
import bench_int4
import bench_layers
import check_gemm
import check_library
import measuring
import pytest
import torch

from fragmenta.hopper.kernels.arguments import geometry
from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.source import source

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


# ── runs ────────────────────────────────────────────────────────────────────


def test_a_run_keeps_its_cases(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measuring, "versions", lambda: {"gpu": "none"})
    monkeypatch.setattr(measuring, "compile_all", lambda kernels: None)
    parser = measuring.options_of("What it is.\nMore.", (1, 16), "4096x4096", 30.0)
    options = parser.parse_args(["--out", str(tmp_path / "a"), "--batches", "2,4"])
    assert (options.batches, options.seconds, options.tiles) == ([2, 4], 30.0, 1)
    run = measuring.Run("layers", options)
    run.compile([Kernel("bf16"), Kernel("bf16")])
    assert run.reaches("a layer")
    for number in range(2):
        run.keep([SimpleNamespace(us=number)], lambda cases: f"{len(cases)} case")
    run.finish("| a |")
    read = measuring.read_cases(tmp_path / "a" / "layers.json")
    assert read == [{"us": 0}, {"us": 1}]
    assert (tmp_path / "a" / "layers.md").read_text() == "| a |\n"
    run.begun -= 100
    assert not run.reaches("the last")
    said = capsys.readouterr().out
    assert "1 kernels compiled" in said
    assert "not reached: the last" in said


def test_layers_of_an_option():
    assert measuring.sizes("64x128,8x4", [(1, 2)]) == [(64, 128), (8, 4)]
    assert measuring.sizes("", [(1, 2)]) == [(1, 2)]


def test_what_choices_cost():
    told = measuring.costs_of_choices(
        [
            ("a", ["x", "y"], {"x": 11.0, "y": 10.0}),
            ("b", ["x", "y"], {"x": 10.0, "y": 10.0}),
            ("one", ["x"], {"x": 1.0}),
        ]
    )
    assert told.splitlines()[0] == "1.10  a: x 11.0 us, y 10.0 us"
    assert told.splitlines()[-1] == "2 cases: 1.049 on average"


def test_tiles_that_are_tried_and_judged(tmp_path):
    """The chosen one is the first; the file of a run can be judged without a GPU."""
    for of in bench_layers.TYPES:
        few, many = (bench_layers.tried(of, 4096, n, 4096, 3) for n in (16, 512))
        assert few[0] == choose(few[0], 4096, 16, 4096)
        assert many[0].four_bits == (of == "none")
        assert few[0].four_bits == (of in bench_layers.FOUR_BITS)
    cases = [
        {
            "type": "int4",
            "m": 4096,
            "n": 16,
            "k": 4096,
            "tiles": {
                str(x.tile): 9.0 for x in bench_layers.tried("int4", 4096, 16, 4096, 2)
            },
        }
    ]
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"cases": cases}))
    assert "1 cases: 1.000" in bench_layers.judge(path)
    cases[0]["tiles"] = {
        "2:4 int4 x fp8": {
            str(x.tile): 9.0
            for x in bench_int4.tried("2:4 int4 x fp8", 4096, 16, 4096, 2)
        }
    }
    path.write_text(json.dumps({"cases": cases}))
    assert "1 cases: 1.000" in bench_int4.judge(path)
    layer = bench_experts.LAYERS[2]
    tiles = bench_experts.tried("bf16", layer, 8, 2)
    cases = [
        {
            "type": "bf16",
            "layer": layer.name,
            "batch": 8,
            "tiles": {str(x.tile): 9.0 for x in tiles},
        }
    ]
    path.write_text(json.dumps({"cases": cases}))
    assert "1 cases: 1.000" in bench_experts.judge(path)


def test_where_wide_weights_are_faster():
    cases = [
        bench_fallback.Case("int4", 64, 64, n, four, 10.0, 5.0, 1e6)
        for n, four in ((16, 4.0), (64, 9.0), (96, 12.0), (256, 16.0))
    ]
    assert bench_fallback.crossing(cases, made=False) == 64
    assert bench_fallback.crossing(cases, made=True) == 96
    assert "| int4 | 64 x 64 | 64 | 96 | 144, 1280 |" in bench_fallback.page(cases)
    for of in bench_layers.FOUR_BITS:
        four, wide = bench_fallback.kernels(of, 4096, 64, 4096)
        assert four.four_bits
        assert (wide.a, wide.scaled) == (four.b, True)


# ── checks ──────────────────────────────────────────────────────────────────


def test_every_new_kernel_is_checked():
    kinds = {each.a for each in check_gemm.kernels(quick=True)}
    assert {"s4", "e4m3", "bf16", "s8", "b1"} <= kinds
    named = " ".join(name for name, _, _ in check_library.TASKS)
    for what in ("experts", "fused", "activations", "trained", "4 bits", "blocks"):
        assert what in named


@pytest.mark.parametrize("name", ["quantize_rows bf16", "trained f16"])
def test_a_check_sees_what_is_wrong(name, monkeypatch, capsys):
    monkeypatch.setattr(check_library, "DEVICE", "cpu")
    assert check_library.library([name]) == 0
    right = check_library.apart
    monkeypatch.setattr(
        check_library, "apart", lambda what, x, y: right(what, x, torch.zeros_like(y))
    )
    assert check_library.library([name]) == 1
    assert "bytes differ" in capsys.readouterr().out
