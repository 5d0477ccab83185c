"""Talking to a GPU: what is sent, what comes back, and what may go wrong.

Where there is no GPU, stand-ins for NVIDIA's modules keep "device" memory in
this process, and fail when they are told to.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from fragmenta.cuda.tools import device, launch
from fragmenta.cuda.tools.launch import on_device
from tests.clock import HANG

SOURCE = Path(fm.__file__).parents[1]


# ── NVIDIA's modules, without NVIDIA ────────────────────────────────────────


class Buffer:
    def __init__(self, size, log):
        self.memory = ctypes.create_string_buffer(size)
        self.handle = ctypes.addressof(self.memory)
        self.log = log

    def close(self, stream=None):
        self.log.append("close")


class Module:
    """Machine code: kernels by name, each a function of its buffers."""

    def __init__(self, **kernels):
        self.kernels = kernels

    def get_kernel(self, name):
        return self.kernels[name]


class Fake:
    """``cuda.core`` and ``cuda.bindings``, with a log of what was done."""

    def __init__(self):
        self.log = []
        self.fault = None
        self.broken = False
        self.now = 0.0

    def allocate(self, size, *, stream):
        if self.fault == "memory":
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: not enough memory")
        self.log.append(f"allocate {size}")
        return Buffer(size, self.log)

    def launch(self, stream, config, kernel, *buffers):
        self.log.append(f"launch {config.grid} x {config.block}")
        self.now += 2.0
        if self.fault == "address":
            self.broken = True
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access")
        kernel(*buffers)

    def device(self):
        return SimpleNamespace(
            name="A fake GPU",
            compute_capability=(9, 0),
            properties=SimpleNamespace(multiprocessor_count=7),
            set_current=lambda: self.log.append("current"),
            create_stream=lambda: SimpleNamespace(handle=17, sync=lambda: None),
            allocate=self.allocate,
        )

    def driver(self):
        def copy(to, source, size):
            ctypes.memmove(to, source, size)
            return (700 if self.broken else 0,)

        def record(event, stream):
            assert stream == 17
            event.at = self.now
            return (0,)

        return SimpleNamespace(
            cuMemcpyHtoD=copy,
            cuMemcpyDtoH=copy,
            cuCtxSynchronize=lambda: (700 if self.broken else 0,),
            cuDriverGetVersion=lambda: (0, 13020),
            cuEventCreate=lambda flags: (0, SimpleNamespace(at=0.0)),
            cuEventDestroy=lambda event: self.log.append("destroy"),
            cuEventRecord=record,
            cuEventSynchronize=lambda event: (0,),
            cuEventElapsedTime=lambda a, b: (0, b.at - a.at),
            cuGetErrorName=lambda code: (0, b"CUDA_ERROR_ILLEGAL_ADDRESS"),
            cuGetErrorString=lambda code: (0, b"an illegal access"),
        )

    def modules(self):
        core, bindings = ModuleType("cuda.core"), ModuleType("cuda.bindings")
        core.Device = self.device
        core.LaunchConfig = SimpleNamespace
        core.launch = self.launch
        core.ObjectCode = SimpleNamespace(
            from_cubin=lambda code: ("cubin", code), from_ptx=lambda text: ("ptx", text)
        )
        bindings.driver = self.driver()
        return {
            "cuda": ModuleType("cuda"),
            "cuda.core": core,
            "cuda.bindings": bindings,
        }


@pytest.fixture
def fake(monkeypatch):
    made = Fake()
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    device.present.cache_clear()
    yield made
    device.present.cache_clear()


def add_one(output, given):
    for place in range(len(output.memory)):
        output.memory[place] = (given.memory[place][0] + 1) % 256


ADD = Module(add=add_one)


def test_arrays_go_there_and_back(fake):
    gpu = device.present()
    given = np.arange(6, dtype=np.uint8).reshape(2, 3)
    found = gpu.run(ADD, "add", 2, 3, [given.T], np.zeros((3, 2), np.uint8))
    assert (found == given.T + 1).all()
    assert fake.log[-4:] == ["allocate 6", "launch 2 x 3", "close", "close"]


def test_launches_are_timed_one_by_one(fake):
    given = np.zeros(4, np.uint8)
    found = device.present().time(ADD, "add", 1, 4, [given], given, 3)
    assert found == [0.002] * 3
    assert fake.log.count("destroy") == 2


def test_names_and_versions(fake, monkeypatch):
    gpu = device.present()
    assert (gpu.name, gpu.target, gpu.processors) == ("A fake GPU", "sm_90a", 7)
    found = gpu.versions()
    assert found["cuda_driver"] == "13.2"
    assert found["ptxas"].count(".") == 2
    assert device.present() is gpu
    assert gpu.load(b"\x7fELF") == ("cubin", b"\x7fELF")
    assert gpu.load_text(".version") == ("ptx", b".version")

    def missing():
        raise fm.Error("no ptxas found")

    monkeypatch.setattr(device.assembler, "release", missing)
    assert gpu.versions()["ptxas"] == "the driver's own"


def test_out_of_memory_is_an_error_after_which_life_goes_on(fake):
    gpu, given = device.present(), np.zeros(4, np.uint8)
    fake.fault = "memory"
    with pytest.raises(fm.Error, match="add failed: CUDA_ERROR_OUT_OF_MEMORY: not"):
        gpu.run(ADD, "add", 1, 4, [given], given)
    fake.fault = None
    assert (gpu.run(ADD, "add", 1, 4, [given], given) == 1).all()


def test_after_an_illegal_address_the_gpu_is_lost_to_the_process(fake):
    gpu, given = device.present(), np.zeros(4, np.uint8)
    fake.fault = "address"
    with pytest.raises(fm.Error, match="add failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.run(ADD, "add", 1, 4, [given], given)
    assert fake.log[-2:] == ["close", "close"]
    fake.fault = None
    with pytest.raises(
        fm.Error, match=r"any more, since add failed: .*start a new one"
    ):
        gpu.run(ADD, "add", 1, 4, [given], given)
    op = fm.mma("m16n8k32", a="s8")  # the CPU does not mind
    ones = [part.pack(np.ones(part.shape)) for part in (op.a, op.b, op.c)]
    assert (op.d.unpack(op.execute(*ones)) == 33).all()


def test_what_the_driver_says_is_passed_on(fake):
    gpu, given = device.present(), np.zeros(4, np.uint8)
    fake.broken = True
    with pytest.raises(fm.Error, match="CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access"):
        gpu.run(ADD, "add", 1, 4, [given], given)


def test_a_kernel_that_is_not_there(fake):
    given = np.zeros(4, np.uint8)
    with pytest.raises(fm.Error, match="subtract failed"):
        device.present().run(ADD, "subtract", 1, 4, [given], given)


# ── no GPU ──────────────────────────────────────────────────────────────────


@pytest.fixture
def nothing(monkeypatch):
    """A machine without the extra."""
    for name in ("cuda", "cuda.core", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    device.present.cache_clear()
    yield
    device.present.cache_clear()


def test_without_the_extra_it_says_what_to_install(nothing):
    with pytest.raises(
        fm.errors.NoDevice, match=r"cuda-core is missing; pip install 'frag"
    ):
        device.present()
    op = fm.mma("m16n8k32", a="s8")
    ones = [part.pack(np.ones(part.shape)) for part in (op.a, op.b, op.c)]
    with pytest.raises(fm.errors.NoDevice):
        on_device(op, *ones)


def test_without_a_gpu_it_says_why(fake, monkeypatch):
    def fails():
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    monkeypatch.setattr(sys.modules["cuda.core"], "Device", fails)
    with pytest.raises(
        fm.errors.NoDevice, match=r"no usable GPU .*libcuda.so.1.*pip install"
    ):
        device.present()


@pytest.mark.parametrize("words", [["verify"], ["record", "x"], ["throughput"]])
def test_commands_without_a_gpu(nothing, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: the package cuda-core is missing")
    assert not list(tmp_path.iterdir())


# ── a real one ──────────────────────────────────────────────────────────────


@pytest.fixture
def gpu():
    device.present.cache_clear()
    try:
        return device.present()
    except fm.errors.NoDevice as why:
        pytest.skip(str(why))


@pytest.mark.gpu
def test_a_real_gpu_answers_as_the_package_does(gpu):
    op = fm.mma("m16n8k32", a="s8")
    rng = np.random.default_rng(1)
    bits = [rng.integers(0, 1 << 32, (5, 32, n), np.uint32) for n in (4, 2, 4)]
    assert (on_device(op, *bits) == op.execute(*bits, target=gpu.target)).all()


@pytest.mark.gpu
def test_a_real_gpu_that_runs_out_of_memory_goes_on(gpu):
    with pytest.raises(fm.Error, match="OUT_OF_MEMORY"), gpu.faults("too much"):
        gpu._device.allocate(1 << 44, stream=gpu._stream)
    test_a_real_gpu_answers_as_the_package_does(gpu)


FAULT = """
import numpy as np
import fragmenta as fm
from fragmenta.cuda.source import kernel
from fragmenta.cuda.tools import assembler, device

text = kernel.header("{target}", "8.0") + '''
.visible .entry fault(.param .u64 p)
{{
    .reg .u64 %a;
    mov.u64 %a, 8;
    st.global.u64 [%a], %a;
    ret;
}}
'''
gpu = device.present()
module = gpu.load(assembler.assemble(text, "{target}"))
for attempt in range(2):
    try:
        gpu.run(module, "fault", 1, 1, [], np.zeros(1, np.uint64))
    except fm.Error as why:
        print(why)
op = fm.mma("m16n8k32", a="s8")
ones = [part.pack(np.ones(part.shape)) for part in (op.a, op.b, op.c)]
print(op.d.unpack(op.execute(*ones))[0, 0])
"""


@pytest.mark.gpu
def test_a_real_fault_is_told(gpu):
    program = FAULT.format(target=gpu.target)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    first, second, last = done.stdout.splitlines()
    assert "fault failed: CUDA_ERROR_ILLEGAL_ADDRESS" in first
    assert "any more" in second
    assert last == "33"


@pytest.mark.gpu
def test_the_driver_can_assemble_what_ptxas_would(gpu):
    op = fm.mma("m16n8k16", a="f16", d="f32")
    kernel = launch.TileKernel(op)
    text = launch.source([kernel], gpu.target)
    parts = {"a": op.a, "b": op.b, "c": op.c}
    ones = {name: part.pack(np.ones((2, *part.shape))) for name, part in parts.items()}
    output = launch.poisoned(*kernel.form(2))
    d = launch.run(gpu, gpu.load_text(text), kernel, ones, output)
    assert (op.d.unpack(d) == 17).all()
