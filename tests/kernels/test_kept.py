"""The kernels that move kept values, run by the engine, watched for races."""

import os
from functools import cache

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.errors import Error
from fragmenta.hopper.kernels import kept
from fragmenta.hopper.kernels.packing import pack
from fragmenta.hopper.kernels.source import TARGET
from fragmenta.kernels import Kernel
from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.sparse.compression import Compressed, compress, decompress
from fragmenta.reference.sparse.compression import sparse as sparse_of
from tests.thinning import some

SIZES = [(6, 21), (70, 132), (130, 70)]
COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
SCHEDULES = ("eager", "lazy", 1, 2) if COMPLETE else ()
"""Those that are tried beside the usual one."""


@cache
def kernels(a):
    try:
        text = to_ptx(kept.kept_source(a), TARGET, compiler="nvrtc")
    except Error:
        pytest.skip("needs NVRTC")
    return ptx.parse(text).kernels


class Case:
    """Random kept values, with a mask that is sparse in both directions.

    A block of the mask is a pattern with its rows and columns in another order.
    """

    def __init__(self, a, m, k, seed=0):
        rng = np.random.default_rng(seed)
        self.a, self.m, self.k = a, m, k
        self.op, self.granularity = sparse_of(Kernel(a).instruction)
        chunk = self.granularity.chunk
        block = np.kron(np.eye(2), np.ones((chunk // 2, chunk // 2)))
        tall, wide = -(-m // chunk), -(-k // chunk)
        blocks = [
            [
                block[rng.permutation(chunk)][:, rng.permutation(chunk)]
                for _ in range(wide)
            ]
            for _ in range(tall)
        ]
        self.mask = np.block(blocks)[:m, :k].astype(bool)
        self.codes = self.compressed(self.mask).indices
        kind = np.dtype(f"u{dtype(a).storage.itemsize}")
        count = self.codes.shape[1] * self.granularity.kept
        self.values = rng.integers(1, 1 << 8 * kind.itemsize, (m, count), kind)
        self.values[0, ::3] = 0  # zeros are kept, too
        self.values[self.columns(self.codes) >= k] = 0
        sp = Compressed(
            self.values.view(dtype(a).storage), self.codes, self.granularity, k
        )
        self.packed = pack(self.op, sp).data
        self.dense = decompress(self.op, sp)

    def compressed(self, mask):
        return compress(self.op, mask.astype(dtype(self.a).storage), pad=True)

    def columns(self, codes):
        """The column of every kept value."""
        table = np.zeros((16, self.granularity.kept), int)
        for code in self.granularity.codes():
            table[code] = self.granularity.positions(code)
        first = self.granularity.chunk * np.arange(codes.shape[1])
        return (first[:, None] + table[codes]).reshape(len(codes), -1)

    @property
    def words(self):
        """The codes as the kernels read them."""
        units = kept.units(self.a, self.k)
        codes = np.full((self.m, 4 * units), self.granularity.empty, np.uint16)
        codes[:, : self.codes.shape[1]] = self.codes
        return np.bitwise_or.reduce(
            codes.reshape(self.m, units, 4) << np.arange(0, 16, 4, dtype=np.uint16),
            axis=-1,
        ).astype(np.uint16)

    def launch(self, name, values, other):
        """Rows begin on multiples of 16 bytes; what lies between them is not read."""
        pitch = -(-values.shape[1] * values.itemsize // 16) * 16
        room = np.full((self.m, pitch // values.itemsize), 0x5A5A, values.dtype)
        room[:, : values.shape[1]] = values
        arguments = [room, pitch, self.m, self.k, self.words, other]
        if not name.startswith("pack"):
            arguments.append(other.strides[0])
        grid = kept.kept_grid(name, self.a, self.m, self.k)
        kernel = kernels(self.a)[name]
        for schedule in SCHEDULES:
            others = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
            result = kernel.launch(grid, 256, others, schedule=schedule, watch="report")
            assert all(x.severity == "info" for x in result.problems)
        kernel.launch(grid, 256, arguments)
        if SCHEDULES:
            assert others[5].tobytes() == other.tobytes()
        return room[:, : values.shape[1]]

    def room(self, columns):
        """A dense matrix whose rows begin on multiples of 16 bytes."""
        per = 16 // self.values.itemsize
        return np.full((self.m, -(-columns // per) * per), 77, self.values.dtype)


@pytest.fixture(params=some(kept.TRAINED, 2))
def a(request):
    return request.param


@pytest.mark.parametrize("m, k", some(SIZES, 3))
def test_values_are_packed(a, m, k):
    case = Case(a, m, k)
    found = np.full_like(case.packed, 0xAB)
    case.launch("pack", case.values, found)
    assert np.array_equal(found, case.packed)


@pytest.mark.parametrize("m, k", some(SIZES, 3))
def test_the_transpose_is_packed(a, m, k):
    case = Case(a, m, k)
    codes = case.compressed(case.mask.T).indices
    across = case.dense.T
    room = np.zeros((k, codes.shape[1] * case.granularity.chunk), across.dtype)
    room[:, :m] = across
    values = np.take_along_axis(room, case.columns(codes), axis=1)
    wanted = pack(case.op, Compressed(values, codes, case.granularity, m)).data
    found = np.full_like(wanted, 0xAB)
    case.launch("pack_transposed", case.values, found)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("m, k", some(SIZES, 3))
def test_there_and_back(a, m, k):
    case = Case(a, m, k)
    dense = case.room(k)
    case.launch("to_dense", case.values, dense)
    assert np.array_equal(dense[:, :k], case.dense.view(dense.dtype))
    assert (dense[:, k:] == 77).all()
    dense[:, :k][~case.mask] = 13  # what is not kept is not looked at
    found = case.launch("gather", np.zeros_like(case.values), dense)
    # A code of the last chunk may name columns that do not exist: they stay zero.
    again = case.room(k)
    case.launch("to_dense", found, again)
    assert np.array_equal(again[:, :k], case.dense.view(again.dtype))


def test_a_wrong_place_is_noticed():
    """The comparison can fail: another code gives other bytes."""
    case = Case("bf16", 6, 20)
    case.codes = case.codes.copy()
    case.codes[2, 1] = 4 if case.codes[2, 1] != 4 else 9
    found = np.zeros_like(case.packed)
    case.launch("pack", case.values, found)
    assert not np.array_equal(found, case.packed)
