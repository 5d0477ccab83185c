"""Makes PyTorch without a GPU answer as if it had the one that kernels are run for.

Libraries ask ``torch.cuda`` for the GPU's properties and its streams.  The answers are
those of a card of the target.  All launches are in order, whichever stream they go to;
:data:`STREAMS` knows which streams have work that nobody waited for.
:mod:`fragmenta.frontends.triton.tensors` has what tensors do.  All patches are undone
when the last block ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import NoReturn, Protocol, TypeAlias

import torch
from torch.overrides import _len_torch_function_stack, _pop_mode, _push_mode
from torch.utils import _device as default_device
from triton._C.libtriton import nvidia

from fragmenta.errors import BadCall
from fragmenta.frontends.protocol import Patches
from fragmenta.frontends.triton.cards import TritonDevice
from fragmenta.frontends.triton.tensors import (
    CPU,
    GPU,
    Function,
    Given,
    Named,
    OnCPU,
    done_here,
    here,
    is_gpu,
)


class Clock(Protocol):
    """What an event of a stream records."""

    def record(self, stream: object = None) -> None:
        """Take the moment."""

    def elapsed_time(self, end: object) -> float:
        """Milliseconds until another one."""


# ── what torch.cuda has ─────────────────────────────────────────────────────


class Streams:
    """The streams of a GPU: where launches go, and who waits for whom."""

    def __init__(self) -> None:
        self.current = 0
        """The stream that launches go to; 0 is the default one."""
        self.waiting: set[int] = set()
        """Streams with work that neither the host nor the default one waited for."""
        self._made = 0

    def new(self) -> int:
        """The number of a new stream."""
        self._made += 1
        return self._made

    def restart(self) -> None:
        """Launches go to the default stream, and all work is done."""
        self.current = 0
        self.waiting.clear()

    def launched(self) -> None:
        """A kernel was launched."""
        if self.current:
            self.waiting.add(self.current)

    def wait(self, number: int, other: int) -> None:
        """A stream waits for another one: what is left of that is its own work."""
        if other in self.waiting and number != other:
            self.waiting.discard(other)
            if number:
                self.waiting.add(number)


STREAMS = Streams()


class Stream:
    """A stream of a GPU on which all work is in order."""

    cuda_stream = stream_id = device_index = priority = 0
    device_type = 1
    device = GPU

    def __init__(self, *_: object, **__: object) -> None:
        self.number = STREAMS.new()
        self._before: list[int] = []

    @classmethod
    def of(cls, number: int) -> Stream:
        """The stream of a number."""
        made = cls()
        made.number = number
        return made

    def __enter__(self) -> Stream:
        self._before.append(STREAMS.current)
        STREAMS.current = self.number
        return self

    def __exit__(self, *_: object) -> None:
        STREAMS.current = self._before.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.number == other.number

    def __hash__(self) -> int:
        return self.number

    def query(self) -> bool:
        """All work has ended."""
        return True

    def synchronize(self, *_: object) -> None:
        """The host waits for it."""
        STREAMS.waiting.discard(self.number)

    def wait_stream(self, other: Stream) -> None:
        """This stream waits for another one."""
        STREAMS.wait(self.number, other.number)

    def wait_event(self, event: object) -> None:
        """This stream waits for an event of another one."""
        STREAMS.wait(self.number, int(getattr(event, "stream", 0)))

    def record_event(self, event: Clock | None = None) -> Clock:
        """Record an event, or a new one."""
        made: Clock = torch.cuda.Event() if event is None else event
        made.record(self)
        return made


class _OnStream:
    """``with torch.cuda.stream(...)``."""

    def __init__(self, stream: Stream | None = None) -> None:
        self._stream = Stream.of(STREAMS.current) if stream is None else stream

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *_: object) -> None:
        self._stream.__exit__()


def _set_stream(stream: Stream) -> None:
    STREAMS.current = stream.number


def event_class(clock: type[Clock]) -> type:
    """The class ``torch.cuda.Event`` for a clock."""

    class Event(clock):  # type: ignore[valid-type, misc]
        """A moment of a stream."""

        def __init__(self, *_: object, **__: object) -> None:
            super().__init__()
            self.cuda_event = self.stream = 0

        def record(self, stream: Stream | None = None) -> None:
            """The moment is now, on this stream or the current one."""
            super().record(stream)
            self.stream = STREAMS.current if stream is None else stream.number

        def query(self) -> bool:
            """All work has ended."""
            return True

        def synchronize(self) -> None:
            """The host waits for it."""
            STREAMS.waiting.discard(self.stream)

        def wait(self, stream: Stream | None = None) -> None:
            """A stream waits for it."""
            STREAMS.wait(
                STREAMS.current if stream is None else stream.number, self.stream
            )

    return Event


class _One(nullcontext[None]):
    """``with torch.cuda.device(...)`` and the like: there is only one."""

    idx = prev_idx = 0

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


def _nothing(*_: object, **__: object) -> None:
    """All work has ended, and no memory is a GPU's."""


def properties(card: TritonDevice) -> SimpleNamespace:
    """What ``torch.cuda.get_device_properties`` returns."""
    major, minor = card.capability
    return SimpleNamespace(
        name=card.name,
        major=major,
        minor=minor,
        multi_processor_count=card.processors,
        total_memory=card.memory,
        L2_cache_size=card.l2,
        warp_size=32,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=card.shared,
        shared_memory_per_multiprocessor=card.shared + 1024,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=card.threads,
        max_threads_per_block=1024,
        gcnArchName="",
        is_integrated=0,
        is_multi_gpu_board=0,
    )


def _seed(seed: int) -> None:
    torch.random.default_generator.manual_seed(int(seed))


def _answers(card: Callable[[], TritonDevice], clock: type[Clock]) -> dict[str, object]:
    """What ``torch.cuda`` says."""

    def only(device: object = None) -> None:
        """Refuse another GPU than the only one."""
        number = device if isinstance(device, int) else torch.device(device or 0).index
        if number not in (None, 0, -1):
            raise BadCall(f"there is one GPU, cuda:0; given {device!r}")

    def about(answer: Callable[[], object]) -> Callable[..., object]:
        def asked(device: object = None) -> object:
            if device is not None and device != "cuda":
                only(device)
            return answer()

        return asked

    constant: dict[str, object] = {
        "is_available": True,
        "is_initialized": True,
        "_is_compiled": True,
        "is_tf32_supported": True,
        "device_count": 1,
        "current_device": 0,
        "is_current_stream_capturing": False,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
    }
    done = "init _lazy_init empty_cache ipc_collect"
    done += (
        " reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached"
    )
    done += " set_per_process_memory_fraction"
    contexts = "device device_of"
    # The compiler has a table by function: no two names have the same one.
    answers: dict[str, object] = {
        **{name: lambda *_, _is=value, **__: _is for name, value in constant.items()},
        **{name: lambda *_, **__: None for name in done.split()},
        **{name: type(name, (_One,), {}) for name in contexts.split()},
        **{name: type(name, (_OnStream,), {}) for name in ("stream", "StreamContext")},
        "synchronize": lambda *_, **__: STREAMS.waiting.clear(),
        "current_stream": lambda *_, **__: Stream.of(STREAMS.current),
        "default_stream": lambda *_, **__: Stream.of(0),
        "get_stream_from_external": lambda *_, **__: Stream(),
        "set_stream": _set_stream,
        "Stream": Stream,
        "ExternalStream": type("ExternalStream", (Stream,), {}),
        "Event": event_class(clock),
        "set_device": about(lambda: None),
        "get_device_name": about(lambda: card().name),
        "get_device_capability": about(lambda: card().capability),
        "get_device_properties": about(lambda: properties(card())),
        "mem_get_info": about(lambda: (card().memory, card().memory)),
        "is_bf16_supported": lambda *_, **__: card().capability >= (8, 0),
        "get_arch_list": lambda: ["sm_{}{}".format(*card().capability)],
        "manual_seed": _seed,
        "manual_seed_all": lambda seed: _seed(seed),  # noqa: PLW0108 - see above
        "seed": torch.random.seed,
        "initial_seed": torch.random.initial_seed,
        "get_rng_state": lambda device=None: torch.random.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.random.set_rng_state(state),
    }
    graphs = "graph make_graphed_callables graph_pool_handle"
    refused = {name: _refused(name) for name in graphs.split()}
    return {**answers, **refused, "CUDAGraph": _NoGraph}


class _NoGraph:
    """What cannot be made; libraries have classes that are derived from it."""

    def __init__(self, *_: object, **__: object) -> None:
        _refused("CUDAGraph")()


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise BadCall(
            f"torch.cuda.{name} needs a GPU: graphs are not captured here; call the "
            "functions one after the other"
        )

    return refuse


# ── patches ─────────────────────────────────────────────────────────────────


def _patch_torch(patches: Patches, answers: dict[str, object]) -> None:
    for name, answer in answers.items():
        patches.set(torch.cuda, name, answer)
    patches.set(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
    patches.set(torch.version, "cuda", torch.version.cuda or "13.0")
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    accelerator = torch.accelerator
    patches.set(
        accelerator, "current_accelerator", lambda *_, **__: torch.device(GPU.type)
    )
    patches.set(accelerator, "is_available", lambda: True)
    patches.set(accelerator, "device_count", lambda: 1)
    patches.set(accelerator, "synchronize", _nothing)
    for name in ("current_device_index", "current_device_idx"):
        patches.set(accelerator, name, lambda: 0)
    patches.set(torch, "Generator", _Generator)
    patches.set(torch.Tensor, "record_stream", _nothing)
    cublas = getattr(nvidia, "cublas", None)
    if cublas is not None:
        patches.set(cublas, "CublasLt", _CublasLt)
    _patch_defaults(patches)


def _patch_defaults(patches: Patches) -> None:
    """Devices that are given to what is no function of tensors."""
    constructors = default_device._device_constructors()

    def made_there(
        self: default_device.DeviceContext,
        func: Function,
        types: object,
        args: Given = (),
        kwargs: Named | None = None,
    ) -> object:
        # Its place is below OnCPU or above it: what it asks for is done here.
        if func in constructors and (kwargs or {}).get("device") is None:
            return done_here(func, args, {**(kwargs or {}), "device": self.device})
        return func(*args, **(kwargs or {}))

    patches.set(default_device.DeviceContext, "__torch_function__", made_there)
    autocast = torch.amp.autocast_mode.autocast
    begun = autocast.__init__

    def cast(self: object, device_type: object, *args: object, **named: object) -> None:
        begun(self, "cpu" if is_gpu(device_type) else device_type, *args, **named)

    patches.set(autocast, "__init__", cast)
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        asked = getattr(torch, name)
        patches.set(torch, name, lambda *a, _asked=asked: _asked(*_type_here(a)))
    load = torch.load

    def loaded(
        file: object, map_location: object = None, *args: object, **named: object
    ) -> object:
        where = CPU if map_location is None else here(map_location)
        return load(file, where, *args, **named)

    patches.set(torch, "load", loaded)


def _type_here(args: tuple[object, ...]) -> list[object]:
    return ["cpu" if each == "cuda" else each for each in args]


class _GeneratorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(metaclass=_GeneratorType):
    """A generator of random numbers; that of a GPU is on the CPU, too."""

    def __new__(cls, device: object = "cpu") -> torch._C.Generator:
        return torch._C.Generator(here(device) if not is_gpu(device) else CPU)


_Tensor: TypeAlias = torch.Tensor


class _CublasLt:
    """The cuBLAS that Triton brings for comparisons: PyTorch computes its products."""

    def __init__(self, workspace: object) -> None:
        pass

    def matmul(self, a: _Tensor, b: _Tensor, c: _Tensor) -> None:
        """``c`` becomes the product of ``a`` and the transposed ``b``."""
        c.copy_(a.float() @ b.float().T)

    def gemm(
        self,
        a: _Tensor,
        b: _Tensor,
        c: _Tensor,
        d: _Tensor,
        alpha: float = 1,
        beta: float = 0,
    ) -> None:
        """``d`` becomes ``alpha a b' + beta c``."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())

    def __getattr__(self, name: str) -> NoReturn:
        raise BadCall(f"cuBLAS needs a GPU: {name} is not computed here")


# ── switching ───────────────────────────────────────────────────────────────


class _Pretence:
    """Whether PyTorch has a GPU, as far as programs can see."""

    def __init__(self) -> None:
        self._blocks = 0
        self._patches = Patches()
        self._mode = OnCPU()

    def begin(self, card: Callable[[], TritonDevice], clock: type[Clock]) -> None:
        self._blocks += 1
        if self._blocks > 1:
            return
        self._mode = OnCPU()
        self._mode.active = True
        STREAMS.restart()
        _patch_torch(self._patches, _answers(card, clock))
        self._patch_threads(self._mode)
        _push_mode(self._mode)

    def end(self) -> None:
        self._blocks -= 1
        if self._blocks:
            return
        self._mode.active = False
        self._patches.undo()
        default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        if default is not None and is_gpu(default.device):
            torch.set_default_device(None)  # no GPU is there any more
        # Other modes may have been pushed since.
        stack = [_pop_mode() for _ in range(_len_torch_function_stack())]
        for each in reversed(stack):
            if each is not self._mode:
                _push_mode(each)

    def _patch_threads(self, mode: OnCPU) -> None:
        """Threads that begin now have the mode, too: each has modes of its own."""
        begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def with_mode(thread: threading.Thread) -> None:
            _push_mode(mode)
            begin(thread)

        self._patches.set(threading.Thread, "_bootstrap_inner", with_mode)


_PRETENCE = _Pretence()


def begin(card: Callable[[], TritonDevice], clock: type[Clock]) -> None:
    """From now on, PyTorch has a GPU; :func:`end` ends it."""
    _PRETENCE.begin(card, clock)


def end() -> None:
    """Undo one :func:`begin`."""
    _PRETENCE.end()
