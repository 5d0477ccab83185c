"""A litmus test as text, and the PTX that is made from it.

A program has one column for each thread and one line for each step::

    st x 1              | ld.acquire.gpu f == 1
    st.release.gpu f 1  | ld x

Words in front of a name are those of PTX, without the state space and the type.  A load
with ``== 1`` is repeated until it reads that.  ``x``, ``y``, ``z``, ``f`` and ``g`` are
words of global memory, each in a line of its own; with an ``s`` in front they are in the
shared memory of block 0, and ``m`` and ``n`` are mbarriers there.  What is not an access
is written as in PTX.
"""

from __future__ import annotations

import re
from typing import NamedTuple

GLOBALS, MBARRIERS = "xyzfg", "mn"
LINE = 64
"""Bytes from one word to the next."""
PLACES = {
    "lanes": [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3)],
    "warps": [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0)],
    "cluster": [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)],
    "grid": [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)],
    "two blocks": [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)],
}
"""Where threads are: block, warp and lane of each."""


class Program(NamedTuple):
    """A program, and where its threads run."""

    text: str
    at: str
    counts: tuple[int, ...] = ()
    """The arrivals that each mbarrier expects."""

    @property
    def threads(self) -> list[list[str]]:
        """The steps of each thread.

        >>> Program("st x 1 | ld x", "warps").threads
        [['st x 1'], ['ld x']]
        """
        rows = [line.split("|") for line in self.text.strip().splitlines()]
        count = max(map(len, rows))
        padded = [[*row, *[""] * (count - len(row))] for row in rows]
        columns = zip(*padded, strict=True)
        return [[step.strip() for step in each if step.strip()] for each in columns]

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """The block, the warp and the lane of each thread."""
        return PLACES[self.at][: len(self.threads)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Blocks of the grid, threads of a block, blocks of a cluster."""
        blocks = 1 + max(block for block, _, _ in self.places)
        warps = 1 + max(warp for _, warp, _ in self.places)
        return blocks, 32 * warps, blocks if self.at == "cluster" else 1

    @property
    def compact(self) -> str:
        """The program in one line: a thread after the other."""
        return " ‖ ".join("; ".join(each) for each in self.threads)


def ptx(program: Program) -> str:
    """The PTX of a program; its entry is ``k``, which takes memory and results."""
    return "\n".join(
        [
            ".version 8.6\n.target sm_90a\n.address_size 64",
            ".visible .entry k(.param .u64 memory, .param .u64 results) {",
            " .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>;",
            " .shared .align 128 .b8 words[512]; .shared .align 8 .b8 bars[128];",
            " ld.param.u64 %rd1, [memory]; cvta.to.global.u64 %rd1, %rd1;",
            " ld.param.u64 %rd2, [results]; cvta.to.global.u64 %rd2, %rd2;",
            " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;",
            " shr.u32 %r3, %r2, 5; and.b32 %r4, %r2, 31;",
            *_prologue(program),
            *_choices(program),
            " bra END;",
            *(
                line
                for number in range(len(program.threads))
                for line in _thread(program, number)
            ),
            "END:",
            *(
                [" barrier.cluster.arrive; barrier.cluster.wait;"]
                if program.shape[2] > 1
                else []
            ),
            " ret;\n}",
        ]
    )


def _prologue(program: Program) -> list[str]:
    """Shared memory is zero, mbarriers are made, and every block knows block 0's."""
    if not _uses_shared(program):
        return []
    lines = [" mov.u32 %r5, words; mov.u32 %r6, bars;"]
    lines += [" setp.ne.u32 %p1, %r2, 0; @%p1 bra MADE;"]
    lines += [f" st.shared.u32 [%r5+{at}], 0;" for at in _INITIAL]
    lines += [
        f" mbarrier.init.shared::cta.b64 [%r6+{LINE * number}], {count};"
        for number, count in enumerate(program.counts)
    ]
    lines += [" fence.mbarrier_init.release.cluster; fence.proxy.async;", "MADE:"]
    if program.shape[2] > 1:
        lines += [" mapa.shared::cluster.u32 %r5, %r5, 0;"]
        lines += [" mapa.shared::cluster.u32 %r6, %r6, 0;"]
        return [*lines, " barrier.cluster.arrive; barrier.cluster.wait;"]
    return [*lines, " bar.sync 0;"]


_INITIAL = [LINE * line + 4 * word for line in range(2) for word in range(4)]
"""The words of shared memory that programs use: 16 bytes of x and of y."""


def _uses_shared(program: Program) -> bool:
    return bool(program.counts) or bool(re.search(r"\bs[xy]\b", program.text))


def _choices(program: Program) -> list[str]:
    """Every thread goes to its steps; the other lanes of its warp go with it."""
    lines = []
    for number, (block, warp, lane) in enumerate(program.places):
        lines += [
            f" setp.eq.u32 %p1, %r1, {block}; setp.eq.and.u32 %p1, %r3, {warp}, %p1;"
        ]
        if _crowded(program):
            lines += [f" setp.eq.and.u32 %p1, %r4, {lane}, %p1;"]
        lines += [f" @%p1 bra T{number};"]
    return lines


def _crowded(program: Program) -> bool:
    """Whether threads share a warp."""
    return program.at == "lanes"


def _thread(program: Program, number: int) -> list[str]:
    block, _, lane = program.places[number]
    lines = [f"T{number}: setp.eq.u32 %p2, %r4, {lane};"]
    for index, step in enumerate(program.threads[number]):
        code = _step(step, f"{number}_{index}", block != 0, 16 * number + index)
        whole = step.startswith(("bar.", "barrier."))
        if whole:
            lines += [f" {code};"]
        else:
            skip = f"S{number}_{index}"
            lines += [f" @!%p2 bra {skip};", f" {code};", f"{skip}:"]
    return [*lines, " bra END;"]


def _step(step: str, name: str, remote: bool, result: int) -> str:
    """The PTX of one step; a value that it reads goes to the results."""
    word, *rest = step.split()
    keep = f"st.global.u32 [%rd2+{4 * result}], %r7"
    poll = re.fullmatch(r"(\S+) (\S+) == (\d+)", step)
    if poll:
        load, found = _access(poll[1], poll[2], remote), f"L{name}"
        again = f"setp.ne.u32 %p3, %r7, {poll[3]}; @%p3 bra {found}"
        return f"\n{found}: {load}; {again}"
    opcode = word.partition(".")[0]
    if opcode == "ld":
        return f"{_access(word, rest[0], remote)}; {keep}"
    if opcode in ("st", "red", "atom") and not word.startswith("st.async"):
        more = f"; {keep}" if opcode == "atom" else ""
        return f"{_access(word, rest[0], remote, *rest[1:])}{more}"
    return _other(word, rest, name, remote)


def _access(word: str, place: str, remote: bool, *given: str) -> str:
    """A load, a store or an atomic operation."""
    opcode, *words = word.split(".")
    space, address = _address(place, remote)
    if opcode in ("ld", "st"):
        mnemonic = ".".join([opcode, *words, space, "u32"])
        return f"{mnemonic} " + (
            f"%r7, {address}" if opcode == "ld" else f"{address}, {given[0]}"
        )
    *words, operation = words
    kind = "b32" if operation in ("exch", "cas") else "u32"
    mnemonic = ".".join([opcode, *words, space, operation, kind])
    result = "%r7, " if opcode == "atom" else ""
    return f"{mnemonic} {result}{address}, {', '.join(given)}"


def _address(place: str, remote: bool) -> tuple[str, str]:
    """The state space and the address of a word."""
    if place.startswith("s"):
        at = LINE * GLOBALS.index(place[1:])
        return "shared::cluster" if remote else "shared::cta", f"[%r5+{at}]"
    if place in MBARRIERS:
        at = LINE * MBARRIERS.index(place)
        return "shared::cluster" if remote else "shared::cta", f"[%r6+{at}]"
    return "global", f"[%rd1+{LINE * GLOBALS.index(place)}]"


def _other(word: str, rest: list[str], name: str, remote: bool) -> str:
    """An mbarrier, a copy, or what is written as in PTX."""
    if word.startswith(("bar", "fence", "membar")):
        return " ".join([word, *rest])
    at = [_address(each, remote)[1] for each in rest if not each.isdigit()]
    space = "shared::cluster" if remote else "shared::cta"
    numbers = [each for each in rest if each.isdigit()]
    if word.startswith("mbarrier.arrive"):
        return f"{word}.{space}.b64 {', '.join(['_', at[0], *numbers])}"
    if word.startswith("mbarrier.try_wait"):
        wait = word.replace("try_wait", "try_wait.parity")
        test = f"{wait}.shared::cta.b64 %p3, {at[0]}, {numbers[0]}"
        return f"\nL{name}: {test}; @!%p3 bra L{name}"
    if word == "cp.async":
        return f"cp.async.ca.shared.global {at[0]}, {at[1]}, 4"
    if word == "cp.async.mbarrier.arrive.noinc":
        return f"{word}.shared::cta.b64 {at[0]}"
    if word == "bulk.load":
        how = "shared::cluster.global.mbarrier::complete_tx::bytes"
        return f"cp.async.bulk.{how} {at[0]}, {at[1]}, 16, {at[2]}"
    if word == "bulk.store":
        return f"cp.async.bulk.global.shared::cta.bulk_group {at[0]}, {at[1]}, 16"
    if word == "st.async":
        how = "shared::cluster.mbarrier::complete_tx::bytes.u32"
        return f"mov.u32 %r8, {numbers[0]}; st.async.weak.{how} {at[0]}, %r8, {at[1]}"
    if word.startswith("bulk."):
        group = word.replace("bulk.", "cp.async.bulk.", 1)
    else:
        group = word
    return " ".join([group, *rest])
