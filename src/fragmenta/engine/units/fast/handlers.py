"""The fast path of each instruction that has one, and how its operands are listed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from fragmenta.engine.simt.library import Routine
from fragmenta.engine.units.fast import (
    cluster_barrier,
    copies,
    fences,
    groups,
    lane_copies,
    layout,
    mbarriers,
    task_layout,
    tasks,
    tensor_issue,
    tensor_maps,
    tensor_moves,
    tensor_products,
    wgmma,
)
from fragmenta.engine.units.fast.copy_forms import CopyForm, form
from fragmenta.engine.units.fast.map_fields import REPLACED
from fragmenta.engine.units.fast.step import OPERAND
from fragmenta.ptx.ordering import Scope, written_scope


class Handler(NamedTuple):
    """A fast path, and what it needs to know of its instruction."""

    routine: Routine
    flags: int
    """The words that the instruction has, as the fast path numbers them."""
    order: tuple[int | tuple[int, ...], ...]
    """Which operands it reads, in its own order; -1: nothing.

    Several numbers: an item of an operand, or an item of that.
    """
    calls: tuple[int, ...] = ()
    """The functions of an observer that it needs: those that it calls, and that of the
    call of the port which Python makes."""
    noted: bool = True
    """Whether it tells a recorder all; if not, Python carries it out for one."""


Finder = Callable[[tuple[str, ...], int], "Handler | None"]


def _flags(words: tuple[str, ...]) -> int:
    shared = any(word.startswith("shared") for word in words)
    found = 0 if shared else mbarriers.GENERIC
    found |= mbarriers.NARROW * (written_scope(words) is Scope.CTA)
    return found | layout.RELAXED * ("relaxed" in words)


_MAKES = (layout.PORT_MAKE, layout.PORT_MADE)


def _init(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(mbarriers.INIT, _flags(words), (0, 1), _MAKES)


def _inval(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(mbarriers.INVAL, _flags(words), (0,), _MAKES)


def _arrive(words: tuple[str, ...], count: int) -> Handler | None:
    if "noComplete" in words or "arrive_drop" in words:
        return None
    expects = "expect_tx" in words
    flags = _flags(words)
    # The result is left out of some remote arrivals.
    remote = "shared::cluster" in words and count == 1 + expects
    first = 0 if remote else 1
    more = count > first + 1
    if more:
        flags |= mbarriers.EXPECTS if expects else mbarriers.COUNTED
    order = (-1 if remote else 0, first, first + 1 if more else -1)
    calls = layout.PORT_USED, layout.PORT_RELEASE, layout.PORT_PHASE
    return Handler(mbarriers.ARRIVE, flags, order, calls)


def _expect(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(mbarriers.EXPECT, _flags(words), (-1, 0, 1), (layout.PORT_USED,))


def _wait(words: tuple[str, ...], count: int) -> Handler | None:
    if "relaxed" in words:
        return None
    flags = _flags(words)
    flags |= mbarriers.PARITY * ("parity" in words)
    flags |= mbarriers.TESTS * ("test_wait" in words)
    calls = layout.PORT_USED, layout.PORT_ACQUIRE, layout.PORT_STALL
    return Handler(mbarriers.WAIT, flags, (0, 1, 2), calls)


def _fence(words: tuple[str, ...], count: int) -> Handler | None:
    """Fences of proxies and of new mbarriers; other fences stay in Python."""
    if "mbarrier_init" in words:
        return Handler(fences.MADE, 0, (), (layout.PORT_INIT_FENCE,))
    named = [word for word in words if word.startswith(("async", "tensormap"))]
    if "acquire" in words and any(word.startswith("tensormap") for word in named):
        return Handler(tensor_maps.ACQUIRE, 0, (0,), (layout.PORT_ACQUIRE_MAP,))
    plain = bool(named) and all(word.startswith("async") for word in named)
    if "proxy" not in words or not plain:
        return None
    return Handler(fences.PROXY, 0, (), (layout.PORT_PROXY,))


def _registers(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(fences.REGISTERS, 0, (0,))


# ── tensor maps ─────────────────────────────────────────────────────────────


def _replace(words: tuple[str, ...], count: int) -> Handler | None:
    name = next((word for word in words if word in REPLACED), None)
    shared = any(word in ("shared", "shared::cta") for word in words)
    if name is None or not (shared or "global" in words):
        return None
    order = (0, 1, 2) if count > 2 else (0, -1, 1)
    stride = name == "global_stride"
    routine = tensor_maps.REPLACE_STRIDE if stride else tensor_maps.REPLACE
    flags = tensor_maps.field_flags(name) | tensor_maps.SHARED * shared
    return Handler(routine, flags, order, (layout.PORT_CHANGE_MAP,), noted=False)


def _copy_map(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(tensor_maps.COPY, 0, (0, 1), (layout.PORT_CHANGE_MAP,), noted=False)


# ── copies ──────────────────────────────────────────────────────────────────

_COPIED = (layout.PORT_COPY, layout.PORT_COPIED)
_SIGNALS = (*_COPIED, layout.PORT_USED, layout.PORT_SIGNAL, layout.PORT_PHASE)
_COPIES = {
    "load": (copies.BULK_LOAD, ("goal", "source", "size", "mbarrier", "mask")),
    "store": (copies.BULK_STORE, ("goal", "source", "size")),
    "exchange": (copies.EXCHANGE, ("goal", "source", "size", "mbarrier")),
    "tensor load": (copies.TENSOR_LOAD, ("goal", "tensor", "mbarrier", "mask")),
    "tensor store": (copies.TENSOR_STORE, ("tensor", "source")),
    "prefetch": (copies.BULK_PREFETCH, ("source", "size")),
    "tensor prefetch": (copies.TENSOR_PREFETCH, ("tensor",)),
}
"""The fast path of each kind of copy, and the operands that it reads."""
_UNUSUAL = ("im2col", "ignore_oob", "cp_mask")
"""How words of copies begin that are left to Python."""


def _copy(words: tuple[str, ...], count: int) -> Handler | None:
    of = form(".".join(words))
    if of.kind not in _COPIES or of.rows or len(of.operands) != count:
        return None
    tensor = of.kind.startswith("tensor")
    unusual = any(word.startswith(_UNUSUAL) for word in words)
    if unusual or (of.operation is not None and not tensor):
        return None
    routine, names = _COPIES[of.kind]
    places = {name: place for place, name in enumerate(of.operands)}
    order: list[int | tuple[int, ...]] = [places.get(name, -1) for name in names]
    flags = _copy_flags(of) | copies.PAIRED * ("cta_group::2" in words)
    if tensor:
        rank = next(int(word[0]) for word in words if word[1:] == "d")
        order += [(places["tensor"], 0, each) for each in range(rank)]
        flags |= rank << copies.RANK_AT
    order += [-1] * (len(names) + 5 - len(order) if tensor else 0)
    calls = _SIGNALS if "mbarrier" in places else _COPIED
    if flags & copies.PAIRED:
        calls = *calls, layout.PORT_PAIR
    return Handler(routine, flags, tuple(order), calls, "prefetch" not in of.kind)


def _copy_flags(of: CopyForm) -> int:
    operation = task_layout.OPERATIONS.index(of.operation or "")
    shared = of.of if of.to == "global" else of.to
    flags = operation << task_layout.OPERATION_AT
    flags |= 0 if shared else copies.GENERIC
    flags |= copies.OWN * (shared in ("shared", "shared::cta"))
    return flags | copies.MASKED * ("mask" in of.operands)


def _bulk_commit(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(groups.COMMIT, 0, ())


def _bulk_wait(words: tuple[str, ...], count: int) -> Handler | None:
    calls = layout.PORT_GROUP, layout.PORT_COPIED
    return Handler(groups.WAIT, groups.READ * ("read" in words), (0,), calls)


_LANES = (layout.PORT_LANES,)


def _lane_copy(words: tuple[str, ...], count: int) -> Handler | None:
    # What one more operand is, a predicate or a number, is known where it is read.
    more = count - ("L2::cache_hint" in words)
    if more > 4 or not {"ca", "cg"} & {*words}:
        return None
    order = (0, 1, 2, 3) if more > 3 else (0, 1, 2)
    return Handler(lane_copies.COPY, 0, order, (*_LANES, *_COPIED))


def _lanes_commit(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(lane_copies.COMMIT, 0, (), _LANES)


def _lanes_wait(words: tuple[str, ...], count: int) -> Handler | None:
    every = "wait_all" in words
    order = () if every else (0,)
    calls = *_LANES, *_COPIED
    return Handler(lane_copies.WAIT, lane_copies.ALL * every, order, calls)


def _lanes_arrive(words: tuple[str, ...], count: int) -> Handler | None:
    flags = lane_copies.GENERIC * (not any(word[:6] == "shared" for word in words))
    flags |= lane_copies.NO_INCREMENT * ("noinc" in words)
    return Handler(lane_copies.ARRIVE, flags, (0,), (*_LANES, *_SIGNALS))


def _cluster_arrive(words: tuple[str, ...], count: int) -> Handler | None:
    flags = layout.RELAXED * ("relaxed" in words)
    return Handler(cluster_barrier.ARRIVE, flags, (), (layout.PORT_ARRIVE,))


def _cluster_wait(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(cluster_barrier.WAIT, 0, (), (layout.PORT_PASS,))


def _product(words: tuple[str, ...], count: int) -> Handler | None:
    calls = layout.PORT_TOUCH, layout.PORT_PRODUCT
    return Handler(wgmma.ISSUE, 0, (), calls)


def _products_fence(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(wgmma.FENCE, wgmma.FENCES, (), (layout.PORT_FENCE,))


def _products_commit(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(wgmma.COMMIT, 0, (), (layout.PORT_FENCE,))


def _products_wait(words: tuple[str, ...], count: int) -> Handler | None:
    return Handler(wgmma.WAIT, 0, (0,), (layout.PORT_MULTIPLIED,))


# ── tensor memory ───────────────────────────────────────────────────────────

_UNUSUAL_PRODUCTS = ("sp", "ashift", "decompress")
"""How words of products begin that are left to Python."""


def _tensor_product(words: tuple[str, ...], count: int) -> Handler | None:
    scaled = "block_scale" in words
    unusual = any(word.startswith(_UNUSUAL_PRODUCTS) for word in words)
    if unusual or count != 5 + 2 * scaled:
        return None
    last = count - 1
    order = (0, 1, 2, 3, last, 4, 5) if scaled else (0, 1, 2, 3, last)
    calls = *_COPIED, layout.PORT_TENSOR, layout.PORT_TENSOR_ISSUED
    return Handler(tensor_issue.MMA, 0, order, calls)


def _tensor_commit(words: tuple[str, ...], count: int) -> Handler | None:
    shared = any(word.startswith("shared") for word in words)
    flags = tensor_issue.GENERIC * (not shared) | tensor_issue.MULTICAST * (count == 2)
    calls = (
        *_SIGNALS,
        layout.PORT_COMMIT_ROOM,
        layout.PORT_COMMIT,
    )
    return Handler(tensor_issue.COMMIT, flags, (0, 1)[:count], calls)


def _tensor_fence(words: tuple[str, ...], count: int) -> Handler | None:
    flags = tensor_issue.BEFORE * ("fence::before_thread_sync" in words)
    return Handler(tensor_issue.FENCE, flags, (), (layout.PORT_TENSOR_FENCE,))


def _tensor_load(words: tuple[str, ...], count: int) -> Handler | None:
    if "red" in words:
        return None
    return Handler(tensor_moves.LOAD, 0, (1,), (layout.PORT_MOVE,))


def _tensor_store(words: tuple[str, ...], count: int) -> Handler | None:
    flags = tensor_moves.STORES
    calls = *_COPIED, layout.PORT_MOVE
    return Handler(tensor_moves.STORE, flags, (0,), calls)


def _tensor_wait(words: tuple[str, ...], count: int) -> Handler | None:
    flags = tensor_moves.STORES * ("wait::st" in words)
    return Handler(tensor_moves.WAIT, flags, (), (layout.PORT_MOVED,))


HANDLERS: dict[tuple[str, ...], Finder] = {
    ("fence",): _fence,
    ("setmaxnreg",): _registers,
    ("tensormap", "replace"): _replace,
    ("tensormap", "cp_fenceproxy"): _copy_map,
    ("mbarrier", "init"): _init,
    ("mbarrier", "inval"): _inval,
    ("mbarrier", "arrive"): _arrive,
    ("mbarrier", "expect_tx"): _expect,
    ("mbarrier", "try_wait"): _wait,
    ("mbarrier", "test_wait"): _wait,
    ("cp", "async"): _lane_copy,
    ("cp", "async", "commit_group"): _lanes_commit,
    ("cp", "async", "wait_group"): _lanes_wait,
    ("cp", "async", "wait_all"): _lanes_wait,
    ("cp", "async", "mbarrier", "arrive"): _lanes_arrive,
    ("cp", "async", "bulk"): _copy,
    ("cp", "reduce", "async", "bulk"): _copy,
    ("cp", "async", "bulk", "commit_group"): _bulk_commit,
    ("cp", "async", "bulk", "wait_group"): _bulk_wait,
    ("barrier", "cluster", "arrive"): _cluster_arrive,
    ("barrier", "cluster", "wait"): _cluster_wait,
    ("wgmma", "mma_async"): _product,
    ("wgmma", "fence"): _products_fence,
    ("wgmma", "commit_group"): _products_commit,
    ("wgmma", "wait_group"): _products_wait,
    ("tcgen05", "mma"): _tensor_product,
    ("tcgen05", "commit"): _tensor_commit,
    ("tcgen05", "fence::before_thread_sync"): _tensor_fence,
    ("tcgen05", "fence::after_thread_sync"): _tensor_fence,
    ("tcgen05", "ld"): _tensor_load,
    ("tcgen05", "st"): _tensor_store,
    ("tcgen05", "wait::ld"): _tensor_wait,
    ("tcgen05", "wait::st"): _tensor_wait,
}
"""By the words with which instructions begin; the longest that fits counts."""


ROUTINES = (
    OPERAND,
    *fences.ROUTINES,
    *mbarriers.ROUTINES,
    *tasks.ROUTINES,
    *copies.ROUTINES,
    *tensor_maps.ROUTINES,
    *groups.ROUTINES,
    *lane_copies.ROUTINES,
    *cluster_barrier.ROUTINES,
    *tensor_products.ROUTINES,
    *tensor_issue.ROUTINES,
    *tensor_moves.ROUTINES,
    wgmma.RUN,
    wgmma.ISSUE,
    wgmma.FENCE,
    wgmma.COMMIT,
    wgmma.WAIT,
)
"""All routines that fast paths consist of."""


@lru_cache(maxsize=4096)
def handler(words: tuple[str, ...], operands: int) -> Handler | None:
    """The fast path of an instruction with so many operands, if there is one.

    >>> handler(("mbarrier", "try_wait", "parity", "shared", "b64"), 3).flags
    2
    >>> handler(("mbarrier", "pending_count", "b64"), 2)
    """
    for length in range(len(words), 0, -1):
        found = HANDLERS.get(words[:length])
        if found is not None:
            return found(words, operands)
    return None
