"""A stand-in for a GPU: libraries find one in ``torch.cuda``, tensors are on the CPU.

Libraries ask ``torch.cuda`` for the GPU's properties, check ``tensor.is_cuda`` and make
tensors with ``device="cuda"``.  Here the answers are an H200's, every such tensor is
made on the CPU, and streams and events do nothing: all launches are in order.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

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
    gcnArchName="",
    is_integrated=False,
)


class _Stream:
    """All work is in order, so a stream has nothing to do."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cpu")

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Everything has ended."""

    wait_stream = wait_event = record_event = lambda self, *_: None


class _Event:
    """A moment of the clock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0.0

    def record(self, *_: Any) -> None:
        """The moment is now."""
        self.at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds until another event."""
        return (end.at - self.at) * 1000

    def synchronize(self) -> None:
        """Everything has ended."""

    wait = synchronize


class _Device(nullcontext):  # type: ignore[type-arg]
    """``with torch.cuda.device(...)``: there is only one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": lambda: None,
    "_lazy_init": lambda: None,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda device: None,
    "get_device_name": lambda device=None: PROPERTIES.name,
    "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
    "get_device_properties": lambda device=None: PROPERTIES,
    "is_bf16_supported": lambda *_, **__: True,
    "get_arch_list": lambda: ["sm_90"],
    "synchronize": lambda device=None: None,
    "empty_cache": lambda: None,
    "reset_peak_memory_stats": lambda device=None: None,
    "max_memory_allocated": lambda device=None: 0,
    "memory_allocated": lambda device=None: 0,
    "mem_get_info": lambda device=None: (140 << 30, 150 << 30),
    "is_current_stream_capturing": lambda: False,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "device": _Device,
    "device_of": _Device,
    "stream": _Device,
    "Stream": _Stream,
    "Event": _Event,
    "current_stream": lambda device=None: _Stream(),
    "default_stream": lambda device=None: _Stream(),
    "set_stream": lambda stream: None,
}
"""What ``torch.cuda`` says."""

_STAYS = {torch.Tensor.cuda, torch.Tensor.pin_memory}
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_GET_DEVICE = {torch.Tensor.get_device, torch.get_device}
_MOVES = {torch.Tensor.to, torch.Tensor.new_empty, torch.Tensor.new_zeros}


def _here(value: Any) -> Any:
    """The CPU in place of a GPU."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return "cpu"
    return value


class _OnCPU(TorchFunctionMode):
    """Tensors that are made on or moved to a GPU are on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in _STAYS:
            return args[0]
        if func == _IS_CUDA:
            return True
        if func in _GET_DEVICE:
            return 0
        if "device" in named:
            named["device"] = 0 if named["device"] is None else named["device"]
            named["device"] = _here(named["device"])
            if isinstance(named["device"], int):
                named["device"] = "cpu"
        if func in _MOVES:
            args = tuple(map(_here, args))
        return func(*args, **named)


def install() -> None:
    """From now on, this process has a GPU, as far as libraries can see."""
    torch.set_num_threads(1)
    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, answer)
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    torch.accelerator.is_available = lambda: True
    torch.version.cuda = "13.0"
    torch.backends.cuda.is_built = lambda: True
    _OnCPU().__enter__()
