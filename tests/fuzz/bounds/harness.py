"""Runs many instructions on many hostile operands, and goes on after each fault.

A *bundle* is a kernel with several instructions; each block of the grid executes one of
them, with numbers that its threads read from a table.  The blocks run one after the
other.  One that stops with a fault is noted, and the next one runs.  What should have
happened is computed from :class:`~tests.fuzz.bounds.world.World`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.context import Grid, word
from fragmenta.engine.simt.layout import Fault, Status
from fragmenta.engine.simt.memory import PASS_BYTES
from fragmenta.launch.runners import ClusterRunner
from fragmenta.reference.shared.tensor_map import TensorMap
from tests.fuzz.bounds.arena import Arena
from tests.fuzz.bounds.forms import COLUMNS, HEAD, REGISTERS, Form, column
from tests.fuzz.bounds.world import SIZE, WRAP, Draw, World

RESULTS, RESULT = 8, 16
"""Results of a thread, and the bytes of each."""
PATIENCE = 3
"""How often a block that waits has another turn."""


class Setting(NamedTuple):
    """How a bundle is run."""

    threads: int = 32
    cluster: int = 1
    watch: bool = False
    low: bool = False
    """Whether memory is at the start of its pages."""
    schedule: str = "eager"


class Outcome(NamedTuple):
    """What became of a bundle."""

    accesses: int
    faults: int
    findings: list[str]
    texts: int = 0
    """Texts that were tried."""
    refused: int = 0
    """Texts that were refused before anything was compiled."""


def target(forms: Sequence[Form]) -> str:
    """What executes them."""
    return "sm_90a" if forms[0].family.startswith("wgmma") else "sm_100a"


def kernel(forms: Sequence[Form], cluster: int = 1) -> str:
    """The text of a bundle; the blocks of a cluster end together."""
    both = "barrier.cluster.arrive; barrier.cluster.wait;" if cluster > 1 else ""
    labels = [f"L{number}" for number in range(len(forms))]
    lines = [
        HEAD.replace("sm_100a", target(forms)),
        ".visible .entry k(.param .u64 table, .param .u64 out, .param .u64 data,",
        "  .param .u64 locked, .param .align 16 .b8 more[24]) {",
        REGISTERS,
        f".shared .align 1024 .b8 tile[{_tile(forms)}]; .local .align 16 .b8 own[96];",
        ".reg .b64 %row, %goal, %at; .reg .b32 %n, %t, %c;",
        "ld.param.u64 %row, [table]; ld.param.u64 %goal, [out];",
        "mov.u32 %n, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %c, %tid.x;",
        "setp.eq.u32 %first, %c, 0;",
        "mad.lo.u32 %t, %n, %t, %c;",
        f"mul.wide.u32 %at, %t, {8 * COLUMNS}; add.u64 %row, %row, %at;",
        f"mul.wide.u32 %at, %t, {RESULT * RESULTS}; add.u64 %goal, %goal, %at;",
        *_filled(),
        *_allocated(forms),
        f"rem.u32 %n, %n, {len(forms)};",
        f"LIST: .branchtargets {', '.join(labels)};",
        "brx.idx %n, LIST;",
    ]
    for label, form in zip(labels, forms, strict=True):
        lines += [f"{label}:", form.text, *_kept(form), "bra DONE;"]
    return "\n".join([*lines, f"DONE: {both}", "ret;", "}", ""])


def _tile(forms: Sequence[Form]) -> int:
    """Bytes of shared memory; a tile of a descriptor has to fit."""
    return 4072 if any(form.reads for form in forms) else 1000


def _filled() -> list[str]:
    lines = []
    for number in range(9):
        place, _ = column(f"%d{number}")
        lines.append(f"ld.global.u64 %d{number}, [%row+{8 * place}];")
        place, _ = column(f"%r{number}")
        lines.append(f"ld.global.u32 %r{number}, [%row+{8 * place}];")
        lines.append(f"cvt.u16.u32 %h{number}, %r{number};")
        lines.append(f"and.b32 %c, %r{number}, 1; setp.ne.u32 %p{number}, %c, 0;")
        lines.append(f"mov.b64 %long{number}, %d{number};")
        lines.append(f"mov.b32 %word{number}, %r{number};")
        lines.append(f"mov.b16 %half{number}, %h{number};")
    for number in range(9):
        other = (number + 1) % 9
        lines.append(f"mov.b128 %q{number}, {{%d{number}, %d{other}}};")
    return lines


def _allocated(forms: Sequence[Form]) -> list[str]:
    """An mbarrier and tensor memory, for those who need them."""
    if any(kind.endswith("mbarrier") for form in forms for _, kind in form.likes):
        return ["@%first mbarrier.init.shared::cta.b64 [tile], 4;"]
    if not any(form.family.startswith("tcgen05.") for form in forms):
        return []
    words = "cta_group::1.sync.aligned.shared::cta.b32"
    return [f"tcgen05.alloc.{words} [tile], 128;"]


_WIDTHS = {"h": "u16", "r": "u32", "d": "u64", "q": "b128"}


def _kept(form: Form) -> list[str]:
    """Store what a load has loaded."""
    return [
        f"st.global.{_WIDTHS[name[1]]} [%goal+{RESULT * place}], {name};"
        for place, name in enumerate(form.results)
    ]


# ── running ─────────────────────────────────────────────────────────────────


class Room:
    """A bundle, ready to run, with all its memory in an arena."""

    def __init__(self, forms: Sequence[Form], setting: Setting, blocks: int) -> None:
        self.forms, self.setting, self.blocks = forms, setting, blocks
        self.arena = Arena(low=setting.low)
        threads = blocks * setting.threads
        self.table = self._taken(8 * COLUMNS * threads).view(np.uint64)
        self.out = self._taken(RESULT * RESULTS * threads)
        self.data, self.locked = self._taken(SIZE), self._taken(37)
        self.data[:] = np.arange(SIZE) * 7
        self.locked[:] = 99
        shape = Grid((blocks, 1, 1), (setting.threads, 1, 1), (setting.cluster, 1, 1))
        with self.arena.standing_in():
            loaded = ptx.parse(kernel(forms, setting.cluster))
            given = [
                _locked(self.table),
                self.out,
                self.data,
                _locked(self.locked),
                bytes(range(24)),
            ]
            self.launch: Any = loaded.launch(
                "k",
                shape,
                given,
                shared=0,
                target=target(forms),
                contract=True,
                stack=1 << 12,
                watch=setting.watch,
                schedule=setting.schedule,
            )
            self.runner: Any = self.launch.context()
        self._put_maps()
        compiled = self.launch.compiled
        self.world = World(self.launch, compiled.shared, compiled.local, self.out)
        self.lane, self.at, self.kind = (np.full(blocks, -1, np.int64) for _ in "abc")
        """The first lane that failed in each block, where, and how."""
        self.findings: list[str] = []

    def _taken(self, size: int) -> NDArray[np.uint8]:
        return self.arena.take(size)

    def _put_maps(self) -> None:
        """Put tensor maps of each rank into the data."""
        start = self.slot << layout.SLOT_BITS
        for rank in range(1, 6):
            sizes, strides = (64, 4, 3, 2, 2)[:rank], (64, 256, 256, 512)[: rank - 1]
            box = (16, 2, 1, 2, 1)[:rank]
            map_ = TensorMap("u8", sizes, strides, box, address=start + 640).encode()
            place = 128 * (rank - 1)
            self.data[place : place + 128] = np.frombuffer(map_, np.uint8)

    @property
    def slot(self) -> int:
        """Where the kernel finds the data."""
        return next(
            int(each.slot)
            for each in self.launch.places
            if np.shares_memory(each.data, self.data)
        )

    @property
    def hosts(self) -> list[int]:
        """Host addresses, which no kernel should be able to use."""
        known = (self.data, self.table, self.launch.parameters, self.launch.constants)
        return [int(each.ctypes.data) for each in known]

    def run(self) -> None:
        """Run all blocks; each has its fault or ends."""
        units = self.blocks // self.setting.cluster
        turns = 0
        self._begin(0, units)
        while not self.runner.finished:
            before = len(self.findings)
            try:
                with np.errstate(over="ignore"):
                    self.launch.run(self.runner)
            except fm.Error:
                pass
            except Exception as error:
                self._escaped(error)
            status = self.runner.status
            self._look()
            if len(self.findings) > before:  # the same would escape again
                self._next(status, units)
                continue
            if status == Status.ENDED:
                self._begin(int(self.runner.following), units)
                continue
            if status == Status.SPENT and turns < PATIENCE:
                turns += 1
                continue
            turns = 0
            self._next(status, units)

    def _next(self, status: Status, units: int) -> None:
        """Note a fault, and go on with the next block or cluster."""
        index = int(self.runner.index)
        context = self.runner.failed
        machine = self.launch.machine
        if status == Status.FAULT:
            warp = context.warp(context.fault_warp)
            block = int(context.index)
            self.lane[block] = word(warp, layout.FAULT_LANE)
            self.kind[block] = word(warp, layout.FAULT_KIND)
            self.at[block] = word(warp, layout.FAULT_ADDRESS, np.int64)
        errors = [*self.launch.host.errors.values()]
        errors += [] if machine is None else machine.errors.values()
        for error in errors:
            if not isinstance(error, fm.Error):
                self._escaped(error)
        self.launch.host.errors.clear()
        if machine is not None:
            machine.errors.clear()
            cluster = self.runner.cluster
            cluster.in_flight.clear()
        for each in self.runner.contexts:
            each.status = Status.ENDED
        if isinstance(self.runner, ClusterRunner):
            self.runner.status = Status.ENDED
        self._begin(index + 1, units)

    def _begin(self, first: int, units: int) -> None:
        """Run all that is left, or one cluster: Python looks at its memory then."""
        one = isinstance(self.runner, ClusterRunner)
        self.runner.begin(first, min(first + 1, units) if one else units)
        self.runner.allow(1 if one else units, goes_on=False)

    def _look(self) -> None:
        """Nobody may write what belongs to the system."""
        for each in self.runner.contexts:
            if each.parts["shared"][: layout.SHARED_START].any():
                self._escaped(AssertionError("the system's bytes were written"))

    def _escaped(self, error: BaseException) -> None:
        block = min(int(self.runner.index) * self.setting.cluster, self.blocks - 1)
        text = self.forms[block % len(self.forms)].text
        self.findings.append(f"{type(error).__name__} escaped: {error}\n    {text}")

    def chosen(self, number: int, rank: int) -> NDArray[np.int64]:
        """The blocks of this rank that execute an instruction."""
        every = np.arange(self.blocks)
        own = (every % len(self.forms) == number) & (
            every % self.setting.cluster == rank
        )
        return np.flatnonzero(own)

    def _ran(self) -> NDArray[np.bool_]:
        """The blocks that failed, or whose cluster ran to its end."""
        failed = self.kind > 0
        whole = failed.reshape(-1, self.setting.cluster).any(axis=1)
        return failed | ~np.repeat(whole, self.setting.cluster)

    # ── judging ─────────────────────────────────────────────────────────────

    def judge(self, numbers: NDArray[np.uint64], before: NDArray[np.uint8]) -> Outcome:
        """Compare what happened with what should have happened."""
        accesses, faults = 0, 0
        stores: list[Stores] = []
        for number, rank in np.ndindex(len(self.forms), self.setting.cluster):
            form, chosen = self.forms[number], self.chosen(number, rank)
            chosen = chosen[self._ran()[chosen]]
            failed = self.kind[chosen] > 0
            unsupported = self.kind[chosen] == Fault.UNSUPPORTED
            done = np.where(failed, self.lane[chosen] + 1, self.setting.threads)
            accesses += int(done[~unsupported].sum())
            faults += int((failed & ~unsupported).sum())
            if form.touch is not None and not unsupported.all():
                self._compare(form, chosen, numbers[chosen], stores, rank)
            self._outside(form, chosen[~failed], numbers)
        alone = all(f.family == "st" and f.touch is not None for f in self.forms)
        alone = alone and self.setting.cluster == 1
        if alone and not (self.data == _after(before, stores)).all():
            self.findings.append("memory is not what the stores in bounds make of it")
        self.findings += self.arena.spoiled()
        if not (self.locked == 99).all():
            self.findings.append("memory was written that must not be")
        return Outcome(accesses, faults, self.findings[:20])

    def _compare(
        self,
        form: Form,
        blocks: NDArray[np.int64],
        numbers: NDArray[np.uint64],
        stores: list[Stores],
        rank: int,
    ) -> None:
        touch = form.touch
        assert touch is not None
        place, bits = column(touch.register)
        base = numbers[..., place] & np.uint64((1 << bits) - 1)
        address = base + np.uint64(touch.offset & WRAP)
        good = self.world.allows(touch, address, rank)
        first = np.where(good.all(axis=1), -1, good.argmin(axis=1))
        known = self.kind[blocks] != Fault.UNSUPPORTED
        seen = np.where(self.kind[blocks] > 0, self.lane[blocks], -1)
        wrong = known & (first != seen)
        for each in np.flatnonzero(wrong)[:2]:
            lane = int(max(first[each], seen[each]))
            self.findings.append(
                f"block {blocks[each]}: lane {seen[each]} failed, not {first[each]}; "
                f"address {address[each, lane]:#x}\n    {form.text}"
            )
        if form.results:
            fine = np.flatnonzero(known & (first < 0) & (seen < 0))
            self._loaded(form, blocks[fine], address[fine], rank)
        if form.values and touch.space == "generic":
            runs = np.repeat((known & (first < 0))[:, None], address.shape[1], axis=1)
            stores += self._stored(form, blocks, address, numbers, runs)

    def _outside(
        self, form: Form, blocks: NDArray[np.int64], numbers: NDArray[np.uint64]
    ) -> None:
        """Blocks that ran to their end, though a descriptor leaves shared memory."""
        for reads in form.reads:
            for block in blocks:
                word = int(numbers[block, 0, reads.column])
                if not self.world.holds(reads, word):
                    self.findings.append(
                        f"block {block} read outside shared memory: the descriptor of "
                        f"{reads.name} is {word:#018x}\n    {form.text}"
                    )
                    return

    def _loaded(
        self,
        form: Form,
        blocks: NDArray[np.int64],
        address: NDArray[np.uint64],
        rank: int,
    ) -> None:
        assert form.touch is not None
        held = self.world.held(form.touch, address, rank)
        out = self.out.reshape(self.blocks, self.setting.threads, RESULTS, RESULT)
        for place in range(len(form.results)):
            part = held[..., place * form.element : (place + 1) * form.element]
            if not (out[blocks][:, :, place, : form.element] == part).all():
                self.findings.append(f"loaded other bytes\n    {form.text}")
                return

    def _stored(
        self,
        form: Form,
        blocks: NDArray[np.int64],
        address: NDArray[np.uint64],
        numbers: NDArray[np.uint64],
        runs: NDArray[np.bool_],
    ) -> list[Stores]:
        """What stores without a fault put where; of lanes that collide one stays."""
        assert form.touch is not None
        slot = next(
            s.slot
            for s in self.launch.places
            if s.data is not None and np.shares_memory(s.data, self.data)
        )
        begin = address - np.uint64(slot << layout.SLOT_BITS)
        runs = runs & (begin <= np.uint64(self.data.size - form.touch.bytes))
        group = min(32, PASS_BYTES // form.touch.bytes)
        lanes = np.arange(runs.shape[1]) ^ (group - 1)
        order = blocks[:, None] * max(32, self.setting.threads) + lanes
        found = []
        for place, name in enumerate(form.values):
            low = begin[runs].astype(np.int64) + place * form.element
            value = _value(name, numbers[runs])[:, : form.element]
            found.append(
                Stores(order[runs], low[:, None] + np.arange(form.element), value)
            )
        return found


class Stores(NamedTuple):
    """Stores by their threads, in whichever order these have run."""

    order: NDArray[np.int64]
    places: NDArray[np.int64]
    values: NDArray[np.uint8]


def _after(before: NDArray[np.uint8], stores: list[Stores]) -> NDArray[np.uint8]:
    """Memory after all stores, in the order of the threads."""
    made = before.copy()
    if not stores:
        return made
    order = np.concatenate([np.repeat(s.order, s.places.shape[1]) for s in stores])
    places = np.concatenate([s.places.ravel() for s in stores])
    values = np.concatenate([s.values.ravel() for s in stores])
    sorted_ = np.argsort(order, kind="stable")
    made[places[sorted_]] = values[sorted_]
    return made


def _value(register: str, numbers: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """The bytes of a register of each thread."""
    if register[1] == "q":
        number = int(register[2:])
        halves = [_value(f"%d{n % 9}", numbers) for n in (number, number + 1)]
        return np.concatenate(halves, axis=1)
    place, _ = column(register)
    return np.ascontiguousarray(numbers[:, place]).view(np.uint8).reshape(-1, 8)


def _locked(memory: NDArray[Any]) -> NDArray[Any]:
    seen = memory.view()
    seen.flags.writeable = False
    return seen


def play(forms: Sequence[Form], setting: Setting, blocks: int, seed: int) -> Outcome:
    """Run a bundle on hostile numbers."""
    blocks = -(-blocks // setting.cluster) * setting.cluster
    room = Room(forms, setting, blocks)
    draw = Draw(seed, room.world, room.hosts, setting.threads)
    numbers = np.zeros((blocks, setting.threads, COLUMNS), np.uint64)
    for number, form in enumerate(forms):
        for rank in range(setting.cluster):
            chosen = room.chosen(number, rank)
            numbers[chosen] = draw.row(form, len(chosen), rank)
            if form.uniform:
                numbers[chosen] = numbers[chosen][:, :1]
    room.table[:] = numbers.reshape(-1)
    before = room.data.copy()
    room.run()
    return room.judge(numbers, before)
