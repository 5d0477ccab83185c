"""Each instruction of the table issues the right copy."""

import itertools
import re

import numpy as np
import pytest

from fragmenta.engine.simt import layout
from fragmenta.engine.units.bulk_copies import AsyncStore, BulkCopy, Prefetch
from fragmenta.engine.units.copy_operands import copy_from
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.registry import refusal
from fragmenta.engine.units.tma_copies import (
    TensorLoad,
    TensorPrefetch,
    TensorStore,
)
from fragmenta.engine.units.work import Copy
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import Syntax
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from tests.units.standing import WHO, Block, Cluster

OTHER = ("commit_group", "wait_group")
"""Words of ``cp.async.bulk`` that name no copy."""


def _is_copy(syntax: Syntax) -> bool:
    words = [piece.words[0] for piece in syntax.pieces]
    plain = syntax.opcode == "cp" and "bulk" not in words  # cp.async of a warp
    return "async" in words and not plain and not any(word in words for word in OTHER)


COPIES = [
    syntax
    for opcode in ("cp", "st", "red")
    for syntax in TABLE.lines[opcode]
    if _is_copy(syntax)
]
ON_90 = [
    each
    for each in COPIES
    if each.targets in ("", "sm_80", "sm_90") and "cp_mask" not in each.text
]
ROWS = [each for each in COPIES if "gather4" in each.text or "scatter4" in each.text]
LATER = [
    each
    for each in COPIES
    if each not in ON_90
    and each not in ROWS
    and "cp_mask" not in each.text
    and ".release" not in each.text  # they do not come from copy_from
]


def _mnemonics(syntax: Syntax) -> list[str]:
    """All mnemonics of a line, with optional words and without."""
    choices = [
        ([""] if piece.optional else []) + [f".{word}" for word in piece.words]
        for piece in syntax.pieces
    ]
    found = [syntax.opcode + "".join(each) for each in itertools.product(*choices)]
    return [each for each in found if "cta_group" not in each]


def _room() -> tuple[Block, np.ndarray, int]:
    cluster, memory = Cluster(4), np.zeros(1 << 14, np.uint8)
    return cluster.blocks[0], memory, cluster.add(memory)


def _map(
    address: int, rank: int, im2col: bool, dtype: str, four: bool = False
) -> bytes:
    sizes, strides = (16, 8, 8, 2, 2)[:rank], (128, 1024, 8192, 8192)[: rank - 1]
    if im2col:
        column = Im2col((0,) * (rank - 2), (0,) * (rank - 2), 16, 8)
        return TensorMap(dtype, sizes, strides, address=address, im2col=column).encode()
    box = (16, 1 if four else 4, 2, 1, 1)[:rank]
    return TensorMap(dtype, sizes, strides, box, address=address).encode()


def _values(mnemonic: str, syntax: Syntax, block: Block, address: int) -> list[object]:
    """Operands of a copy that is right."""
    words = mnemonic.split(".")
    spaces = [word for word in words if word.startswith(("shared", "global"))]
    generic = 0 if spaces else layout.SHARED_WINDOW
    rank = next((int(word[0]) for word in words if word[1:] == "d"), 0)
    mode = next((word for word in words if word.startswith("im2col")), "")
    four = any(word.endswith(("gather4", "scatter4")) for word in words)
    if rank:
        inc = "inc" in words or "dec" in words
        dtype = "f32" if "reduce" not in words else "u32" if inc else "s32"
        data = _map(address, rank, bool(mode), dtype, four)
        block.memory(address)[0][-128:] = np.frombuffer(data, np.uint8)
    vector = next((int(word[1:]) for word in words if word in ("v2", "v4")), 0)
    goal = address + 4096 if spaces[:1] == ["global"] else generic + 2048
    source = address if "global" in spaces[-1:] else 4096
    given = {
        "d": goal,
        "a": goal if words[0] != "cp" else source,
        "b": 4096 if words[0] == "cp" else [5] * vector if vector else 5,
        "size": 32,
        "mbar": generic + 1024,
        "offsets": [0] * (rank - 2),
        "mask": 0b1010,
        "policy": 1 << 60,
        "left": 3,
        "right": 5,
    }
    tensor = [address + (1 << 14) - 128, [0] * (5 if four else rank)]
    return [
        tensor if slot.type == "tensor" else given[slot.name]
        for slot in syntax.operands
        if not slot.optional or _wanted(slot.name, words)
    ]


def _wanted(name: str, words: list[str]) -> bool:
    return {"mask": "multicast::cluster", "policy": "L2::cache_hint"}.get(name) in words


@pytest.mark.parametrize(
    "syntax", [*ON_90, *ROWS], ids=lambda each: each.text.split()[0]
)
def test_every_line_that_runs_issues_a_copy(syntax: Syntax) -> None:
    for mnemonic in _mnemonics(syntax):
        block, _, address = _room()
        values = _values(mnemonic, syntax, block, address)
        copy = copy_from(block, *WHO, mnemonic, values)
        assert type(copy) is _expected(mnemonic), mnemonic
        waits = "mbarrier::complete_tx::bytes" in mnemonic
        assert bool(copy.signals()) == waits, mnemonic
        assert (copy.completes == "bulk_group") == ("bulk_group" in mnemonic)
        if "multicast" in mnemonic:
            assert copy.signals() == [(1, 1024), (3, 1024)]
            assert [each.rank for each in copy.goals] == [1, 3]
        assert copy.combines == (mnemonic.startswith(("red", "cp.reduce")))
        copy.poison()


def _expected(mnemonic: str) -> type[Copy]:
    if not mnemonic.startswith("cp"):
        return AsyncStore
    tensor = ".tensor." in mnemonic
    if "prefetch" in mnemonic:
        return TensorPrefetch if tensor else Prefetch
    if not tensor:
        return BulkCopy
    return TensorStore if "bulk_group" in mnemonic else TensorLoad


@pytest.mark.parametrize("syntax", LATER, ids=lambda each: each.text.split()[0])
def test_what_does_not_run_is_refused(syntax: Syntax) -> None:
    assert syntax.targets not in ("", "sm_80", "sm_90")
    for mnemonic in _mnemonics(syntax):
        assert re.search(r"(needs|only) sm_1", refusal(mnemonic)), mnemonic


def test_a_copy_for_a_pair_may_signal_the_other_block() -> None:
    """Of each pair, the block that the mbarrier's address is in gets the signal."""
    block, _, address = _room()
    block.memory(address)[0][8192:8320] = np.frombuffer(
        _map(address, 2, False, "f32"), np.uint8
    )
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    given = [1 << 24 | 2048, [address + 8192, [0, 0]], 1024]
    one, two = f"{load}.cta_group::1", f"{load}.cta_group::2"
    assert copy_from(block, *WHO, two, given).signals() == [(0, 1024)]
    with pytest.raises(CopyFault, match="must be in the block that the data goes to"):
        copy_from(block, *WHO, one, given)
    given[2] = 2 << 24 | 1024
    with pytest.raises(CopyFault, match="must be in the block that the data goes to"):
        copy_from(block, *WHO, two, given)
    several = f"{load}.multicast::cluster.cta_group::2"
    copy = copy_from(block, *WHO, several, [*given, 0b1111])
    assert copy.signals() == [(0, 1024), (0, 1024), (2, 1024), (2, 1024)]


def test_operands_of_one_lane() -> None:
    block, _, address = _room()
    store = "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask"
    copy = copy_from(block, *WHO, store, [address, 2048, 32, 1 << 60, 0x00FF])
    assert isinstance(copy, BulkCopy)
    assert (copy.kept, copy.bytes) == (0x00FF, 32)
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
    load += ".mbarrier::complete_tx::bytes"
    block.memory(address)[0][8192:8320] = np.frombuffer(
        _map(address, 2, False, "f32"), np.uint8
    )
    # A coordinate below 0 comes as 32 bits.
    given = [1 << 24 | 2048, [address + 8192, [0, 0xFFFFFFFE]], 1 << 24 | 1024]
    tensor = copy_from(block, *WHO, load, given)
    assert isinstance(tensor, TensorLoad)
    assert (tensor.coordinates, tensor.rank) == ((0, -2), 1)
    with pytest.raises(CopyFault, match="takes 2 coordinates; given 3"):
        copy_from(block, *WHO, load, [2048, [address + 8192, [0, 0, 0]], 1024])
    with pytest.raises(CopyFault, match="operands goal, tensor and mbarrier; given 2"):
        copy_from(block, *WHO, load, given[:2])
