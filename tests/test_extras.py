"""The error says what to install if a package of an extra is missing."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import fragmenta as fm
from fragmenta.cuda.tools import device
from fragmenta.errors import EXTRAS, missing
from fragmenta.hopper.kernels import launch
from tests.asking import ask

ROOT = Path(__file__).parent.parent


@pytest.fixture
def hide(monkeypatch):
    """A function that makes packages impossible to import, and forgets rooms."""

    def hidden(*names, forget=()):
        for name in [each for each in sys.modules if each.startswith(tuple(forget))]:
            if forget:
                monkeypatch.delitem(sys.modules, name)
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hidden


def test_every_extra_is_real():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert package in [re.split(r"[^\w-]", each)[0] for each in extras[extra]]


@pytest.mark.parametrize("room, package", [("torch", "PyTorch"), ("triton", "Triton")])
def test_a_room_without_its_library(hide, room, package):
    hide(room, f"{room}.backends", forget=(f"fragmenta.{room}",))
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"fragmenta.{room}")
    assert str(caught.value) == (
        f"fragmenta.{room} needs {package}: the package {room} is missing; "
        f"pip install 'fragmenta[{room}]'"
    )
    assert isinstance(caught.value, fm.errors.MissingPackage)
    assert isinstance(caught.value, fm.Error)
    assert caught.value.__suppress_context__  # one sentence, not a chain of causes


def test_tensors_of_a_scaled_product_without_pytorch(hide):
    hide("torch")
    part = fm.quant.to_scaled_mm(fm.quant.quantize("mxfp4", [[1.0, 2.0]]))
    with pytest.raises(
        fm.errors.MissingPackage, match=r"tensors\(\) needs PyTorch: the pack"
    ):
        part.tensors()


def test_a_gpu_without_its_packages(hide):
    hide("cuda", "cuda.core", "cuda.bindings")
    with pytest.raises(
        fm.errors.NoDevice, match=r"cuda-core is missing; pip install 'frag"
    ) as one:
        device.present.__wrapped__()
    with pytest.raises(
        fm.errors.NoDevice, match=r"cuda-bindings is missing; pip install"
    ) as two:
        launch._driver.__wrapped__()
    assert one.value.__suppress_context__
    assert two.value.__suppress_context__


def test_a_picture_without_its_library(hide, tmp_path):
    hide("cairosvg")
    words = ["draw", "mma.m16n8k16.f32.f16.f16", "A", "-o", str(tmp_path / "x.png")]
    done = ask(*words)
    assert done.exit_code
    said = " ".join((done.output + str(done.exception)).split())
    assert "the package cairosvg is missing; pip install 'fragmenta[pictures]'" in said


def test_a_library_that_does_not_load_says_why():
    other = ModuleNotFoundError("No module named 'cffi'", name="cffi")
    assert "cairosvg does not load (No module named 'cffi')" in missing(
        "cairosvg", other
    )
