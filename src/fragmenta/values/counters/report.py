"""The counts of a launch, its occupancy, and a bound of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.context import Grid
from fragmenta.engine.simt.layout import LANES, SHARED_START
from fragmenta.errors import BadCall
from fragmenta.ptx.families import WITHOUT_RESULT
from fragmenta.ptx.module import Instruction, Module, Register, Sink
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.reference.cards import (
    DEFAULT,
    L2_BYTES,
    PARTITIONS,
    REGISTER_UNIT,
    REGISTERS,
    SHARED_UNIT,
    card,
)
from fragmenta.values.counters.code.layout import FIELDS, SECTOR, VALUES, WAYS
from fragmenta.values.counters.metrics import EVERY
from fragmenta.values.counters.products import (
    TensorPipe,
    lane_products,
    products,
    tensor_kind,
)
from fragmenta.values.counters.tally import CounterTotals, Footprint


class InstructionCounts(NamedTuple):
    """What one instruction moved."""

    line: int
    """In the PTX."""
    mnemonic: str
    counts: dict[str, int]
    """Those of :data:`FIELDS` that are not 0."""


class Reached(NamedTuple):
    """How often one instruction was executed, and which way its condition went."""

    function: str
    number: int
    """Its number in the function."""
    lanes: int
    on: int
    """Lanes for which a ``setp`` is true, or that its guard lets execute it."""
    off: int
    made: int = 0
    """Lanes that made a result, if results are counted."""
    sum: int = 0
    squares: int = 0
    """Sums of the results as numbers of 32 bits, and of their squares, mod 2**64."""
    apart: int = 0
    """Lanes whose result is not, or not nearly, the first of two parts of it."""
    apart_next: int = 0
    """The same of the second part."""


class Occupancy(NamedTuple):
    """How many blocks fit on a processor of a card, and what limits them."""

    card: str
    blocks: int
    warps: int
    percent: float
    limits: dict[str, int]
    """Blocks by each limit: ``blocks``, ``warps``, ``registers``, ``shared``."""


class Bound(NamedTuple):
    """A time that no launch on a card can go below, and why."""

    card: str
    seconds: float
    by: dict[str, float]
    """Seconds by each part: memory, shared memory, the products of each unit."""


@dataclass(frozen=True)
class Counters:
    """What a launch counted.

    ``counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]`` is a count by its
    name; ``docs/counters.md`` lists all names.
    """

    metrics: dict[str, int]
    products: dict[TensorPipe, int]
    """Products of Tensor Core instructions by unit."""
    lane_products: dict[str, int]
    """Products of numbers that lanes computed, by type; a guard is not looked at."""
    tma: dict[str, int]
    """Bytes of bulk copies: ``read`` from global memory, ``written``, ``reduced``."""
    footprints: list[Footprint]
    """Sectors of each argument that were touched, each counted once."""
    lines: list[InstructionCounts] = field(repr=False)
    """Instructions that access memory, in the order of the text."""
    shape: Grid = field(repr=False)
    shared: int = 0
    """Bytes of shared memory of a block."""
    reached: list[Reached] = field(default_factory=list, repr=False)
    """All instructions, also those that no lane executed."""

    def __getitem__(self, name: str) -> int:
        if name not in self.metrics:
            from fragmenta.errors import nearest

            raise BadCall(f"no metric {name}{nearest(name, self.metrics)}")
        return self.metrics[name]

    @property
    def read(self) -> int:
        """Bytes of global memory that were loaded, each once; not by bulk copies."""
        return SECTOR * sum(each.read for each in self.footprints)

    @property
    def written(self) -> int:
        """Bytes of global memory that were stored, each once; not by bulk copies."""
        return SECTOR * sum(each.written for each in self.footprints)

    def occupancy(self, registers: int, on: str = DEFAULT) -> Occupancy:
        """How many blocks fit on a processor, with so many registers of a thread."""
        if not isinstance(registers, int) or not 1 <= registers <= 255:
            raise BadCall(f"a thread has 1 to 255 registers; given {registers}")
        chosen, warps = card(on), self.shape.warps
        each = -(-registers * LANES // REGISTER_UNIT) * REGISTER_UNIT
        # Each scheduler has a part of the registers, and warps stay with it.
        fitting = REGISTERS // PARTITIONS // each * PARTITIONS
        used = -(-(self.shared + chosen.reserved) // SHARED_UNIT) * SHARED_UNIT
        most = chosen.threads // LANES
        limits = {
            "blocks": chosen.blocks,
            "warps": most // warps,
            "registers": fitting // warps,
            "shared": (chosen.shared << 10) // used if used else chosen.blocks,
        }
        blocks = min(limits.values())
        together = blocks * warps
        percent = 100 * together / most
        return Occupancy(chosen.name, blocks, together, percent, limits)

    def bound(self, on: str = DEFAULT) -> Bound:
        """A bound of the time: no launch on this card takes less.

        Memory that loads read is moved once, at the bandwidth of the card's memory:
        caches are empty before.  What stores write may stay in the L2 cache, as far as
        it fits.  Bulk copies come from the L2 cache.  A pass of shared memory takes a
        cycle, products are at the rate of their unit, and all processors are busy all
        the time.
        """
        chosen = card(on)
        stored = max(0, self.written - (chosen.l2 << 20))
        by = {"memory": (self.read + stored) / chosen.bandwidth}
        by |= {part: n / chosen.cycles for part, n in self.cycles(on).items()}
        return Bound(chosen.name, max(by.values()), by)

    def cycles(self, on: str = DEFAULT) -> dict[str, float]:
        """The cycles of a processor that each part of it takes, at least."""
        chosen = card(on)
        passes = sum(
            self.metrics[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"]
            for op in ("ld", "st")
        )
        by = {
            "bulk copies": sum(self.tma.values()) / L2_BYTES,
            "shared memory": float(passes),
        }
        for unit, count in self.products.items():
            rate = chosen.rates.get(unit.rate)
            if rate:
                by[str(unit)] = count / rate
        if chosen.rates:
            by["products of lanes"] = self.lane_products.get("f32", 0) / chosen.lanes
        return by

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types."""
        return {
            "metrics": dict(self.metrics),
            "tensor_products": {str(unit): n for unit, n in self.products.items()},
            "lane_products": dict(self.lane_products),
            "tma_bytes": dict(self.tma),
            "footprints": [each._asdict() for each in self.footprints],
            "lines": [
                {"line": each.line, "instruction": each.mnemonic, **each.counts}
                for each in self.lines
            ],
        }


def counters_json(counted: Counters) -> dict[str, Any]:
    """Counts as a process sends them."""
    return {
        "metrics": counted.metrics,
        "products": [[*unit, n] for unit, n in counted.products.items()],
        "lane_products": counted.lane_products,
        "tma": counted.tma,
        "footprints": [[*each] for each in counted.footprints],
        "lines": [[*each] for each in counted.lines],
        "shape": [*counted.shape],
        "shared": counted.shared,
        "reached": [[*each] for each in counted.reached],
    }


def counters_of(given: Mapping[str, Any]) -> Counters:
    """The inverse of :func:`counters_json`."""

    def numbers(of: Mapping[str, Any]) -> dict[str, int]:
        return {str(name): int(n) for name, n in of.items()}

    return Counters(
        numbers(given["metrics"]),
        {
            TensorPipe(str(instruction), str(a), str(d), bool(sparse)): int(n)
            for instruction, a, d, sparse, n in given["products"]
        },
        numbers(given["lane_products"]),
        numbers(given["tma"]),
        [Footprint(str(x), int(r), int(w)) for x, r, w in given["footprints"]],
        [
            InstructionCounts(int(n), str(what), numbers(each))
            for n, what, each in given["lines"]
        ],
        Grid(*(tuple(map(int, each)) for each in given["shape"])),  # type: ignore[arg-type]
        int(given["shared"]),
        [Reached(str(name), *map(int, rest)) for name, *rest in given["reached"]],
    )


# ── from what was counted ───────────────────────────────────────────────────


def counters(
    module: Module,
    compiled: Compiled,
    counts: Mapping[str, int],
    sums: CounterTotals,
    shape: Grid,
    dynamic: int,
) -> Counters:
    """The counts of a launch.

    ``counts`` are warp instructions by mnemonic.
    """
    found: Counter[str] = Counter()
    tma: Counter[str] = Counter()
    tensor: Counter[TensorPipe] = Counter()
    lines: dict[tuple[str, int], Counter[str]] = {}
    ways: dict[tuple[str, int], Counter[str]] = {}
    for (name, index), row in zip(compiled.places, sums.sites.tolist(), strict=True):
        counted = {field: n for field, n in zip(FIELDS, row, strict=True) if n}
        if counted:
            rows = ways if counted.keys() <= {*WAYS, *VALUES} else lines
            rows.setdefault((name, index), Counter()).update(counted)
    for (name, index), each in lines.items():
        function = module.functions[name]
        instruction = function.instructions[index]
        if each["products"]:
            sparse = "sp" in instruction.qualifiers
            kind = tensor_kind(instruction.mnemonic)
            unit = TensorPipe("tcgen05", kind, "", sparse)
            tensor[unit] += each["products"]
            continue
        _traffic(instruction, function.instructions, each, found, tma)
    executed: Counter[str] = Counter()
    for names, lanes in zip(compiled.counted, sums.lanes.tolist(), strict=True):
        for mnemonic in names:
            executed[mnemonic] += int(lanes)
    threads = sum(executed.values())
    found["ptx__inst_executed.sum"] = sum(counts.values())
    found["ptx__thread_inst_executed.sum"] = threads
    found["ptx__thread_inst_executed_pred_on.sum"] = threads - sums.predicated_off
    found["ptx__branches.sum"] = sum(
        times for each, times in counts.items() if each.partition(".")[0] == "bra"
    )
    found["ptx__branches_divergent.sum"] = sums.divergent
    made = products(counts) | tensor
    for unit, many in made.items():
        if unit.metric is not None:
            found[unit.metric] += unit.operations * many
    for name, begin in (("ldsm", "ldmatrix."), ("ldgsts", "cp.async.c")):
        found[f"smsp__inst_executed_op_{name}.sum"] = sum(
            times
            for each, times in counts.items()
            if each.startswith(begin) and not each.startswith("cp.async.commit")
        )
    found["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"] = tma["read"]
    found["l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"] = tma["written"]
    listed = [
        InstructionCounts(of.line, of.mnemonic, {k: v for k, v in each.items() if v})
        for (name, index), each in sorted(lines.items())
        for of in [module.functions[name].instructions[index]]
    ]
    return Counters(
        {name: found[name] for name in EVERY},
        made,
        lane_products(executed),
        {way: size for way, size in tma.items() if size},
        [each for each in sums.footprints if each.read or each.written],
        listed,
        shape,
        compiled.shared + dynamic - SHARED_START,
        _reached(compiled, sums, ways),
    )


def _reached(
    compiled: Compiled,
    sums: CounterTotals,
    ways: Mapping[tuple[str, int], Counter[str]],
) -> list[Reached]:
    """How often each instruction was executed: as often as its code block."""
    made = []
    rows = zip(compiled.waits, compiled.counted, sums.lanes.tolist(), strict=True)
    for (name, start), names, lanes in rows:
        for index in range(start, start + len(names)):
            way: Counter[str] = ways.get((name, index), Counter())
            values = (way[each] % (1 << 64) for each in VALUES)
            made.append(
                Reached(name, index, int(lanes), way["on"], way["off"], *values)
            )
    return made


def _traffic(
    instruction: Instruction,
    every: Sequence[Instruction],
    counted: Mapping[str, int],
    found: Counter[str],
    tma: Counter[str],
) -> None:
    """Add what one instruction moved to the metrics."""
    op = operation(instruction, every)
    if op == "bulk":
        tma[direction(instruction)] += counted["bytes"]
        return
    far = f"_pipe_lsu_mem_global_op_{op}.sum"
    found[f"l1tex__t_requests{far}"] += counted["requests"]
    found[f"l1tex__t_sectors{far}"] += counted["sectors"]
    if op in ("ld", "st"):
        near = f"mem_shared_op_{op}.sum"
        found[f"l1tex__data_pipe_lsu_wavefronts_{near}"] += counted["passes"]
        more = counted["passes"] - counted["least"]
        found[f"l1tex__data_bank_conflicts_pipe_lsu_{near}"] += more


def operation(instruction: Instruction, every: Sequence[Instruction]) -> str:
    """What an instruction is in the names of metrics."""
    words, name = instruction.qualifiers, instruction.opcode
    if instruction.is_copy:
        return "bulk" if "bulk" in words else "ld"
    if kind_of(instruction.mnemonic).word == "stores":
        return "st"
    # The assembler makes a reduction of an atomic whose result nobody reads, unless it
    # orders what comes after it.
    orders = {"acquire", "acq_rel"} & set(words)
    if instruction.is_fetch and not orders and not _used(instruction, every):
        return "red"
    return name if instruction.is_update else "ld"


def _used(instruction: Instruction, every: Sequence[Instruction]) -> bool:
    """Whether anything reads the result of an atomic; if not, ptxas makes it a red."""
    goal = instruction.operands[0]
    if isinstance(goal, Sink):
        return False
    if not isinstance(goal, Register):
        return True
    return any(
        goal in _registers(operand)
        for each in every
        for operand in (each.operands if each is not instruction else ())[
            0 if each.opcode in WITHOUT_RESULT else 1 :
        ]
    )


def _registers(operand: Any) -> set[Register]:
    """The registers that an operand names."""
    if isinstance(operand, Register):
        return {operand}
    found: set[Register] = set()
    for part in ("items", "base", "of", "first", "second"):
        inner = getattr(operand, part, None)
        if inner is not None:
            for each in inner if isinstance(inner, tuple) else (inner,):
                found |= _registers(each)
    return found


def direction(instruction: Instruction) -> str:
    """Whether a bulk copy reads global memory, writes it, or adds to it."""
    words = instruction.qualifiers
    if "reduce" in words:
        return "reduced"
    spaces = [each for each in words if each == "global" or each.startswith("shared")]
    if "prefetch" in words or spaces[-1:] == ["global"]:
        return "read"
    return "written" if spaces[:1] == ["global"] else "exchanged"
