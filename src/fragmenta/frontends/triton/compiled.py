"""Runs the Triton kernels that ``torch.compile`` makes without a GPU.

Inductor writes Triton kernels for GPUs.  Here it writes them for tensors on the CPU, as
for a GPU of the target, and they run in :mod:`fragmenta.ptx`.  What Inductor asks about
the device, how it measures and where it keeps what it compiled is replaced, and put
back in the end.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

from fragmenta.errors import MissingPackage, missing

try:
    import torch
except ImportError as why:
    raise MissingPackage(
        f"fragmenta.triton.inductor needs PyTorch: {missing('torch', why)}"
    ) from None
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo import device_interface
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.runtime import benchmarking, hints, triton_helpers
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch.utils import _triton as triton_support

from fragmenta.frontends.protocol import Patches
from fragmenta.frontends.triton.cards import TritonDevice
from fragmenta.frontends.triton.driver import CPU, on_cpu
from fragmenta.frontends.triton.tensors import CPU as HERE
from fragmenta.frontends.triton.tensors import GPU
from fragmenta.frontends.triton.torch_cuda import Stream, properties
from fragmenta.launch.frames import ORIGINS, Frame, is_library

_Method: TypeAlias = Callable[..., object]


@contextmanager
def inductor(
    target: str = "sm_90a",
    *,
    torch: bool = False,
    autotune: str = "first",
    **options: object,
) -> Iterator[CPU]:
    """In this block, ``torch.compile`` makes Triton kernels, and they run here.

    Forward and backward are compiled, and so are Triton kernels of your own inside of a
    compiled function.  The options are those of :func:`on_cpu`.  Functions that were
    compiled before are compiled anew, here and after the block::

        with fragmenta.triton.inductor("sm_90a") as cpu:
            loss = torch.compile(model)(x).sum()
            loss.backward()

    What PyTorch does by itself, such as large matrix products, it does on the CPU.
    """
    patches = Patches()
    _forget()
    try:
        with (
            on_cpu(target, torch=torch, autotune=autotune, **options) as cpu,
            inductor_config.patch(**_CONFIG),
            functorch_config.patch(enable_autograd_cache=False),
        ):
            try:
                _patch(patches, cpu)
                yield cpu
            finally:
                patches.undo()
    finally:
        _forget()


_CONFIG = {
    "cpu_backend": "triton",
    "compile_threads": 1,  # other processes have no such driver
    "fx_graph_cache": False,  # caches do not know the target
    "fx_graph_remote_cache": False,
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "use_static_cuda_launcher": False,
    "triton.unique_kernel_names": True,
    "triton.cudagraphs": False,
    "comprehensive_padding": False,
}


def _forget() -> None:
    """Drop what was compiled, and what was said about the device."""
    TorchInGraphFunctionVariable._get_handlers()  # a table of PyTorch's own functions
    torch.compiler.reset()
    for each in vars(triton_support).values():
        clear = getattr(each, "cache_clear", None)
        if clear is not None:
            clear()


def _patch(patches: Patches, cpu: CPU) -> None:
    card = cpu.utils.card
    create = classmethod(functools.partial(_device_properties, card))
    patches.set(hints.DeviceProperties, "create", create)
    for name in ("set_driver_to_cpu", "set_driver_to_gpu"):
        patches.set(triton_helpers, name, lambda: None)
    device_interface.get_interface_for_device("cpu")  # fills the table
    made = {"cuda": _interface(card)}
    known = device_interface.device_interfaces
    patches.set(device_interface, "device_interfaces", {**known, **made})
    cpus = made["cuda"].__mro__[1]
    patches.set(
        cpus, "raise_if_triton_unavailable", staticmethod(lambda device=None: None)
    )
    measure = functools.partial(_measured, cpu)
    for name in ("benchmark", "benchmark_gpu", "benchmark_cpu"):
        patches.set(benchmarking.benchmarker, name, measure)
    if cpu.autotune == "first":
        patches.set(CachingAutotuner, "benchmark_all_configs", _only_first)
    _patch_origins(patches)
    if cpu.torch:  # the compiler would ask for streams and graphs of a real GPU
        patches.set(torch.accelerator, "is_available", lambda: False)
        patches.set(torch.backends.cuda, "is_built", lambda: False)
        patches.set(TensorVariable, "method_attr_is_cuda", _is_cuda)
        patches.set(TensorVariable, "method_attr_device", _device)


def _is_cuda(self: TensorVariable, tx: object) -> VariableTracker:
    """What ``tensor.is_cuda`` is in a function that is compiled."""
    return VariableTracker.build(tx, True)


def _device(self: TensorVariable, tx: object) -> VariableTracker:
    """What ``tensor.device`` is in a function that is compiled."""
    known = self.device  # None if it is not known
    return (
        None
        if known is None
        else VariableTracker.build(tx, GPU if known == HERE else known)
    )


def _device_properties(
    card: TritonDevice, cls: type[hints.DeviceProperties], device: torch.device
) -> hints.DeviceProperties:
    """What Inductor knows about the device that kernels are made for."""
    major, minor = card.capability
    return cls(
        type="cuda",
        index=0,
        multi_processor_count=card.processors,
        cc=10 * major + minor,
        major=major,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=card.threads,
        max_threads_per_block=1024,
        warp_size=32,
    )


def _interface(card: TritonDevice) -> type:
    """What Inductor asks about the GPU."""

    class Interface(device_interface.CpuInterface):  # type: ignore[misc, unused-ignore]
        """A GPU that does everything at once."""

        class Worker:
            """The same in other processes; there are none."""

            @staticmethod
            def get_device_properties(device: object = None) -> object:
                """The properties of the card."""
                return properties(card)

            @staticmethod
            def current_device() -> int:
                """The only one."""
                return 0

            @staticmethod
            def set_device(device: object) -> None:
                """There is only one."""

        device = nullcontext

        @staticmethod
        def get_device_properties(device: object = None) -> object:
            """The properties of the card."""
            return properties(card)

        @staticmethod
        def get_compute_capability(device: object = None) -> int:
            """The number of the target."""
            major, minor = card.capability
            return 10 * major + minor

        @staticmethod
        def device_count() -> int:
            """The only one."""
            return 1

        @staticmethod
        def set_device(device: object) -> None:
            """There is only one."""

        @staticmethod
        def exchange_device(device: int) -> int:
            """There is only one."""
            return 0

        maybe_exchange_device = exchange_device

        @staticmethod
        def current_stream(device: object = None) -> Stream:
            """All work is in order."""
            return Stream()

    return Interface


# ── measuring ───────────────────────────────────────────────────────────────


def _measured(cpu: CPU, call: _Method, *args: object, **named: object) -> float:
    """The instructions of a call, in place of its time."""
    given, words = (args[0] if args else ()), named.get("fn_kwargs") or {}
    start = cpu.instructions
    call(*(given if isinstance(given, tuple) else ()), **_named(words))
    return float(cpu.instructions - start)


def _named(words: object) -> dict[str, object]:
    return dict(words) if isinstance(words, dict) else {}


def _only_first(
    self: CachingAutotuner, *args: object, **named: object
) -> dict[object, float]:
    """No time for the first configuration, and none for the others."""
    return {each: float(i) for i, each in enumerate(self.launchers)}


# ── where a kernel comes from ───────────────────────────────────────────────


def _patch_origins(patches: Patches) -> None:
    """Note for each kernel which lines of the user's program it computes."""
    define = TritonScheduling.define_kernel

    @functools.wraps(define)
    def noting(
        self: TritonScheduling, source: str, nodes: Iterable[object], *rest: object
    ) -> str:
        nodes = list(nodes)
        name: str = define(self, source, nodes, *rest)
        ORIGINS[name] = _lines_of(nodes)
        return name

    patches.set(TritonScheduling, "define_kernel", noting)


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')


def _lines_of(nodes: Iterable[object]) -> tuple[Frame, ...]:
    """The lines that the nodes of a kernel come from, in order."""
    found: dict[Frame, None] = {}
    for node in nodes:
        inner = getattr(node, "node", None)
        for origin in getattr(inner, "origins", ()):
            told = _FRAME.findall(origin.meta.get("stack_trace") or "")
            mine = [each for each in told if not is_library(each[0])]
            if mine:
                file, line, function, text = mine[-1]
                found[Frame(file, int(line), function, text.strip())] = None
    return tuple(sorted(found))
