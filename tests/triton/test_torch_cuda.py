"""With ``torch=True``, programs find a GPU in PyTorch, and leave no trace."""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

import fragmenta as fm
from fragmenta.errors import BadCall, KernelFault, KernelHazard
from fragmenta.frontends.triton.torch_cuda import STREAMS
from fragmenta.triton import install, on_cpu, uninstall
from tests.clock import HANG

pytestmark = pytest.mark.triton


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)


# ── everything ends as it began ─────────────────────────────────────────────

PLACES = (
    torch,
    torch.cuda,
    torch.version,
    torch.accelerator,
    torch.backends.cuda,
    torch._C,
    torch.Tensor,
    torch.amp.autocast_mode.autocast,
    DeviceContext,
    threading.Thread,
)


def everything() -> list[dict[str, Any]]:
    return [dict(vars(each)) for each in PLACES]


def changes(before: list[dict[str, Any]]) -> list[str]:
    return [
        f"{place.__name__}.{name}"
        for place, old in zip(PLACES, before, strict=True)
        for name in {*old, *vars(place)}
        if old.get(name) is not vars(place).get(name)
    ]


def use() -> None:
    assert torch.cuda.is_available()
    assert torch.zeros(2, device="cuda").is_cuda


def fail() -> None:
    use()
    raise ZeroDivisionError


def nest() -> None:
    use()
    with on_cpu("sm_80", torch=True):
        assert torch.cuda.get_device_capability() == (8, 0)
        with on_cpu("sm_100a"):  # also one that does not say torch=True
            assert torch.cuda.get_device_capability() == (10, 0)
        use()
    assert torch.cuda.get_device_capability() == (9, 0)
    use()


def install_in_a_block() -> None:
    install("sm_80", torch=True)
    use()
    uninstall()
    use()


def change_the_default() -> None:
    torch.set_default_device("cuda")
    assert torch.zeros(2).is_cuda
    assert torch.get_default_device() == torch.device("cuda:0")


def push_a_mode() -> None:
    mode = DeviceContext("cpu")
    mode.__enter__()
    Left.modes.append(mode)


class Left:
    modes: list[Any] = []  # noqa: RUF012


@pytest.mark.parametrize(
    "action",
    [use, fail, nest, install_in_a_block, change_the_default, push_a_mode],
)
def test_everything_is_as_before(action: Callable[[], None]) -> None:
    before, modes = everything(), _get_current_function_mode_stack()
    try:
        with on_cpu("sm_90a", torch=True):
            assert changes(before)
            action()
    except ZeroDivisionError:
        pass
    for mode in [Left.modes.pop() for _ in Left.modes]:
        assert _get_current_function_mode_stack() == [*modes, mode]
        mode.__exit__(None, None, None)
    assert _get_current_function_mode_stack() == modes
    gone = [each for each in changes(before) if "_GLOBAL_DEVICE" not in each]
    assert not gone
    assert not torch.cuda.is_available()
    x = torch.zeros(2)
    assert x.device == torch.device("cpu")
    assert not x.is_cuda
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2, device="cuda")


def test_without_it_nothing_changes() -> None:
    before = everything()
    with on_cpu("sm_90a"):
        assert not changes(before)
        assert not torch.cuda.is_available()


# ── what programs ask ───────────────────────────────────────────────────────

ASKED = {
    "is_available": lambda: torch.cuda.is_available() is True,
    "count": lambda: torch.cuda.device_count() == 1,
    "current": lambda: torch.cuda.current_device() == 0,
    "capability": lambda: torch.cuda.get_device_capability("cuda:0") == (9, 0),
    "name": lambda: torch.cuda.get_device_name(0) == "NVIDIA H200",
    "processors": lambda: (
        torch.cuda.get_device_properties("cuda").multi_processor_count == 132
    ),
    "bf16": lambda: torch.cuda.is_bf16_supported() is True,
    "version": lambda: torch.version.cuda is not None,
    "accelerator": lambda: torch.accelerator.current_accelerator().type == "cuda",
    "synchronize": lambda: torch.cuda.synchronize() is None,
    "memory": lambda: torch.cuda.mem_get_info()[1] > 2**36,
    "device=": lambda: torch.ones(2, device="cuda").is_cuda,
    "device=0": lambda: torch.ones(2, device=0).is_cuda,
    "torch.device": lambda: torch.ones(2, device=torch.device("cuda", 0)).is_cuda,
    "torch.device(0)": lambda: torch.device(0) == torch.device("cuda:0"),
    "type": lambda: torch.ones(2, device="cuda").device.type == "cuda",
    "index": lambda: torch.ones(2, device="cuda").get_device() == 0,
    "cuda": lambda: torch.ones(2).cuda().is_cuda,
    "to": lambda: torch.ones(2).to("cuda", torch.float16).dtype == torch.float16,
    "to other": lambda: torch.ones(2).to(torch.ones(2, device="cuda")).is_cuda,
    "to number": lambda: torch.ones(2).to(0).is_cuda,
    "cpu": lambda: not torch.ones(2, device="cuda").cpu().is_cuda,
    "to cpu": lambda: torch.ones(2, device="cuda").to("cpu").device.type == "cpu",
    "made on the cpu": lambda: torch.ones(2, device="cpu").is_cpu,
    "computed there": lambda: (torch.ones(2, device="cpu") + 1).is_cpu,
    "computed here": lambda: (torch.ones(2, device="cpu").cuda() + 1).is_cuda,
    "new": lambda: torch.ones(2, device="cuda").new_zeros(3).is_cuda,
    "new there": lambda: torch.ones(2, device="cuda").new_zeros(3, device="cpu").is_cpu,
    "like": lambda: torch.empty_like(torch.ones(2, device="cuda")).is_cuda,
    "from list": lambda: torch.tensor([1], device="cuda").is_cuda,
    "module": lambda: next(torch.nn.Linear(2, 2).to("cuda").parameters()).is_cuda,
    "module.cuda": lambda: next(torch.nn.Linear(2, 2).cuda().parameters()).is_cuda,
    "pinned": lambda: torch.ones(2).pin_memory().to("cuda", non_blocking=True).is_cuda,
    "generator": lambda: (
        torch.rand(
            2, generator=torch.Generator("cuda").manual_seed(1), device="cuda"
        ).tolist()
        == torch.rand(
            2, generator=torch.Generator("cuda").manual_seed(1), device="cuda"
        ).tolist()
    ),
    "isinstance": lambda: isinstance(torch.Generator("cuda"), torch.Generator),
}


@pytest.mark.parametrize("name", ASKED)
def test_programs_find_a_gpu(name: str) -> None:
    with on_cpu("sm_90a", torch=True):
        assert ASKED[name]()


def test_autocast() -> None:
    with on_cpu("sm_90a", torch=True), torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        made = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        assert made.dtype == torch.bfloat16


def test_streams_and_events() -> None:
    with on_cpu("sm_90a", torch=True):
        x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
        stream = torch.cuda.Stream()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            start.record(stream)
            double[1,](x, out, 100, BLOCK=128)
            end.record()
        out.record_stream(stream)
        end.synchronize()
        assert stream.query()
        assert start.elapsed_time(end) > 0
        assert out.sum() == 200


def test_streams_know_who_waits_for_them() -> None:
    def launch(stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            assert torch.cuda.current_stream() == stream
            STREAMS.launched()
        assert torch.cuda.current_stream() == torch.cuda.default_stream() != stream

    waits: list[Callable[[Any, Any], object]] = [
        lambda one, event: one.synchronize(),
        lambda one, event: event.synchronize(),
        lambda one, event: event.wait(),
        lambda one, event: torch.cuda.synchronize(),
        lambda one, event: torch.cuda.current_stream().wait_stream(one),
        lambda one, event: torch.cuda.current_stream().wait_event(event),
    ]
    with on_cpu("sm_90a", torch=True):
        STREAMS.launched()
        assert not STREAMS.waiting  # the default one needs nobody
        for wait in waits:
            one, other = torch.cuda.Stream(), torch.cuda.Stream()
            launch(one)
            other.wait_stream(one)  # now the other one has to be waited for
            assert STREAMS.waiting == {other.number}
            wait(other, other.record_event())
            assert not STREAMS.waiting


def test_what_only_a_gpu_can_is_refused() -> None:
    with on_cpu("sm_90a", torch=True):
        with pytest.raises(BadCall, match=r"torch\.cuda\.CUDAGraph needs a GPU"):
            torch.cuda.CUDAGraph()
        with pytest.raises(BadCall, match=r"there is one GPU, cuda:0; given 1"):
            torch.cuda.set_device(1)
    with pytest.raises(BadCall, match=r"torch must be True or False"), on_cpu(torch=3):  # type: ignore[arg-type]
        pass


def test_a_move_makes_a_copy() -> None:
    with on_cpu("sm_90a", torch=True):
        host = torch.ones(100, device="cpu")
        there = host.cuda()
        assert there.cuda() is there
        assert there.to("cuda:0") is there
        double[1,](there, there, 100, BLOCK=128)
        back = there.cpu()
        there.zero_()
        assert host.sum() == 100
        assert back.sum() == 200


def test_a_kernel_refuses_what_is_on_the_cpu() -> None:
    with on_cpu("sm_90a", torch=True):
        x = torch.ones(100, device="cuda").cpu()
        with pytest.raises(BadCall, match=r'x is on the CPU.*give x\.to\("cuda"\)'):
            double[1,](x, torch.zeros(100, device="cuda"), 100, BLOCK=128)


def test_gradients_are_on_the_gpu() -> None:
    with on_cpu("sm_90a", torch=True):
        x = torch.ones(3, device="cuda").requires_grad_()
        x.sum().backward()
        assert x.grad is not None
        assert x.grad.is_cuda


def test_threads_that_begin_in_the_block() -> None:
    def ask() -> tuple[bool, str]:
        x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
        double[1,](x, out, 100, BLOCK=128)
        return bool(out.sum() == 200), out.device.type

    go, told = threading.Event(), []

    def later() -> None:
        go.wait(HANG)
        told.append(torch.ones(3).is_cuda)

    with on_cpu("sm_90a", torch=True):
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask) for _ in range(6)]
            assert {each.result() for each in asked} == {(True, "cuda")}
        late = threading.Thread(target=later)
        late.start()
    go.set()  # the block has ended, and with it the GPU
    late.join()
    assert told == [False]


# ── pointers in memory ──────────────────────────────────────────────────────


@triton.jit
def through(table, out, BLOCK: tl.constexpr):
    number = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(table + number).to(tl.pointer_type(tl.float32))
    tl.store(out + number * BLOCK + at, tl.load(x + at))


@triton.jit
def into(table, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for number in range(2):
        goal = tl.load(table + number).to(tl.pointer_type(tl.float32))
        tl.store(goal + at, tl.load(x + at) + number)


@triton.jit
def by_number(address, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = address.to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(x + at))


@triton.jit
def twice_removed(table, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    second = tl.load(table).to(tl.pointer_type(tl.int64))
    x = tl.load(second).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(x + at))


def parts(count: int = 3) -> list[torch.Tensor]:
    return [torch.full((64,), float(i), device="cuda") for i in range(count)]


def table_of(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([each.data_ptr() for each in tensors], device="cuda")


def test_a_table_of_pointers() -> None:
    with on_cpu("sm_90a", torch=True):
        given = parts()
        table, out = table_of(given), torch.zeros(3, 64, device="cuda")
        through[3,](table, out, BLOCK=64)
        assert out.mean(1).tolist() == [0, 1, 2]
        into[1,](table, given[2], BLOCK=64)  # what it stores to is also an argument
        assert [each.mean().item() for each in given] == [2, 3, 2]
        by_number[1,](given[1].data_ptr(), out, BLOCK=64)
        assert out[0].tolist() == [3] * 64
        inner = table_of([given[2]])
        twice_removed[1,](table_of([inner]), out, BLOCK=64)
        assert out[0].tolist() == [2] * 64


def test_a_view_has_its_place_in_the_storage() -> None:
    with on_cpu("sm_90a", torch=True):
        whole = torch.arange(256, dtype=torch.float32, device="cuda")
        views = [whole[64:], whole[128:]]
        assert views[1].data_ptr() - views[0].data_ptr() == 256
        assert all(each.data_ptr() % 16 == 0 for each in views)
        out = torch.zeros(2, 64, device="cuda")
        through[2,](table_of(views), out, BLOCK=64)
        assert out[:, 0].tolist() == [64, 128]


def test_only_living_tensors_that_were_asked_are_reached() -> None:
    with on_cpu("sm_90a", torch=True):
        given = parts()
        table, out = table_of(given), torch.zeros(3, 64, device="cuda")
        with pytest.raises(KernelFault, match=r"256 bytes|past the end"):
            through[3,](table + 4, out, BLOCK=64)
        with pytest.raises(KernelFault, match="where nothing is"):
            through[3,](table + (1 << 36) * 5, out, BLOCK=64)
        real = given[0].untyped_storage().data_ptr()
        with pytest.raises(KernelFault, match="where nothing is"):
            through[1,](torch.tensor([real], device="cuda"), out, BLOCK=64)
        del given[1]
        gc.collect()
        with pytest.raises(KernelFault, match="where nothing is"):
            through[3,](table, out, BLOCK=64)
        assert out[0].sum() == 0
    with on_cpu("sm_90a"), pytest.raises(KernelFault, match="where nothing is"):
        through[1,](torch.tensor([given[0].data_ptr()]), out, BLOCK=64)


def test_slots_are_used_again() -> None:
    with on_cpu("sm_90a", torch=True):
        for _ in range(1200):
            torch.zeros(1, device="cuda").data_ptr()
        held = [torch.zeros(1, device="cuda") for _ in range(1100)]
        with pytest.raises(fm.Error, match="that is the most"):
            [each.data_ptr() for each in held]


def test_a_race_between_an_argument_and_a_pointer_is_seen() -> None:
    @triton.jit
    def both(table, x, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        goal = tl.load(table).to(tl.pointer_type(tl.float32))
        tl.store(goal + at, 1.0)
        tl.store(x + (at ^ 1), 2.0)

    with on_cpu("sm_90a", torch=True, watch="report") as cpu:
        given = parts(1)
        both[1,](table_of(given), given[0], BLOCK=64)
        assert cpu.last is not None
        assert "global-race" in {each.rule for each in cpu.last.problems}


def test_a_library_derives_a_class_from_a_graph() -> None:
    with on_cpu("sm_90a", torch=True):

        class Graph(torch.cuda.CUDAGraph):
            pass

        with pytest.raises(BadCall, match="graphs are not captured"):
            Graph()


def test_a_class_that_has_kept_the_address_of_its_tensor() -> None:
    """As libraries do that wrap a tensor with other steps."""

    class Kept:
        def __init__(self, base: torch.Tensor) -> None:
            self.base, self.kept = base, base.data_ptr()
            self.dtype, self.shape, self.stride = base.dtype, base.shape, base.stride
            self.element_size = base.element_size

        def data_ptr(self) -> int:
            return self.kept

    with on_cpu("sm_90a", torch=True):
        x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
        double[1,](Kept(x), Kept(out), 100, BLOCK=128)
        assert out.sum() == 200


# ── memory that nobody has written ──────────────────────────────────────────


@triton.jit
def add_to(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.load(x + at))


EMPTY = {
    "empty": lambda x: torch.empty(64, device="cuda"),
    "like": torch.empty_like,
    "strided": lambda x: torch.empty_strided((64,), (1,), device="cuda"),
    "new": lambda x: x.new_empty(64),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", EMPTY)
def test_what_nobody_wrote_is_told(name: str, target: str) -> None:
    with on_cpu(target, torch=True):
        x = torch.ones(64, device="cuda")
        out = EMPTY[name](x)
        with pytest.raises(KernelHazard, match=r"which\s+nobody\s+has\s+written"):
            add_to[1,](x, out, BLOCK=64)
        for written in (torch.zeros_like(x), EMPTY[name](x).zero_()):
            add_to[1,](x, written, BLOCK=64)
            assert (written == 1).all()
        again = EMPTY[name](x)
        double[1,](x, again, 64, BLOCK=64)  # it is only written
        add_to[1,](x, again, BLOCK=64)
        assert (again == 3).all()


def test_memory_that_is_used_again_counts_as_written() -> None:
    with on_cpu("sm_80", torch=True):
        x = torch.ones(64, device="cuda")
        for _ in range(4):
            part = torch.empty(64, device="cuda")
            part[:32] = 1
            del part
            gc.collect()
            host = torch.empty(64, device="cpu").cuda()
            host[:] = 1
            add_to[1,](x, host, BLOCK=64)
