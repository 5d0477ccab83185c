"""What PyTorch is for a candidate: a GPU seems to be there, and operators are counted.

Tensors that are made on a GPU are on the CPU.  Memory that ``torch.empty`` returns is
poisoned and counts as unwritten.  Streams remember whether somebody waited for them.
Operators that compute are recorded; those that make or move tensors are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fragmenta.arrays.checks import Array
from fragmenta.simt.empties import count_as_empty
from fragmenta.simt.layout import POISON

PROPERTIES = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=150 << 30,
    L2_cache_size=60 << 20,
    warp_size=32,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    shared_memory_per_multiprocessor=228 << 10,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
)

MOVES = frozenset(
    [
        "_local_scalar_dense",
        "_reshape_alias",
        "_to_copy",
        "_unsafe_view",
        "alias",
        "arange",
        "as_strided",
        "bernoulli",
        "bernoulli_",
        "cat",
        "chunk",
        "clone",
        "constant_pad_nd",
        "contiguous",
        "copy",
        "copy_",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "eye",
        "fill",
        "fill_",
        "flatten",
        "full",
        "full_like",
        "index_select",
        "is_same_size",
        "lift",
        "lift_fresh",
        "linspace",
        "movedim",
        "narrow",
        "new_full",
        "new_ones",
        "new_zeros",
        "normal",
        "normal_",
        "ones",
        "ones_like",
        "permute",
        "rand",
        "randint",
        "randn",
        "random_",
        "repeat",
        "reshape",
        "resize_",
        "scalar_tensor",
        "select",
        "set_",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "stack",
        "sym_numel",
        "sym_size",
        "sym_stride",
        "t",
        "t_",
        "transpose",
        "transpose_",
        "unbind",
        "unfold",
        "uniform",
        "uniform_",
        "unsqueeze",
        "unsqueeze_",
        "view",
        "view_as",
        "zero_",
        "zeros",
        "zeros_like",
    ]
)
"""Operators of ATen that make, fill, move or reshape tensors, and compute nothing."""
EMPTIES = frozenset(
    ["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"]
)


@dataclass
class Record:
    """What PyTorch was asked to do during a call."""

    operators: dict[str, int] = field(default_factory=dict)
    """The operators that compute: how many elements each of them read, in all."""
    kept: list[Array] = field(default_factory=list)
    """Memory that counts as unwritten, as long as it is kept here."""
    waiting: set[int] = field(default_factory=set)
    """Streams with work that nobody has waited for."""
    stream: int = 0
    """The stream that launches go to; 0 is the default one."""

    def launched(self) -> None:
        """A kernel was launched."""
        if self.stream:
            self.waiting.add(self.stream)

    def restart(self) -> None:
        """A call begins."""
        self.operators.clear()
        self.kept.clear()
        self.waiting.clear()
        self.stream = 0


RECORD = Record()


# ── torch.cuda ──────────────────────────────────────────────────────────────


class _Stream:
    """A stream; launches are carried out in order, whichever they go to."""

    cuda_stream = 0
    made = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.device = torch.device("cpu")
        _Stream.made += 1
        self.number = _Stream.made
        self._before = 0

    def __enter__(self) -> _Stream:
        self._before, RECORD.stream = RECORD.stream, self.number
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        RECORD.stream = self._before

    def synchronize(self) -> None:
        """The host waits for it."""
        RECORD.waiting.discard(self.number)

    def query(self) -> bool:
        """All work has ended."""
        return True

    def wait_stream(self, other: _Stream) -> None:
        """This stream waits for another one."""
        self._wait(other.number)

    def wait_event(self, event: _Event) -> None:
        """This stream waits for an event of another one."""
        self._wait(event.stream)

    def record_event(self, event: _Event | None = None) -> _Event:
        """An event of this stream."""
        made = _Event() if event is None else event
        made.record(self)
        return made

    def _wait(self, number: int) -> None:
        if number in RECORD.waiting and self.number != number:
            RECORD.waiting.discard(number)
            if self.number:
                RECORD.waiting.add(self.number)


class _Default(_Stream):
    """The stream that the caller waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def synchronize(self) -> None:
        """All work of this stream has ended."""


class _Event:
    """A moment of the clock, on a stream."""

    def __init__(self, *_: object, **__: object) -> None:
        self.at, self.stream = 0.0, 0

    def record(self, stream: _Stream | None = None) -> None:
        """The moment is now."""
        self.at = time.perf_counter()
        self.stream = RECORD.stream if stream is None else stream.number

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds until another event."""
        return (end.at - self.at) * 1000

    def synchronize(self) -> None:
        """The host waits for it."""
        RECORD.waiting.discard(self.stream)

    def wait(self, stream: _Stream | None = None) -> None:
        """A stream waits for it."""
        (_current() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """All work has ended."""
        return True


class _Device(nullcontext):  # type: ignore[type-arg]
    """``with torch.cuda.device(...)``: there is only one."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


def _current(device: object = None) -> _Stream:
    made = _Default()
    made.number = RECORD.stream
    return made


def _with_stream(stream: _Stream | None) -> object:
    return nullcontext() if stream is None else stream


def _set_stream(stream: _Stream) -> None:
    RECORD.stream = stream.number


def _constant(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


ANSWERS: dict[str, object] = {
    "is_available": _constant(True),
    "is_initialized": _constant(True),
    "init": _constant(None),
    "_lazy_init": _constant(None),
    "device_count": _constant(1),
    "current_device": _constant(0),
    "set_device": _constant(None),
    "get_device_name": _constant(PROPERTIES.name),
    "get_device_capability": _constant((PROPERTIES.major, PROPERTIES.minor)),
    "get_device_properties": _constant(PROPERTIES),
    "is_bf16_supported": _constant(True),
    "get_arch_list": _constant(["sm_90"]),
    "synchronize": lambda *_: RECORD.waiting.clear(),
    "empty_cache": _constant(None),
    "reset_peak_memory_stats": _constant(None),
    "max_memory_allocated": _constant(0),
    "memory_allocated": _constant(0),
    "mem_get_info": _constant((140 << 30, 150 << 30)),
    "is_current_stream_capturing": _constant(False),
    "manual_seed": _constant(None),
    "manual_seed_all": _constant(None),
    "device": _Device,
    "device_of": _Device,
    "stream": _with_stream,
    "Stream": _Stream,
    "Event": _Event,
    "current_stream": _current,
    "default_stream": lambda device=None: _Default(),
    "set_stream": _set_stream,
}
"""What ``torch.cuda`` says."""

_STAYS = {torch.Tensor.cuda, torch.Tensor.pin_memory}
_IS_CUDA = torch.Tensor.is_cuda.__get__
_GET_DEVICE = {torch.Tensor.get_device, torch.get_device}
_MOVES_TO = {torch.Tensor.to, torch.Tensor.new_empty, torch.Tensor.new_zeros}


def _here(value: object) -> object:
    """The CPU in place of a GPU."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return "cpu"
    return value


class _OnCPU(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Tensors that are made on or moved to a GPU are on the CPU."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        if func in _STAYS:
            return args[0]
        if func == _IS_CUDA:
            return True
        if func in _GET_DEVICE:
            return 0
        if "device" in named:
            found = _here(named["device"])
            named["device"] = "cpu" if isinstance(found, int) else found
        if func in _MOVES_TO:
            args = tuple(map(_here, args))
        return func(*args, **named)


class _Recorded(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Poisons what ``torch.empty`` returns, and counts operators that compute."""

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        made = func(*args, **(kwargs or {}))
        name = str(getattr(func, "__name__", func)).partition(".")[0]
        if name in EMPTIES:
            poison(made)
        elif name not in MOVES:
            read = sum(_size(each) for each in args)
            RECORD.operators[name] = RECORD.operators.get(name, 0) + read
        return made


def _size(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.numel())
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return 0


def poison(tensor: object) -> None:
    """Fill the memory of a new tensor, which counts as unwritten from then on."""
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
        return
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return
    with torch._C._DisableTorchDispatch():
        memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    words = -(-memory.size // 4)
    memory[:] = np.full(words, POISON, np.uint32).view(np.uint8)[: memory.size]
    count_as_empty(memory)
    RECORD.kept.append(memory)


def install() -> None:
    """From now on, this process has a GPU, as far as a candidate can see."""
    torch.set_num_threads(1)
    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, answer)
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    torch.accelerator.current_accelerator = _constant(torch.device("cuda"))
    torch.accelerator.is_available = _constant(True)
    torch.version.cuda = "13.0"
    torch.backends.cuda.is_built = _constant(True)
    _OnCPU().__enter__()
    _Recorded().__enter__()
