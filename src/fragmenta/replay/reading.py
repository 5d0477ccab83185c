"""A record from what a launch wrote down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fragmenta.ptx.module import Function, Module, demangled, type_bits
from fragmenta.ptx.module import Register as PtxRegister
from fragmenta.ptx.placement import place_shared
from fragmenta.ptx.sources import source_lines
from fragmenta.replay import columns
from fragmenta.replay.parts import COLUMNS, Array, Columns, Head, Row, Value
from fragmenta.simt import layout
from fragmenta.simt.layout import LANES, SHARED_START
from fragmenta.simt.naming import plain
from fragmenta.simt.program import register_bytes
from fragmenta.tracing.code.effects import read, written
from fragmenta.tracing.recorder import MOST_COPIED
from fragmenta.tracing.told import Stepped, Told, Where

TENSOR_BYTES = 128 * 512 * 4


class Made(NamedTuple):
    """A record: what is small, and what is large."""

    head: Head
    columns: Columns


def made(stepped: Stepped) -> Made:
    """Read the record of a launch; its problems are added elsewhere."""
    return _Reading(stepped).made()


class _Reading:
    """Reads one record."""

    def __init__(self, stepped: Stepped) -> None:
        self.stepped, self.told = stepped, stepped.told
        self.module: Module = stepped.of.module()
        self.about: Row = stepped.of.compiled.traced
        self.functions = [self.module.functions[n] for n in self.about["functions"]]
        self.bases: dict[str, int] = {}
        """The number of the first register of each function."""
        self.registers = self._registers()
        self.sites = self._sites()
        self.numbers: dict[Where, int] = {}
        """The number of each memory."""
        self.memories = self._memories()

    def made(self) -> Made:
        """The record."""
        told, shape = self.told, self.stepped.of.shape
        found = self._steps()
        wrote, read_, copies = self._accesses()
        found |= columns.joined(wrote, "w") | columns.joined(read_, "r")
        found |= self._initial()
        head: Head = {
            "kernel": demangled(self.stepped.of.compiled.kernel),
            "target": self.stepped.target,
            "schedule": self.stepped.schedule,
            "grid": list(shape.grid),
            "block": list(shape.block),
            "cluster": list(shape.cluster),
            "first": told.pieces[0].base if told.pieces else 0,
            "total": told.total,
            "left_out": "",
            "others": joined(other_blocks(told), large_arrays(told)),
            "cut": told.cut,
            "files": self._files(),
            "sites": self.sites,
            "registers": self.registers,
            "warps": self._warps(),
            "memories": self.memories,
            "units": [*self._units(), *self._lane_copies(copies, found)],
            "barriers": self._barriers(found),
            "problems": [],
        }
        count = len(found["site"])
        kept = kept_steps(head["first"], count, head["total"], told.cut)
        head["left_out"] = joined(kept, head["others"])
        typed = {
            name: np.ascontiguousarray(found.get(name, ()), COLUMNS[name])
            for name in COLUMNS
        }
        return Made(head, typed)

    # ── what is small ───────────────────────────────────────────────────────

    def _registers(self) -> list[Row]:
        found: list[Row] = []
        for function in self.functions:
            self.bases[function.name] = len(found)
            known: dict[str, int] = {}
            for each in function.registers:
                known[each.name] = known.get(each.name, 0) + 1
                again = f"@{known[each.name]}" if known[each.name] > 1 else ""
                bits = type_bits(each.type)
                found.append(
                    {
                        "name": each.name + again,
                        "type": each.type,
                        "bits": 1 if each.type == "pred" else max(8, bits),
                        "function": demangled(function.name),
                    }
                )
        return found

    def _ids(self, function: Function, found: Sequence[PtxRegister]) -> list[int]:
        return [self.bases[function.name] + each.number for each in found]

    def _sites(self) -> list[Row]:
        lines = self.module.text.splitlines()
        found = []
        for function in self.functions:
            for index, each in enumerate(function.instructions):
                text = (
                    lines[each.line - 1].strip() if 0 < each.line <= len(lines) else ""
                )
                given = self.module, function, index, self.about["recursive"]
                writes = [self.bases[n] + each.number for n, each in written(*given)]
                found.append(
                    {
                        "function": demangled(function.name),
                        "index": index,
                        "opcode": each.mnemonic,
                        "text": text,
                        "ptx_line": each.line,
                        "file": each.source.file if each.source else "",
                        "line": each.source.line if each.source else 0,
                        "writes": writes,
                        "reads": self._ids(function, read(function, index)),
                    }
                )
        return found

    def _warps(self) -> list[dict[str, int]]:
        threads = self.stepped.of.shape.threads
        return [
            {
                "block": self.told.blocks[block],
                "warp": warp,
                "threads": min(LANES, threads - warp * LANES),
            }
            for block, warp in self.told.warps
        ]

    def _files(self) -> list[dict[str, str]]:
        """The PTX, and the sources that can be read."""
        name = self.module.name or "kernel"
        name = name if name.endswith(".ptx") else f"{name}.ptx"
        found = [{"name": name, "text": self.module.text}]
        for name in dict.fromkeys(each["file"] for each in self.sites):
            text = "".join(source_lines(name, self.stepped.of.language))
            if text:
                found.append({"name": name, "text": text})
        return found

    # ── memories ────────────────────────────────────────────────────────────

    def _memories(self) -> list[Row]:
        found: list[Row] = []
        places = {each.slot: each for each in self.stepped.of.places}

        def add(where: Where, **about: Value) -> None:
            self.numbers[where] = len(found)
            found.append({"variables": [], "block": -1, "start": 0, **about})

        for state in self.told.states:
            for (kind, number), data in state.memories.items():
                where = kind, number
                if where in self.numbers:
                    continue
                if kind == "global":
                    of = places[number].elements
                    size = [[places[number].name, 0, data.size, of.type]] if of else []
                    first = number << layout.SLOT_BITS
                    name = places[number].name
                    about = {"name": name, "variables": size, "start": first}
                    add(where, kind=kind, size=data.size, **about)
                    continue
                block = self.told.blocks[number]
                size_ = TENSOR_BYTES if kind == "tensor" else data.size
                shared = self._variables(data.size) if kind == "shared" else []
                name = f"{kind} memory of block {block}"
                add(
                    where,
                    name=name,
                    kind=kind,
                    block=block,
                    size=size_,
                    variables=shared,
                )
        return found

    def _variables(self, size: int) -> list[list[Value]]:
        """The variables in shared memory."""
        kernel = self.module.functions[self.stepped.of.compiled.kernel]
        placed = place_shared(self.module, kernel, SHARED_START)
        every = [
            (self.module.functions[function].variables[name], start)
            for (function, name), start in placed.inner.items()
        ]
        every += [
            (self.module.variables[name], start)
            for name, start in placed.module.items()
        ]
        return [
            [
                plain(each.name),
                start,
                each.size if each.elements is not None else size - start,
                each.type,
            ]
            for each, start in sorted(every, key=lambda pair: pair[1])
            if start < size
        ]

    def _initial(self) -> Columns:
        """What memories held before the first step, and which bytes were written."""
        images: list[Array] = []
        masks: list[Array] = []
        for (kind, number), _ in sorted(self.numbers.items(), key=lambda e: e[1]):
            state = next(e for e in self.told.states if (kind, number) in e.memories)
            data = state.memories[kind, number]
            if not data.size and kind == "tensor":
                words = np.full(TENSOR_BYTES // 4, layout.POISON, np.uint32)
                data = words.view(np.uint8)
            known = kind == "global" or not state.whole
            images.append(data)
            masks.append(np.full(data.size, known))
        none = np.empty(0, np.uint8)
        defined = np.concatenate([none.astype(bool), *masks])
        found: Columns = {
            "initial": np.concatenate([none, *images]),
            "defined": np.packbits(defined, bitorder="little"),
        }
        return found

    # ── steps ───────────────────────────────────────────────────────────────

    def _steps(self) -> Columns:
        """Steps and the words of their registers: 32 for a register, or more."""
        pieces = self.told.pieces
        none = np.empty((0, 4), np.uint32)
        rows = np.concatenate([none, *(each.steps for each in pieces)])
        starts = np.cumsum([0, *(each.words.size for each in pieces)])
        base = np.repeat(starts[:-1], [len(each.steps) for each in pieces])
        at = rows[:, 3].astype(np.int64) + base
        words = np.concatenate(
            [np.empty(0, np.uint32), *(each.words for each in pieces)]
        )
        stopped = self._stopped()
        if stopped is not None:
            rows = np.concatenate([rows, stopped[0]])
            at = np.append(at, words.size)
            words = np.concatenate([words, *stopped[1]])
        site = rows[:, 0].astype(np.int64)
        at, words = self._widened(site, at, words)
        first = {
            "site": site,
            "warp": rows[:, 1],
            "lanes": rows[:, 2],
            "at": at,
            "words": words,
        }
        return self._with_start(first)

    def _stopped(self) -> tuple[Array, list[Array]] | None:
        """A last step, if an instruction stopped the launch: its registers stay."""
        fault = self.told.fault
        if fault is None or not 0 <= fault.site < len(self.stepped.of.compiled.places):
            return None
        name, index = self.stepped.of.compiled.places[fault.site]
        row = np.array(
            [[self._site_of(fault.site), fault.warp, fault.lanes, 0]], np.uint32
        )
        given = self.module, self.module.functions[name], index
        found = []
        for owner, each in written(*given, self.about["recursive"]):
            place = self.about["registers"][owner][each.number]
            size = register_bytes(each)
            found.append(fault.memory[place:][:size].view(np.uint32))
        return row, found

    def _widened(self, site: Array, at: Array, words: Array) -> tuple[Array, Array]:
        """Registers of 8 and 16 bits as words, one for each lane."""
        bits = [each["bits"] for each in self.registers]
        sizes = np.array(
            [sum(_width(bits[r]) for r in s["writes"]) for s in self.sites] or [0]
        )
        if all(of in (1, 32, 64, 128) for of in bits):
            return at, words
        each = sizes[site]
        ends = np.cumsum(each)
        goals = ends - each
        wide = np.empty(int(ends[-1]) if len(ends) else 0, np.uint32)
        for number in np.unique(site).tolist():
            chosen = np.flatnonzero(site == number)
            of, to = at[chosen][:, None], goals[chosen][:, None]
            for register in self.sites[number]["writes"]:
                width, kept = _width(bits[register]), max(1, bits[register])
                span = words[of + np.arange(kept)]
                if kept < width:
                    narrow = np.uint8 if kept == 8 else np.uint16
                    span = span.view(narrow).astype(np.uint32)
                wide[to + np.arange(width)] = span
                of, to = of + kept, to + width
        return goals, wide

    def _with_start(self, found: Columns) -> Columns:
        """Registers before the first step, if steps before it are left out."""
        state = self.told.states[0] if self.told.states else None
        if state is None or state.whole:
            return found
        warps, ids, places, more = [], [], [], [found["words"]]
        at = found["words"].size
        for number, memory in state.warps.items():
            for register, words in self._registers_of(memory):
                warps.append(number)
                ids.append(register)
                places.append(at)
                more.append(words)
                at += words.size
        found |= {"i_warp": warps, "i_register": ids, "i_at": places}  # type: ignore[dict-item]
        found["words"] = np.concatenate(more)
        return found

    def _registers_of(self, memory: Array) -> list[tuple[int, Array]]:
        """All registers in the memory of a warp, as words."""
        found = []
        for function in self.functions:
            places = self.about["registers"][function.name]
            for each in function.registers:
                number = self.bases[function.name] + each.number
                bits = self.registers[number]["bits"]
                size = 4 if bits == 1 else bits // 8 * LANES
                raw = memory[places[each.number] :][:size]
                narrow = {8: np.uint8, 16: np.uint16}.get(bits, np.uint32)
                found.append((number, raw.view(narrow).astype(np.uint32)))
        return found

    # ── accesses ────────────────────────────────────────────────────────────

    def _accesses(self) -> tuple[list[Value], list[Value], list[Array]]:
        ranks, local = self.stepped.of.shape.cluster_blocks, self._local_size()
        places = columns.Places(self.numbers, self.told.warps, ranks, local)
        base = self.told.pieces[0].base if self.told.pieces else 0
        wrote, read_, copies = columns.lane_parts(
            self.told.pieces, self.about["forms"], places
        )
        for unit, moved in self.told.moved:
            part = columns.unit_part(moved, unit, self.numbers, moved.step)
            if part is not None and moved.step >= base:
                (read_ if moved.data is None else wrote).append(part)
        if base:
            wrote, read_ = (
                [each._replace(step=each.step - base) for each in some]
                for some in (wrote, read_)
            )
        return wrote, read_, copies

    def _local_size(self) -> int:
        """Bytes of local memory of a thread."""
        warps = self.stepped.of.shape.warps
        for state in self.told.states:
            for (kind, _), data in state.memories.items():
                if kind == "local":
                    return int(data.size) // (warps * LANES)
        return 0

    # ── units and barriers ──────────────────────────────────────────────────

    def _site_of(self, place: int) -> int:
        """The number of an instruction, from one of ``Compiled.places``."""
        name, index = self.stepped.of.compiled.places[place]
        number = 0
        for function in self.functions:
            if function.name == name:
                return number + int(index)
            number += len(function.instructions)
        return -1

    def _units(self) -> list[Row]:
        found = []
        base = self.told.pieces[0].base if self.told.pieces else 0
        for each in self.told.units:
            goals = [
                [self.numbers[m.where], int(start), m.size]
                for m in each.goals
                if m.where in self.numbers
                for start in m.starts.tolist()
            ]
            site = self._site_of(each.site)
            found.append(
                {
                    "kind": each.kind,
                    "name": self.sites[site]["opcode"] if site >= 0 else each.kind,
                    "site": site,
                    "issued": each.issued - base,
                    "done": each.done - base if each.done >= 0 else -1,
                    "waited": each.waited - base if each.waited >= 0 else -1,
                    "warp": each.warp,
                    "lanes": each.lanes,
                    "bytes": each.bytes,
                    "writes": goals,
                    "signals": [list(signal) for signal in each.signals],
                    "group": each.group,
                }
            )
        return found

    def _lane_copies(self, copies: Sequence[Array], found: Columns) -> list[Row]:
        """``cp.async`` that compiled code made at once, each a unit of its own."""
        if not copies:
            return []
        made: list[Row] = []
        waits = self._waits(found)
        writes = found["w_step"]
        base = self.told.pieces[0].base
        first = len(self.told.units)
        for step, warp, lanes in np.concatenate(copies).tolist():
            place = int(step) - base
            site = int(found["site"][place])
            chosen = slice(*np.searchsorted(writes, [place, place + 1]).tolist())
            found["w_unit"][chosen] = first + len(made)
            goals = zip(
                found["w_memory"][chosen].tolist(),
                found["w_offset"][chosen].tolist(),
                found["w_size"][chosen].tolist(),
                strict=True,
            )
            made.append(
                {
                    "kind": "cp.async",
                    "name": self.sites[site]["opcode"],
                    "site": site,
                    "issued": place,
                    "done": place,
                    "waited": waits.get((warp, place), -1),
                    "warp": int(warp),
                    "lanes": int(lanes),
                    "bytes": int(found["w_size"][chosen].sum()),
                    "writes": [list(each) for each in goals],
                    "signals": [],
                    "group": -1,
                }
            )
        return made

    def _waits(self, found: Columns) -> dict[tuple[int, int], int]:
        """When a warp waited for the ``cp.async`` of a step, by warp and step."""
        groups = {
            number: each
            for number, each in enumerate(self.sites)
            if each["opcode"].startswith("cp.async.") and ".bulk" not in each["opcode"]
        }
        waited: dict[tuple[int, int], int] = {}
        queues: dict[int, list[list[int]]] = {}
        for step in np.flatnonzero(np.isin(found["site"], list(groups))).tolist():
            warp = int(found["warp"][step])
            queue = queues.setdefault(warp, [[]])
            of = groups[int(found["site"][step])]
            left = _groups_left(of["opcode"], of["text"])
            if left is None and "commit_group" in of["opcode"]:
                queue.append([])
            elif left is None:
                queue[-1].append(step)
            else:
                keep = max(len(queue) - 1 - left, 0) if left >= 0 else len(queue)
                over, queues[warp] = queue[:keep], queue[keep:] or [[]]
                waited |= {(warp, each): step for group in over for each in group}
        return waited

    def _barriers(self, found: Columns) -> list[Row]:
        base = self.told.pieces[0].base if self.told.pieces else 0
        made: dict[tuple[int, int], Row] = {}
        cluster: list[list[Value]] = []
        for each in self.told.marks:
            step = each.step - base
            if each.kind == "cluster wait":
                if not cluster or cluster[-1][2] != each.phase:
                    cluster.append([step, [], each.phase])
                cluster[-1][1].append(each.warp)
            if each.kind not in ("mbarrier", "wait"):
                continue
            key = each.block, each.offset
            if key not in made:
                made[key] = self._mbarrier(*key)
            if each.kind == "wait":
                made[key]["waits"].append([step, each.phase, each.warp])
            else:
                told = [step, each.phase, each.pending, each.bytes]
                phases = made[key]["phases"]
                if phases and phases[-1][0] == step:
                    phases.pop()
                phases.append(told)
        rows = [*made.values(), *self._block_barriers(found)]
        if cluster:
            uses = [[step, warps] for step, warps, _ in cluster]
            name = "barrier.cluster"
            rows.append({"kind": name, "name": "barrier of the cluster", "uses": uses})
        return rows

    def _mbarrier(self, block: int, offset: int) -> Row:
        memory = self.numbers.get(("shared", block), -1)
        name = f"{offset:#x}"
        for variable, start, size, _ in self.memories[memory]["variables"]:
            if start <= offset < start + size:
                name = variable if offset == start else f"{variable}+{offset - start}"
        return {
            "kind": "mbarrier",
            "name": name,
            "block": self.told.blocks[block],
            "memory": memory,
            "offset": offset,
            "phases": [],
            "waits": [],
        }

    def _block_barriers(self, found: Columns) -> list[Row]:
        """``bar.sync`` and the like: when they opened, and for which warps."""
        wanted = {
            number: each
            for number, each in enumerate(self.sites)
            if each["opcode"].split(".")[0] in ("bar", "barrier")
            and "warp" not in each["opcode"]
            and "cluster" not in each["opcode"]
        }
        rows: dict[tuple[int, str], list[list[Value]]] = {}
        passed: dict[tuple[int, str], int] = {}
        for step in np.flatnonzero(np.isin(found["site"], list(wanted))).tolist():
            warp = int(found["warp"][step])
            block = self.told.warps[warp][0]
            text = wanted[int(found["site"][step])]["text"]
            name = _barrier_name(text)
            own = passed[warp, name] = passed.get((warp, name), -1) + 1
            row = rows.setdefault((block, name), [])
            while len(row) <= own:
                row.append([step, []])
            row[own][1].append(warp)
        return [
            {
                "kind": "bar.sync",
                "name": f"barrier {name}",
                "block": self.told.blocks[block],
                "uses": uses,
            }
            for (block, name), uses in rows.items()
        ]


def _width(bits: int) -> int:
    """The words of a register in a record."""
    return 1 if bits == 1 else max(32, bits)


def _groups_left(opcode: str, text: str) -> int | None:
    """How many groups of ``cp.async`` a wait leaves out; -1: it is for all copies.

    >>> _groups_left("cp.async.wait_group", "cp.async.wait_group 2;")
    2
    """
    if "wait_all" in opcode:
        return -1
    if "wait_group" not in opcode:
        return None
    digits = "".join(each for each in text.rpartition(" ")[2] if each.isdigit())
    return int(digits or 0)


def _barrier_name(text: str) -> str:
    """The number of a barrier, or the register that has it."""
    words = [each for each in text.rstrip(";").split() if not each.startswith("@")]
    return words[1].rstrip(",") if len(words) > 1 else "0"


def joined(*words: str) -> str:
    """What is left out, in one line.

    >>> joined("", "one", "two")
    'one; two'
    """
    return "; ".join(filter(None, words))


def kept_steps(first: int, kept: int, total: int, cut: bool) -> str:
    """Which steps are kept, in words; empty if all are.

    >>> kept_steps(100, 50, 400, False)
    'steps 100 to 149 of 400 are kept'
    """
    if not first and kept >= total and not cut:
        return ""
    all_ = f"more than {total:,}" if cut else f"{total:,}"
    return f"steps {first:,} to {first + kept - 1:,} of {all_} are kept"


def large_arrays(told: Told) -> str:
    """Which arrays are too large to be kept, in words; empty if none is.

    >>> from fragmenta.tracing.told import Window
    >>> large_arrays(Told(Window(), large=[("argument 0 (x)", 100 << 20)]))
    'argument 0 (x), 100 MiB, is not kept: all arrays together may have 64 MiB'
    """
    if not told.large:
        return ""
    named = [f"{name}, {size >> 20:,} MiB" for name, size in told.large[:4]]
    more = " and others" if len(told.large) > 4 else ""
    several = "are" if len(told.large) > 1 else "is"
    return (
        f"{' and '.join(named)}{more}, {several} not kept: all arrays together may "
        f"have {MOST_COPIED >> 20} MiB"
    )


def other_blocks(told: Told) -> str:
    """Which blocks are recorded, in words; empty if all are."""
    if not told.others:
        return ""
    several = len(told.blocks) > 1
    blocks = ", ".join(map(str, told.blocks[:4]))
    more = " and others" if len(told.blocks) > 4 else ""
    return (
        f"only block{'s' * several} {blocks}{more} of the grid "
        f"{'are' if several else 'is'} recorded: what other blocks wrote to global "
        "memory meanwhile is not shown; Window(blocks=...), or --blocks of the command "
        "line, records others"
    )
