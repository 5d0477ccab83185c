"""Memory whose addresses a kernel loads from memory."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arguments import Pointer, Struct

SLOT = 1000
ADDRESS = SLOT << layout.SLOT_BITS
COPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 table, .param .u64 out) {
    .reg .b64 %rd<6>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [table];
    ld.param.u64 %rd2, [out];
    ld.global.u64 %rd3, [%rd1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.u32 %r2, [%rd5];
    add.s64 %rd5, %rd2, %rd4;
    st.global.u32 [%rd5], %r2;
    ret;
}"""


@pytest.fixture(scope="module")
def kernel() -> ptx.Kernel:
    return ptx.parse(COPY).kernels["copy"]


def table(address: int, memory: np.ndarray) -> Struct:
    stored = np.array([address], np.uint64)
    reaches = (Pointer(memory, 0, slot=SLOT),)
    return Struct(bytes(8), ((0, Pointer(stored, 0)),), reaches=reaches)


def test_memory_has_the_address_that_is_stored(kernel: ptx.Kernel) -> None:
    memory, out = np.arange(64, dtype=np.int32), np.zeros(32, np.int32)
    kernel.launch(1, 32, [table(ADDRESS + 32, memory), out])
    assert out.tolist() == list(range(8, 40))


def test_its_end_is_known(kernel: ptx.Kernel) -> None:
    memory, out = np.arange(64, dtype=np.int32), np.zeros(32, np.int32)
    with pytest.raises(fm.errors.KernelFault, match="points to, which has 256 bytes"):
        kernel.launch(1, 32, [table(ADDRESS + 132, memory), out])


@pytest.mark.parametrize("address", [(SLOT - 1) << layout.SLOT_BITS, 1 << 46])
def test_no_other_address_leads_anywhere(kernel: ptx.Kernel, address: int) -> None:
    memory, out = np.arange(64, dtype=np.int32), np.zeros(32, np.int32)
    with pytest.raises(fm.errors.KernelFault, match="where nothing is"):
        kernel.launch(1, 1, [table(address, memory), out])
    assert not out.any()


def test_an_argument_inside_of_it_is_the_same_memory(kernel: ptx.Kernel) -> None:
    memory = np.arange(64, dtype=np.int32)
    result = kernel.launch(1, 32, [table(ADDRESS, memory), memory[32:]])
    assert memory.tolist() == [*range(32)] * 2
    assert not result.problems
    with pytest.raises(fm.errors.KernelHazard, match="global-race"):
        kernel.launch(2, 32, [table(ADDRESS, memory), memory[1:33]])


def test_arguments_keep_out_of_its_slot(kernel: ptx.Kernel) -> None:
    memory = np.arange(64, dtype=np.int32)
    first = layout.FIRST_ARGUMENT
    stored = np.array([first << layout.SLOT_BITS], np.uint64)
    reaches = (Pointer(memory, 0, slot=first),)
    given = Struct(bytes(8), ((0, Pointer(stored, 0)),), reaches=reaches)
    out = np.zeros(32, np.int32)
    kernel.launch(1, 32, [given, out])
    assert out.tolist() == list(range(32))
