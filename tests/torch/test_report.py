"""What a model gains: the report, without a GPU."""

import copy
import json
import math

import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta.hopper.torch import reporting
from fragmenta.kernels import Kernel, choose


@pytest.fixture
def dense():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 32))
    return torch.nn.Sequential(*layers).bfloat16()


@pytest.fixture
def model(dense):
    return ft.linears(copy.deepcopy(dense), prune=True)


def test_one_row_for_each_sparse_layer(model):
    x = torch.randn(2, 5, 64).bfloat16()
    before = model(x)
    found = ft.report(model, x)
    assert [row.name for row in found.rows] == ["0", "2"]
    first = found.rows[0]
    assert (first.shape, first.batch, first.element_type) == ((96, 64), 10, "bf16")
    kernel = Kernel("bf16", out="bf16", scaled=True, transposed=True)
    assert first.tile == str(choose(kernel, 96, 10, 64).tile)
    assert (first.time_us, first.dense_us, first.ratio) == (None, None, None)
    assert 0 < first.error < 0.004  # one rounding to bfloat16
    assert torch.equal(model(x), before)
    assert not model[0]._forward_hooks


def test_the_reference_says_what_pruning_and_rounding_cost(dense, model):
    x = torch.randn(10, 64).bfloat16()
    fp8 = ft.linears(copy.deepcopy(dense), prune=True, quantize="fp8")
    pruned = ft.report(model, x, reference=dense).rows[0]
    own, both = (ft.report(fp8, x, reference=each).rows[0] for each in (None, dense))
    assert both.element_type == "e4m3"
    assert 0.005 < own.error < 0.05
    assert pruned.error < both.error < pruned.error + 0.1
    y, want = model[0](x).float(), dense[0].float()(x.float()).detach()
    assert pruned.error == pytest.approx(
        float((y - want).norm() / want.norm()), rel=1e-4
    )


def test_the_table_fits_and_json_has_everything(model):
    found = ft.report(model, torch.ones(3, 64).bfloat16())
    lines = str(found).splitlines()
    assert lines[0].split()[0] == "shape"
    assert max(map(len, lines)) <= 80
    read = json.loads(found.to_json())
    assert [row["name"] for row in read["layers"]] == ["0", "2"]
    assert read["layers"][0]["ratio"] is None
    name = "model.decoder.layers.31.feed_forward.up_projection"
    row = ft.LayerReport(
        name, (14336, 4096), "e4m3", 131072, "2*128x192/2 k/8", 12345.6, 23456.7, 0.0123
    )
    lines = str(ft.ModelReport((row, row))).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].endswith("…up_projection")
    assert "  12346   1.90  1.2e-02  " in lines[1]
    assert "ratio" in lines[-1]


def test_a_layer_that_is_not_called(model):
    model[2].extra = ft.SparseLinear(8, 8)
    rows = ft.report(model, torch.ones(3, 64).bfloat16()).rows
    assert [row.batch for row in rows] == [3, 3, 0]
    assert rows[2].error is None
    assert rows[2].tile == ""
    assert " 0  bf16  -" in str(ft.ModelReport(rows))


def test_other_ways_to_call(model):
    x = torch.ones(3, 64).bfloat16()
    assert ft.report(model, (x,)).rows == ft.report(model, {"input": x}).rows
    compiled = torch.compile(model, backend="aot_eager")
    assert ft.report(compiled, x).rows == ft.report(model, x).rows


def test_json_has_no_nan(model):
    """JSON knows no NaN; readers other than Python's refuse the whole text."""
    found = ft.report(model, torch.full((3, 64), math.nan).bfloat16())
    assert math.isnan(found.rows[0].error)
    told = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert told["layers"][0]["error"] == "nan"


def test_what_is_refused(dense, model):
    x = torch.ones(3, 64).bfloat16()
    with pytest.raises(fm.Error, match="the model has no sparse layers"):
        ft.report(dense, x)
    with pytest.raises(fm.Error, match="reference has no Linear 0; give"):
        ft.report(model, x, reference=model)
    with pytest.raises(fm.Error, match=r"layer 0 is \(96, 64\), and in reference"):
        ft.report(model, x, reference=torch.nn.Sequential(torch.nn.Linear(4, 4)))


def test_times_are_those_of_the_layer_and_of_a_dense_one(model, monkeypatch):
    """A stand-in for the clock: there is no GPU here."""
    timed = []

    def milliseconds(once):
        timed.append(once().dtype)
        return 0.001 * len(timed)

    monkeypatch.setattr(reporting, "milliseconds", milliseconds)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())

    class OnGpu(torch.Tensor):
        is_cuda = True

    times = reporting._times(model[0], torch.ones(3, 64).bfloat16().as_subclass(OnGpu))
    assert times == {"time_us": 1.0, "dense_us": 2.0}
    assert timed == [torch.bfloat16] * 2
    row = ft.LayerReport("0", (96, 64), "bf16", **times)
    assert row.ratio == 2.0
