"""What happens beside the steps of a record: units, and barriers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fragmenta.inspect.replay.memories import Memories
from fragmenta.inspect.replay.parts import Array, Columns, Row, Value
from fragmenta.inspect.replay.program import Traced
from fragmenta.ptx.families import BARRIERS


class UnitsAndBarriers:
    """The units and barriers of a recorded launch; ``found`` are its columns."""

    def __init__(self, of: Traced, memories: Memories, found: Columns) -> None:
        self.of, self.told, self.sites = of, of.told, of.sites
        self.memories, self.found = memories, found

    # ── units ───────────────────────────────────────────────────────────────

    def units(self, copies: Sequence[Array]) -> list[Row]:
        """All units; ``copies`` are steps, warps and lanes of ``cp.async``."""
        return [*self._units(), *self._lane_copies(copies)]

    def _units(self) -> list[Row]:
        found = []
        for each in self.told.units:
            goals = [
                [self.memories.numbers[m.where], int(start), m.size]
                for m in each.goals
                if m.where in self.memories.numbers
                for start in m.starts.tolist()
            ]
            site = self.of.site_of(each.site)
            found.append(
                {
                    "kind": each.kind,
                    "name": self.sites[site]["opcode"] if site >= 0 else each.kind,
                    "site": site,
                    "issued": min(max(each.issued, self.of.first), self.of.end)
                    - self.of.first,
                    "done": self.of.since(each.done),
                    "waited": self.of.since(each.waited),
                    "warp": each.warp,
                    "lanes": each.lanes,
                    "bytes": each.bytes,
                    "writes": goals,
                    "signals": [list(signal) for signal in each.signals],
                    "group": each.group,
                    "read": self.of.since(each.taken),
                }
            )
        return found

    def _lane_copies(self, copies: Sequence[Array]) -> list[Row]:
        """``cp.async`` that compiled code made at once, each a unit of its own."""
        if not copies:
            return []
        made: list[Row] = []
        found, waits = self.found, self._waits()
        writes = found["w_step"]
        first = len(self.told.units)
        for step, warp, lanes in np.concatenate(copies).tolist():
            place = int(step) - self.of.first
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
                    "read": -1,
                }
            )
        return made

    def _waits(self) -> dict[tuple[int, int], int]:
        """When a warp waited for the ``cp.async`` of a step, by warp and step."""
        found = self.found
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

    # ── barriers ────────────────────────────────────────────────────────────

    def barriers(self) -> list[Row]:
        """Mbarriers, barriers of blocks, and that of the cluster."""
        made: dict[tuple[int, int], Row] = {}
        cluster: list[list[Value]] = []
        for each in self.told.marks:
            step = self.of.at(each.step)
            if step < 0:
                continue
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
                state = each.phase, each.pending, each.bytes, each.expected
                told = [step, *state]
                phases = made[key]["phases"]
                if phases and phases[-1][0] == step:
                    phases.pop()
                phases.append(told)
        rows = [*made.values(), *self._block_barriers()]
        if cluster:
            uses = [[step, warps] for step, warps, _ in cluster]
            name = "barrier.cluster"
            rows.append({"kind": name, "name": "barrier of the cluster", "uses": uses})
        return rows

    def _mbarrier(self, block: int, offset: int) -> Row:
        memory = self.memories.numbers.get(("shared", block), -1)
        return {
            "kind": "mbarrier",
            "name": self.of.names.shared(offset) or f"{offset:#x}",
            "block": self.told.blocks[block],
            "memory": memory,
            "offset": offset,
            "phases": [],
            "waits": [],
        }

    def _block_barriers(self) -> list[Row]:
        """``bar.sync`` and the like: when they opened, and for which warps."""
        found = self.found
        wanted = {
            number: each
            for number, each in enumerate(self.sites)
            if each["opcode"].split(".")[0] in BARRIERS
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
