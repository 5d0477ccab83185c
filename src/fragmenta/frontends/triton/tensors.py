"""Tensors that seem to be on a GPU: a mode of PyTorch's functions.

All tensors are on the CPU.  A mark of their storage says which of them are on the GPU
as far as the program can see (:mod:`fragmenta.frontends.triton.storages`).  So a move
from one to the other makes a copy, as with a GPU, and a kernel refuses tensors that a
program moved to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from fragmenta.frontends.triton.storages import ADDRESSES, DEVICE, EMPTIES, HOST, MARKS

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")

Function: TypeAlias = Callable[..., object]
"""A function of PyTorch."""
Given: TypeAlias = tuple[object, ...]
Named: TypeAlias = dict[str, object]


def is_on_host(tensor: object) -> bool:
    """Whether a program has moved a tensor to the CPU, or made it there."""
    return isinstance(tensor, torch.Tensor) and MARKS.of(tensor) == HOST


# ── moving ──────────────────────────────────────────────────────────────────


def is_gpu(value: object) -> bool:
    """Whether it names a GPU: a device, a text, or a number."""
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, int) and not isinstance(value, bool)


def here(value: object) -> object:
    """The CPU in place of a GPU."""
    if isinstance(value, torch.device | str) and is_gpu(value):
        return CPU
    return value


def _moved(tensor: torch.Tensor, made: torch.Tensor, mark: str) -> object:
    """The result of a move: a copy if the tensor was elsewhere."""
    same = made.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    if same and MARKS.of(tensor) != mark:
        made = made.clone()
    MARKS.set(made, mark)
    return made


def _to(func: Function, args: Given, named: Named) -> object:
    tensor, *rest = args
    goal = named.get("device")
    if goal is None and rest:
        goal = rest[0]
        if isinstance(goal, torch.Tensor):
            goal = CPU if is_on_host(goal) else GPU
    if goal is not None and is_gpu(goal):
        mark = DEVICE
    elif goal in (CPU, HOST):
        mark = HOST
    else:
        return _kept(func, args, named)
    if rest and (is_gpu(rest[0]) or goal is rest[0]):
        rest[0] = CPU
    if "device" in named:
        named["device"] = CPU
    return _moved(tensor, func(tensor, *rest, **named), mark)


def _kept(func: Function, args: Given, named: Named) -> object:
    """A function of tensors: its results are where its arguments are."""
    made = func(*args, **named)
    new = [each for each in _tensors((made,)) if MARKS.of(each) is None]
    if new:
        given = {MARKS.of(each) for each in _tensors((*args, *named.values()))}
        mark = DEVICE if DEVICE in given else HOST if given == {HOST} else None
        for each in new if mark else ():
            MARKS.set(each, mark or "")
    return made


def _tensors(values: Iterable[object]) -> Iterator[object]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from (e for e in each if isinstance(e, torch.Tensor))


def _device(tensor: object, real: object) -> object:
    return GPU if real == CPU and not is_on_host(tensor) else real


_Handler: TypeAlias = Callable[[Function, Given, Named], object]


def _named_device(func: Function, args: Given, named: Named) -> object:
    """``torch.device(...)``: a number is that of a GPU."""
    if len(args) == 1 and not named and isinstance(args[0], int):
        return func("cuda", args[0])
    return func(*args, **named)


def _empty(func: Function, args: Given, named: Named) -> object:
    """A tensor on the GPU that nobody has written: a kernel that reads it is told."""
    made = done_here(func, args, named)
    new = isinstance(made, torch.Tensor) and "out" not in named
    if new and MARKS.of(made) == DEVICE:
        EMPTIES.add(made)
    return made


_EMPTY = (
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.empty_permuted,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
)
_HANDLERS: dict[object, _Handler] = {
    **dict.fromkeys(_EMPTY, _empty),
    torch.device: _named_device,
    torch._C._nn._parse_to: lambda func, args, named: func(*args, **named),
    torch.Tensor.is_cuda.__get__: lambda func, args, named: not is_on_host(args[0]),
    torch.Tensor.is_cpu.__get__: lambda func, args, named: is_on_host(args[0]),
    torch.Tensor.device.__get__: lambda func, args, named: _device(
        args[0], func(*args)
    ),
    torch.Tensor.get_device: lambda func, args, named: -is_on_host(args[0]),
    torch.get_device: lambda func, args, named: -is_on_host(args[0]),
    torch.Tensor.data_ptr: lambda func, args, named: ADDRESSES.of(args[0]),
    torch.Tensor.to: _to,
    torch.Tensor.cuda: lambda func, args, named: _moved(args[0], args[0], DEVICE),
    torch.Tensor.cpu: lambda func, args, named: _moved(args[0], args[0], HOST),
    torch.Tensor.pin_memory: lambda func, args, named: args[0],
}
"""What other functions than those that compute or make tensors do."""


class OnCPU(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Tensors that are made on or moved to a GPU are on the CPU, and do not say so."""

    active = False
    """Whether the mode does anything.  Threads may keep it longer than its block."""

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: Given = (),
        kwargs: Named | None = None,
    ) -> object:
        """Do what a function does, on the CPU."""
        named = dict(kwargs or {})
        if torch.compiler.is_compiling():  # the compiler reads this, and sees no more
            args = tuple([here(each) for each in args])
            named = {name: here(each) for name, each in named.items()}
            return func(*args, **named)
        if not self.active:
            return func(*args, **named)
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(func, args, named)
        return done_here(func, args, named)


def done_here(func: Function, args: Given, named: Named) -> object:
    """Call a function that may make tensors on a GPU: it makes them on the CPU."""
    said = _said(args, named)
    if said is None:
        return _kept(func, args, named)
    args = tuple(map(here, args))
    named = {name: here(each) for name, each in named.items()}
    if isinstance(named.get("device"), int):
        named["device"] = CPU
    made = func(*args, **named)
    for each in _tensors((made,)):
        MARKS.set(each, said)
    return made


def _said(args: Given, named: Named) -> str | None:
    """Where a call says that its result is to be."""
    goal = named.get("device")
    if goal is None:
        places = [each for each in args if isinstance(each, torch.device)]
        places += [each for each in args if isinstance(each, str) and is_gpu(each)]
        if not places:
            return None
        goal = places[0]
    if is_gpu(goal):
        return DEVICE
    return HOST if goal in (CPU, HOST) else None
