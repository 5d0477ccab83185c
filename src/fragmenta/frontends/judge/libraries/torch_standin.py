"""What PyTorch does for a candidate: operators are counted, new memory is poisoned.

That a GPU seems to be there is the work of ``on_cpu(torch=True)``
(:mod:`fragmenta.frontends.triton.torch_cuda`).  Memory that ``torch.empty`` returns
counts as
unwritten.  Operators that compute are recorded; those that move tensors are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.empties import count_as_empty
from fragmenta.engine.simt.layout import POISON
from fragmenta.frontends.triton.torch_cuda import STREAMS

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
class OperatorLog:
    """What PyTorch was asked to do during a call."""

    operators: dict[str, int] = field(default_factory=dict)
    """The operators that compute: how many elements each of them read, in all."""
    earlier: dict[str, int] = field(default_factory=dict)
    """Those that ran while a model was made."""
    kept: list[Array] = field(default_factory=list)
    """Memory that counts as unwritten, as long as it is kept here."""

    def launched(self) -> None:
        """A kernel was launched."""
        STREAMS.launched()

    @property
    def waiting(self) -> int:
        """How many streams have work that nobody has waited for."""
        return len(STREAMS.waiting)

    def made(self) -> None:
        """A model was made."""
        self.earlier |= self.operators
        self.operators.clear()

    def restart(self) -> None:
        """A call begins."""
        self.operators.clear()
        self.kept.clear()
        STREAMS.restart()


RECORD = OperatorLog()


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
    """From now on, operators are recorded, and new memory counts as unwritten."""
    torch.set_num_threads(1)
    _Recorded().__enter__()
