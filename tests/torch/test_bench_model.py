"""The benchmark of a whole decoder computes and counts what it says."""

import json
from dataclasses import replace

import bench_model as bench
import pytest
import torch

import fragmenta.torch as ft

# PyTorch's own, on a CPU without bf16.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

TINY = bench.Shape(
    hidden=64, layers=6, heads=4, kv_heads=2, head=16, mlp=96, vocabulary=50, context=8
)


def model_of(kind=torch.float32, layers=2):
    torch.manual_seed(0)
    return bench.Decoder(TINY, layers, dtype=kind).eval()


def test_the_default_is_a_model_of_eight_billion():
    shape = bench.Shape()
    with torch.device("meta"):
        model = bench.Decoder(shape, shape.layers)
    assert sum(x.numel() for x in model.parameters()) == 8_030_261_248


def test_a_step_continues_a_prefill():
    model = model_of()
    tokens = torch.randint(50, (3, TINY.context))
    cache = model.cache(3, TINY.context)
    with torch.no_grad():
        whole = model(tokens, model.positions(0, TINY.context), cache)
        again = [(k.clone(), v.clone()) for k, v in cache]
        for keys, values in again:
            keys[:, :, -1], values[:, :, -1] = 7, 7  # the step writes them
        step = model(tokens[:, -1:], model.positions(TINY.context - 1, 1), again)
    assert torch.allclose(whole, step, atol=1e-5)
    for (keys, values), (k, v) in zip(cache, again, strict=True):
        assert torch.allclose(keys, k, atol=1e-5)
        assert torch.allclose(values, v, atol=1e-5)


def logits(model):
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(50, (2, 5), generator=generator)
    with torch.no_grad():
        return model(tokens, model.positions(0, 5), model.cache(2, 5)).double()


@pytest.mark.parametrize("what", [n for n in bench.VARIANTS if "cuSPARSELt" not in n])
def test_every_variant_is_the_same_model(what):
    model = model_of(torch.bfloat16)
    for block in model.blocks:
        for name in TINY.linears:
            weight = getattr(block, name).weight.data
            weight.copy_(ft.compress(weight).to_dense())
    expected = logits(model)
    found = logits(bench.VARIANTS[what](model))
    limit = 0.1 if "fp8" in what or "int4" in what else 0.02
    assert (found - expected).norm() < limit * expected.norm()
    kinds = {type(getattr(model.blocks[0], name)).__name__ for name in TINY.linears}
    wanted = {"dense bf16": "Linear", "dense fp8": "Fp8Linear"}.get(what.split(",")[0])
    assert kinds == {wanted or "SparseLinear"}
    assert type(model.head) is torch.nn.Linear


def test_sizes_are_those_of_the_whole_model():
    run = bench.Bench(TINY, layers=2, device="cpu", compiled=False)
    row = bench.Row("", "decode", 3, 1, 2, TINY.layers)
    run.sizes(row, model_of(torch.bfloat16))
    whole = model_of(torch.bfloat16, layers=TINY.layers)
    assert row.weights == sum(2 * x.numel() for x in whole.parameters())
    cache = whole.cache(3, TINY.context)
    assert row.cache == sum(2 * x.numel() for pair in cache for x in pair)


def test_times_are_scaled_to_all_layers():
    row = bench.Row("", "decode", 4, 1, 2, 32, microseconds=300.0, rest=100.0)
    assert row.total == 100 + 16 * 200
    assert row.rate == pytest.approx(4 / row.total * 1e6)
    failed = replace(row, microseconds=0.0)
    assert failed.rate == failed.total == 0


def test_it_runs_and_reports(tmp_path, monkeypatch):
    run = bench.Bench(TINY, layers=1, device="cpu", compiled=False)
    rests = {}
    whats = ["dense bf16", "fragmenta 2:4 bf16"]
    rows = [row for what in whats for row in run.rows(what, [1, 2], 4, rests)]
    assert [(row.phase, row.batch, row.tokens) for row in rows[:3]] == [
        ("decode", 1, 1),
        ("decode", 2, 1),
        ("prefill", 1, 4),
    ]
    assert len(rests) == 3
    assert not any(row.note for row in rows)
    assert rows[-1].weights != rows[0].weights

    def broken(*_):
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setattr(bench.Bench, "calls", broken)
    rows += run.rows("dense fp8, one scale", [1], 0, rests)
    assert rows[-1].note == "RuntimeError: no such kernel"
    for row in rows[:3]:
        row.microseconds, row.rest = 200.0, 100.0
    for row in rows[3:-1]:
        row.microseconds, row.rest = 150.0, 100.0
    bench.write(tmp_path, rows, {"gpu": "none"}, TINY)
    report = json.loads((tmp_path / "model.json").read_text())
    assert report["shape"]["hidden"] == 64
    assert [row["rate"] for row in report["rows"]] == [row.rate for row in rows]
    text = (tmp_path / "model.md").read_text()
    assert "| linears | batch 1 | batch 2 | weights |" in text
    assert "| dense bf16 | 1,429 (1.00x) | 2,857 (1.00x) | 0.0 GB |" in text
    assert "| fragmenta 2:4 bf16 | 2,500 (1.75x) | 5,000 (1.75x) | 0.0 GB |" in text
    assert "dense fp8, one scale: RuntimeError: no such kernel" in text
