"""The effects of asynchronous instructions: one line each.

An asynchronous instruction is issued by some threads, reads and writes memory later,
and signals when it is done.  :data:`EFFECTS` says this for each of them.
Copies, products, the race detector and the report of work that nothing waited for read
it here.

- ``with``: words that the instruction also has.  Of several lines that fit an
  instruction, the longest name counts, then the most words.
- ``issuer``: one thread, a warp, a warpgroup; ``thread, pair`` is one thread, for its
  block or with ``.cta_group::2`` for both blocks of a pair.
- ``reads``, ``writes``: state spaces.  ``+global``: it combines with what is there, one
  element at a time.
- ``proxy``: through which it accesses memory.  ``cp.async`` is the generic proxy, but
  shipped kernels read such data through the async proxy without a fence.
- ``done by``: a line of :data:`COMPLETIONS`; nothing for a hint.
- ``in order after``: work of the same issuer that has written before this one accesses
  the same memory, without a wait in between.  ``:accumulator``: only a product
  of the same shape with the same D.  ``:reads``: what the other one reads is read
  before, too.  ``:unpromised``: the manual does not say so, but shipped kernels depend
  on it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fragmenta.errors import UnknownInstruction
from fragmenta.reference.isa.table import read

EFFECTS = """
instruction                   | with                         | issuer       | reads                 | writes    | proxy    | done by     | in order after
cp.async                      |                              | thread       | global                | shared    | cp.async | async_group |
cp.async.mbarrier.arrive      |                              | thread       |                       |           | generic  | mbarrier    | cp.async
cp.async.bulk                 | mbarrier::complete_tx::bytes | thread       | global shared         | shared    | async    | mbarrier    |
cp.async.bulk                 | bulk_group                   | thread       | shared                | global    | async    | bulk_group  |
cp.async.bulk.prefetch        |                              | thread       | global                |           | async    |             |
cp.async.bulk.tensor          | mbarrier::complete_tx::bytes | thread       | global tensormap      | shared    | async    | mbarrier    |
cp.async.bulk.tensor          | bulk_group                   | thread       | shared tensormap      | global    | async    | bulk_group  |
cp.async.bulk.prefetch.tensor |                              | thread       | global tensormap      |           | async    |             |
cp.reduce.async.bulk          | mbarrier::complete_tx::bytes | thread       | shared                | +shared   | async    | mbarrier    |
cp.reduce.async.bulk          | bulk_group                   | thread       | shared                | +global   | async    | bulk_group  |
cp.reduce.async.bulk.tensor   | bulk_group                   | thread       | shared tensormap      | +global   | async    | bulk_group  |
st.async                      |                              | thread       | registers             | shared    | generic  | mbarrier    |
st.async.release              |                              | thread       | registers             | global    | generic  | release     |
st.async.mmio                 |                              | thread       | registers             | global    | generic  | release     |
red.async                     |                              | thread       | registers             | +shared   | generic  | mbarrier    |
red.async.release             |                              | thread       | registers             | +global   | generic  | release     |
red.async.mmio                |                              | thread       | registers             | +global   | generic  | release     |
clusterlaunchcontrol.try_cancel |                            | thread       |                       | shared    | async    | mbarrier    |
wgmma.mma_async               |                              | warpgroup    | shared registers      | registers | async    | wgmma_group | wgmma.mma_async:accumulator
tcgen05.ld                    |                              | warp         | tensor                | registers | tensor   | wait::ld    |
tcgen05.st                    |                              | warp         | registers             | tensor    | tensor   | wait::st    |
tcgen05.mma                   |                              | thread, pair | shared tensor         | tensor    | async    | commit      | tcgen05.mma:accumulator tcgen05.cp tcgen05.shift
tcgen05.cp                    |                              | thread, pair | shared                | tensor    | async    | commit      | tcgen05.shift tcgen05.cp:unpromised
tcgen05.shift                 |                              | thread, pair | tensor                | tensor    | async    | commit      | tcgen05.mma:reads
tcgen05.commit                |                              | thread, pair |                       |           | generic  | mbarrier    | tcgen05.mma tcgen05.cp tcgen05.shift
"""  # noqa: E501

#: How work signals that it is done, and what waits for it.  ``leak``: whether a missing
#: wait is reported when the threads end; for the others, sources disagree.
#: ``release``: whoever acquires the value knows that it is there, and nobody else does.
COMPLETIONS = """
done by     | waited for with                          | leak
mbarrier    | mbarrier.try_wait mbarrier.test_wait     | yes
wgmma_group | wgmma.wait_group                         | yes
async_group | cp.async.wait_group cp.async.wait_all    | yes
bulk_group  | cp.async.bulk.wait_group                 | no
commit      | tcgen05.commit                           | no
wait::ld    | tcgen05.wait::ld                         | no
wait::st    | tcgen05.wait::st                         | no
release     | ld.acquire                               | no
"""

#: Instructions of the same families that do their work at once.
AT_ONCE = """
cp.async.commit_group cp.async.wait_group cp.async.wait_all
cp.async.bulk.commit_group cp.async.bulk.wait_group
clusterlaunchcontrol.query_cancel
wgmma.fence wgmma.commit_group wgmma.wait_group
tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit
tcgen05.wait::ld tcgen05.wait::st
tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync
"""

#: Forms that are not run.  ``with``: one word that makes the form; ``without``: one
#: that the form lacks.
NOT_RUN = """
instruction     | with               | without                      | why
cp              | im2col::w          |                              | copies with .im2col::w, which only sm_100 and later have, do not run here
cp              | im2col::w::128     |                              | copies with .im2col::w::128, which only sm_100a and later have, do not run here
cp              | im2col_no_offs::w  |                              | copies with .im2col_no_offs::w, which only sm_107f and later have, do not run here
tensormap       | swizzle_atomicity  |                              | tensormap.replace on sm_90a does not change swizzle_atomicity
tcgen05.shift   |                    |                              | the direction in which rows move is not known
tcgen05.alloc   | exclusive          |                              | what .exclusive does is not known
tcgen05.dealloc | exclusive          |                              | what .exclusive does is not known
tcgen05.mma     | ashift             |                              | what .ashift does is not known
tcgen05.mma     | decompress::lut::b |                              | what .decompress::lut::b does is not known
"""  # noqa: E501


class Effect(NamedTuple):
    """What an asynchronous instruction does, and when."""

    instruction: str
    words: tuple[str, ...]
    """Words that the instruction also has."""
    issuer: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    proxy: str
    done_by: str
    after: tuple[str, ...]

    @property
    def on_tensor_cores(self) -> bool:
        """Whether Tensor Cores do it, in the order of its issue.

        >>> effect("tcgen05.cp").on_tensor_cores, effect("tcgen05.ld").on_tensor_cores
        (True, False)
        """
        return self.done_by in ("commit", "wgmma_group")

    @property
    def combines(self) -> bool:
        """Whether it combines with what memory holds, one element at a time."""
        return any(each.startswith("+") for each in self.writes)

    @property
    def kind(self) -> str:
        """The last word of its name, such as ``mma``."""
        return self.instruction.rpartition(".")[2]

    def fits(self, words: list[str]) -> bool:
        """Whether the words of a mnemonic are those of this line."""
        name = self.instruction.split(".")
        return words[: len(name)] == name and set(self.words) <= set(words)


class Completion(NamedTuple):
    """How work signals that it is done."""

    done_by: str
    waits: tuple[str, ...]
    leak: bool


def _effect(line: dict[str, str]) -> Effect:
    return Effect(
        line["instruction"],
        tuple(line["with"].split()),
        line["issuer"],
        tuple(line["reads"].split()),
        tuple(line["writes"].split()),
        line["proxy"],
        line["done by"],
        tuple(line["in order after"].split()),
    )


LINES = tuple(_effect(line) for line in read(EFFECTS))
WAYS = {
    line["done by"]: Completion(
        line["done by"], tuple(line["waited for with"].split()), line["leak"] == "yes"
    )
    for line in read(COMPLETIONS)
}
SYNCHRONOUS = frozenset(AT_ONCE.split())
REFUSED = tuple(read(NOT_RUN))
OPCODES = frozenset(
    each.partition(".")[0]
    for each in (*SYNCHRONOUS, *(line.instruction for line in LINES))
)
"""The opcodes of all instructions of this table."""


@lru_cache(maxsize=1024)
def find(mnemonic: str) -> Effect | None:
    """The effects of an instruction; None if it is done when it is executed.

    >>> find("cp.async.bulk.global.shared::cta.bulk_group").done_by
    'bulk_group'
    >>> print(find("cp.async.bulk.commit_group"))
    None
    """
    words = mnemonic.split(".")
    if any(".".join(words[:n]) in SYNCHRONOUS for n in range(1, len(words) + 1)):
        return None
    found = [each for each in LINES if each.fits(words)]
    return max(
        found, key=lambda each: (len(each.instruction), len(each.words)), default=None
    )


def effect(instruction: str, word: str = "") -> Effect:
    """The line of an instruction; ``word`` chooses among several."""
    found = find(f"{instruction}.{word}" if word else instruction)
    if found is None or found.instruction != instruction:
        raise UnknownInstruction(f"there is no line for {instruction} {word}".rstrip())
    return found


def in_order(old: str, new: str, was_write: bool, accumulates: bool) -> bool | None:
    """Whether the access of ``old`` comes before that of ``new`` without a wait.

    Both are instructions that one issuer has issued in this order.  None: the manual
    does not say so, but shipped kernels depend on it.  ``accumulates``: both are
    products of one shape with one D.

    >>> in_order("tcgen05.cp", "tcgen05.mma", True, False)
    True
    >>> in_order("tcgen05.mma", "tcgen05.cp", True, False)
    False
    """
    said = dict(each.partition(":")[::2] for each in effect(new).after)
    how = said.get(old)
    if not was_write and how != "reads":
        return None  # what is read is overwritten: scale factors, or A of the last step
    if how == "accumulator":
        return accumulates
    return None if how == "unpromised" else how is not None


@lru_cache(maxsize=1024)
def not_run(mnemonic: str) -> str:
    """Why an instruction that exists is not run; nothing if it is.

    >>> not_run("tcgen05.shift.cta_group::1.down")
    'tcgen05.shift.cta_group::1.down: the direction in which rows move is not known'
    """
    words = mnemonic.split(".")
    for line in REFUSED:
        name = line["instruction"].split(".")
        if words[: len(name)] != name or (line["without"] and line["without"] in words):
            continue
        if not line["with"] or line["with"] in words:
            return f"{mnemonic}: {line['why']}"
    return ""
