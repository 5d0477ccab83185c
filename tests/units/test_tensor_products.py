"""Products of ``tcgen05.mma`` in machine code have the bits of ``execute``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.tensor_forms import (
    Key,
    TensorForms,
    TensorProduct,
    multiply,
)
from fragmenta.engine.units.tmem_cells import TensorMemory
from fragmenta.reference.execution.tcgen05 import execute
from fragmenta.reference.registers.tensor_fragment import TensorAddress, TensorFragment
from fragmenta.reference.shared.descriptor import Descriptor, extent
from tests.thinning import repeats

TARGET = "sm_100a"
D_COLUMN = 32
COLUMNS = {"A": 320, "scale_A": 400, "scale_B": 440}
CASES: dict[str, dict[str, Any]] = {
    "f16": {"shape": "m128n64k16", "a": "f16", "d": "f32"},
    "f16 into f16": {"shape": "m128n32k16", "a": "f16", "d": "f16"},
    "bf16, 64 rows": {"shape": "m64n64k16", "a": "bf16", "d": "f32"},
    "bf16, many columns": {"shape": "m128n256k16", "a": "bf16", "d": "f32"},
    "tf32": {"shape": "m128n32k8", "a": "tf32", "d": "f32"},
    "e4m3": {"shape": "m128n48k32", "a": "e4m3", "d": "f32"},
    "e5m2 and e4m3": {"shape": "m64n16k32", "a": "e5m2", "b": "e4m3", "d": "f32"},
    "mxf8": {"shape": "m128n64k32", "a": "e4m3", "d": "f32", "kind": "mxf8f6f4"},
    "a pair": {"shape": "m256n64k16", "a": "f16", "d": "f32", "cta_group": 2},
    "a pair, 128 rows": {"shape": "m128n64k16", "a": "f16", "d": "f32", "cta_group": 2},
    "s8": {"shape": "m128n64k32", "a": "s8"},
    "u8 and s8, 64 rows": {"shape": "m64n24k32", "a": "u8", "b": "s8"},
    "s8, saturated": {"shape": "m128n16k32", "a": "s8", "saturate": True},
    "s8, a pair": {"shape": "m256n64k32", "a": "s8", "cta_group": 2},
    "mxf4": {"shape": "m128n64k64", "a": "e2m1", "kind": "mxf4", "d": "f32"},
    "nvfp4": {"shape": "m128n40k64", "a": "e2m1", "kind": "mxf4nvf4", "d": "f32"},
    "nvfp4, a pair": {
        "shape": "m256n64k64",
        "a": "e2m1",
        "kind": "mxf4nvf4",
        "d": "f32",
        "cta_group": 2,
    },
    "e2m3 and e4m3": {"shape": "m128n64k32", "a": "e2m3", "b": "e4m3", "d": "f32"},
    "e2m1 and e3m2": {"shape": "m64n16k32", "a": "e2m1", "b": "e3m2", "d": "f16"},
    "mxf6 and mxf4": {
        "shape": "m128n16k32",
        "a": "e3m2",
        "b": "e2m1",
        "d": "f32",
        "kind": "mxf8f6f4",
    },
    "weights stay": {"shape": "m32n64k16", "a": "f16", "d": "f32", "ws": True},
    "A and B transposed": {
        "shape": "m128n64k16",
        "a": "bf16",
        "d": "f32",
        "transpose_a": True,
        "transpose_b": True,
    },
}
LEFT: dict[str, dict[str, Any]] = {
    "sparse": {"shape": "m128n64k32", "a": "f16", "d": "f32", "sp": True},
    "negated": {"shape": "m128n64k16", "a": "f16", "d": "f32", "negate_a": True},
}
"""Forms that Python computes."""


def made(case: dict[str, Any]) -> Any:
    rest = dict(case)
    return fm.tcgen05(rest.pop("shape"), **rest)


class Setting:
    """Memories with random operands of a product."""

    def __init__(self, op: Any, a_in_cells: bool = False, scale: float = 1.0) -> None:
        self.op, self.pair = op, op.cta_group == 2
        self.rng = np.random.default_rng(0)
        count = 2 if self.pair else 1
        self.tmem = np.full((count, 128, 512), 0x7F7F7F7F, np.uint32)
        self.shared = np.zeros((count, 1 << 17), np.uint8)
        self.given: dict[str, Any] = {"d": TensorAddress(0, D_COLUMN)}
        self._cells("D", D_COLUMN, scale)
        for name in ("A", "B"):
            if name == "A" and a_in_cells:
                self._cells(name, COLUMNS[name], scale)
                self.given["a"] = TensorAddress(0, COLUMNS[name])
            else:
                self._tile(name, scale)
        if op.scale_vec:
            for name in ("scale_A", "scale_B"):
                self._cells(name, COLUMNS[name], scale)
                self.given[name.lower()] = TensorAddress(0, COLUMNS[name])

    def _values(self, shape: tuple[int, ...], of: Any, scale: float) -> Any:
        if of.name == "ue4m3":  # 127 is NaN
            return self.rng.integers(20, 128 if scale > 1 else 127, shape, np.uint8)
        if of.name.startswith("ue"):
            return self.rng.integers(100, 150, shape).astype(np.uint8)
        values = self.rng.normal(size=shape) * scale
        return of.encode(values.astype(np.float32).astype(of.storage))

    def _cells(self, name: str, column: int, scale: float) -> None:
        part = self.op.fragment(name)
        assert isinstance(part, TensorFragment)
        bits = self._values(part.shape, part.dtype, scale)
        slots = part.container.insert(bits)
        image = self.tmem if part.pair else self.tmem[0]
        found = part.place(slots, address=column, image=image)
        self.tmem[:] = found  # both blocks of a pair have the same scales

    def _tile(self, name: str, scale: float) -> None:
        rows, k = extent(self.op, name)
        of = self.op.types[name.lower()]
        start = 2048 if name == "A" else 40960
        for image in self.shared:
            shape = (rows, k) if name == "A" else (k, rows)
            bits = self._values(shape, of, scale)
            filled, found = fm.shared.tile(
                self.op, name, of.decode(bits), start=start, image=image
            )
            image[:] = filled[: image.size]
        self.given[name.lower()] = found.encode()

    def by_python(self, enable: int) -> Any:
        given = dict(self.given)
        a, b = given.pop("a"), given.pop("b")
        memories = (self.tmem, self.shared)
        tmem, shared = memories if self.pair else (m[0] for m in memories)
        found = execute(
            self.op,
            tmem,
            a,
            b,
            smem=shared,
            target=TARGET,
            enable_input_d=enable,
            **given,
        )
        return found.reshape(self.tmem.shape)

    def by_machine_code(self, enable: int) -> tuple[int, Any]:
        names = ("a", "b", "d", "scale_a", "scale_b")
        of = [self.given.get(name) for name in names]
        lanes = [e.lane if isinstance(e, TensorAddress) else None for e in of]
        form = TensorForms(TARGET).of(Key(self.op, 0, tuple(lanes)))
        assert form.able
        scratch = np.zeros(at.SCRATCH + 64, np.uint8)
        scratch = scratch[-address_of(scratch) % 64 :]
        tensors = [TensorMemory(False, scratch) for _ in self.tmem]
        for each, image in zip(tensors, self.tmem, strict=True):
            each.image[:] = image
        places = [
            each.column
            if isinstance(each, TensorAddress)
            else 0
            if each is None
            else form.source(number, each).address
            for number, each in enumerate(of)
        ]
        record = TensorProduct(
            form,
            places,
            enable,
            [each.address for each in tensors],
            [address_of(each) for each in self.shared],
        )
        status = multiply()(record.address)
        return status, np.stack([each.image for each in tensors])


# Every product; whether it adds to D takes turns.
@repeats(together=1)
@pytest.mark.parametrize("enable", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_machine_code_has_the_bits_of_execute(name: str, enable: int) -> None:
    setting = Setting(made(CASES[name]))
    status, found = setting.by_machine_code(enable)
    assert status == at.DONE
    assert (found == setting.by_python(enable)).all()
    assert (found != setting.tmem).any()


@pytest.mark.parametrize("name", ["f16", "bf16, 64 rows", "e4m3", "a pair"])
def test_a_may_be_in_tensor_memory(name: str) -> None:
    setting = Setting(made(CASES[name]), a_in_cells=True)
    status, found = setting.by_machine_code(1)
    assert status == at.DONE
    assert (found == setting.by_python(1)).all()


def test_infinities_are_left_to_python_and_nothing_is_changed() -> None:
    setting = Setting(made(CASES["f16"]))
    setting.shared[0, 2048:2050] = 0, 0x7C
    status, found = setting.by_machine_code(1)
    assert status == at.PYTHON
    assert (found == setting.tmem).all()


def test_copies_of_scales_that_differ_are_left_to_python() -> None:
    setting = Setting(made(CASES["mxf8"]))
    setting.tmem[0, 64, COLUMNS["scale_A"]] ^= 1
    status, found = setting.by_machine_code(1)
    assert status == at.PYTHON
    assert (found == setting.tmem).all()


@pytest.mark.parametrize("name", ["scale_A", "scale_B"])
def test_scales_that_their_type_does_not_have_are_left_to_python(name: str) -> None:
    setting = Setting(made(CASES["nvfp4"]))
    setting.tmem[0, 3::32, COLUMNS[name]] |= 0x80  # all copies of it
    status, found = setting.by_machine_code(1)
    assert status == at.PYTHON
    assert (found == setting.tmem).all()


@pytest.mark.parametrize("name", LEFT)
def test_other_forms_are_left_to_python(name: str) -> None:
    lanes = (None, None, 0, *((0, 0) if "kind" in LEFT[name] else (None, None)))
    assert not TensorForms(TARGET).of(Key(made(LEFT[name]), 0, lanes)).able


def test_descriptors_a_whole_pattern_apart_share_a_table() -> None:
    op = made(CASES["f16"])
    form = TensorForms(TARGET).of(Key(op, 0, (None, None, 0, None, None)))
    words = [
        Descriptor(start, 16, 1024, 128, family="tcgen05").encode()
        for start in (2048, 2048 + 32, 7 * 1024)
    ]
    first, moved, other = (form.source(at.A, word) for word in words)
    tables = [int(each.longs[at.SOURCE_TABLE >> 3]) for each in (first, moved, other)]
    assert tables[0] == tables[2] != tables[1]
    assert int(other.longs[at.SOURCE_START >> 3]) == 7 * 1024
