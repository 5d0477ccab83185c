"""The page of a recorded run in a browser, against Python: all that it shows.

``python -m tests.view.replay_in_browser``, which ``make looks`` runs, records launches,
uses their pages in Chromium as a person would (keys, typed steps, chosen warps, clicked
registers and bytes), and compares each register, lane, byte, writer, reader, line and
count that is seen with what :class:`fragmenta.ptx.Replay` has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.engine.simt.layout import POISON
from fragmenta.reference.registers.dtype import dtype
from tests.view.test_explorer_page import EXPLORER
from tests.view.test_replay_page import LAUNCHES, read, recorded, small, words

Shown = dict[str, Any]
Acts = list[list[Any]]
KEYS: dict[str, tuple[str, bool]] = {
    "ArrowRight": ("step", False),
    "ArrowLeft": ("step", True),
    "F11": ("instruction", False),
    "Shift+F11": ("instruction", True),
    "F10": ("line", False),
    "Shift+F10": ("line", True),
    "e": ("event", False),
    "Shift+E": ("event", True),
}
"""Keys that step, and by what."""


def acts(replay: ptx.Replay, seed: int) -> Acts:
    """What is done in a page: each way to step, seeks, warps, registers and bytes."""
    random = np.random.default_rng(seed)
    some = random.integers(0, len(replay), 3).tolist()
    warps = len(replay.warps)
    found: Acts = [["key", key] for key in random.permutation([*KEYS]).tolist()]
    for step in [*some, len(replay) - 1]:
        found += [
            ["seek", step],
            ["look", int(random.integers(warps)), int(random.integers(32))],
            ["register", int(random.integers(40))],
            ["key", str(random.choice([*KEYS]))],
        ]
    for memory, each in enumerate(replay.memories):
        if each.size:
            found += [
                ["seek", int(random.integers(0, len(replay)))],
                ["byte", memory, touched(replay, memory, random)],
                ["key", str(random.choice(["w", "Shift+W"]))],
            ]
    if replay.problems:
        found += [["seek", 0], ["key", "p"], ["key", "p"], ["key", "Shift+P"]]
    return found


def touched(replay: ptx.Replay, memory: int, random: np.random.Generator) -> int:
    """A byte of a memory that somebody writes, if there is one."""
    columns = replay.columns
    mine = np.flatnonzero(columns["w_memory"] == memory)
    if not mine.size:
        return int(random.integers(replay.memories[memory].size))
    write = random.choice(mine)
    size = int(columns["w_size"][write])
    return int(columns["w_offset"][write]) + int(random.integers(size))


class Page:
    """What one page showed, and what it should have."""

    def __init__(self, replay: ptx.Replay, seen: list[Shown], done: Acts) -> None:
        self.replay = replay
        self.seen = seen
        self.done = done
        self.compared = 0
        self.enters = self._entered()

    def _entered(self) -> np.ndarray:
        """Whether a warp comes to another line with a step, or to the same again."""
        found = np.ones(len(self.replay), bool)
        last: dict[int, int] = {}
        steps = self.replay.steps
        both = zip(steps.warp.tolist(), steps.site.tolist(), strict=True)
        for step, (warp, site) in enumerate(both):
            old = last.get(warp)
            if old is not None:
                place = self.replay.place(old) != self.replay.place(site)
                found[step] = place or site <= old
            last[warp] = site
        return found

    def same(self, found: object, wanted: object, what: str) -> None:
        """Count a value, and stop if it is wrong."""
        self.compared += 1
        if found != wanted:
            raise AssertionError(f"{what}: shown is {found!r}, recorded {wanted!r}")

    def check(self) -> None:
        """Compare all that was seen."""
        last: Shown | None = None
        for act, shown in zip([["open"], *self.done], self.seen, strict=True):
            try:
                if last is not None:
                    self._moved(act, last["stands"], shown["stands"])
                self._check(shown)
            except AssertionError as why:
                where = f"after {act}, at {shown['stands']}"
                raise AssertionError(f"{where}: {why}") from None
            last = shown

    # ── where it went ───────────────────────────────────────────────────────

    def _moved(self, act: list[Any], old: Shown, new: Shown) -> None:
        wanted: int | None = old["step"]
        name, *given = act
        if name == "seek":
            wanted = given[0]
        elif name == "key" and given[0] in KEYS:
            by, back = KEYS[given[0]]
            wanted = self._next(old, by, back)
        elif name == "key" and given[0] in ("w", "Shift+W"):
            wanted = self._write(old, back=given[0] == "Shift+W")
        elif name == "key":
            wanted = self._problem(old["step"], back=given[0] == "Shift+P")
        elif name == "look":
            self.same([new["warp"], new["lane"]], given, "warp and lane")
        elif name == "byte" and new["at"] is not None:
            self.same(new["memory"], given[0], "memory")
            assert new["at"] <= given[1] < new["at"] + 16, "another byte was clicked"
        self.same(new["step"], old["step"] if wanted is None else wanted, "step")

    def _next(self, old: Shown, by: str, back: bool) -> int | None:
        if by == "step":
            found = old["step"] + (-1 if back else 1)
            return found if 0 <= found < len(self.replay) else None
        warp = None if by == "event" else old["warp"]
        return self.replay.next_step(old["step"], warp, by=by, back=back)

    def _write(self, old: Shown, back: bool) -> int | None:
        if old["at"] is None:
            return None
        steps = self._touching("w", old["memory"], old["at"])
        some = steps[steps < old["step"]] if back else steps[steps > old["step"]]
        return None if not some.size else int(some[-1] if back else some[0])

    def _problem(self, step: int, back: bool) -> int | None:
        stops = sorted(max(each["steps"]) for each in self.replay.problems)
        stops = [each for each in stops if each >= 0]
        some = [each for each in stops if (each < step if back else each > step)]
        here = stops.count(step)
        if here > 1:  # those of one step come after each other
            return None
        return None if not some else some[-1] if back else some[0]

    def _touching(self, kind: str, memory: int, offset: int) -> np.ndarray:
        """The steps of writes or reads of a byte, in order, each once."""
        columns = {
            name: self.replay.columns[f"{kind}_{name}"]
            for name in ("memory", "offset", "size", "step")
        }
        first = columns["offset"].astype(np.int64)
        fits = (columns["memory"] == memory) & (first <= offset)
        fits &= offset < first + columns["size"]
        return columns["step"][fits].astype(np.int64)

    # ── what it says ────────────────────────────────────────────────────────

    def _check(self, shown: Shown) -> None:
        stands = shown["stands"]
        self.same(shown["step"], str(stands["step"]), "the number of the step")
        self._instruction(shown, stands["step"], stands["warp"])
        self._registers(shown, stands)
        if stands["at"] is not None:
            self._byte(shown["byte"], stands)
        self._lines(shown, stands["step"], stands["warp"])
        self._hazard(shown["hazard"], stands["step"])

    def _last(self, step: int, warp: int) -> int | None:
        mine = self.replay.steps_of_warp(warp)
        at = int(np.searchsorted(mine, step, "right"))
        return int(mine[at - 1]) if at else None

    def _instruction(self, shown: Shown, step: int, warp: int) -> None:
        at = self._last(step, warp)
        if at is None:
            self.same(shown["instruction"], "This warp has not begun.", "instruction")
            return
        site = self.replay.sites[int(self.replay.steps.site[at])]
        self.same(shown["instruction"], site.text, "instruction")
        name = Path(site.file).name
        place = f"{name}:{site.line}" if site.file and site.line > 0 else ""
        self.same(
            (place or f"PTX line {site.ptx_line}") in shown["where"], True, "place"
        )
        mask = int(self.replay.steps.lanes[at])
        on = [lane for lane in range(32) if mask >> lane & 1]
        told = numbers(shown["lanes"].replace("all 32 lanes active", "0–31"))
        self.same(told, on, "active lanes")

    def _registers(self, shown: Shown, stands: Shown) -> None:
        lane = stands["lane"]
        assert shown["registers"], "no register is seen"
        for number, name, kind, text in shown["registers"]:
            self.same(name, self.replay.registers[number].name, "name")
            value = self.replay.value(stands["step"], stands["warp"], number)
            if value is None or text == "no value yet":
                self.same(text, "no value yet", name)
            else:
                self._value(kind, text, words(value)[lane], name)
        name = shown["all"]["name"]
        if not name:
            return
        kind = shown["all"]["about"].removeprefix(name).split(",")[0].strip()
        told = [each.partition(": ")[2] for each in shown["all"]["lanes"]]
        texts = [each.partition(", written")[0] for each in told]
        fits = [n for n, e in enumerate(self.replay.registers) if e.name == name]
        held = [self.replay.value(stands["step"], stands["warp"], n) for n in fits]
        some = [each for each in held if each is not None]
        # Functions may have registers of one name; then one of them is meant.
        for each in some[:1] if len(some) == 1 else []:
            self.same(len(texts), 32, "lanes")
            for at, bits in enumerate(words(each)):
                if texts[at] != "no value yet":
                    self._value(kind, texts[at], bits, f"{name} of lane {at}")

    def _value(self, kind: str, text: str, bits: int, name: str) -> None:
        self.compared += 1
        if text == "poison":
            size = min(int(kind[1:]), 32)
            self.same(bits & (1 << size) - 1, POISON & (1 << size) - 1, name)
        elif not fits(kind, text, bits):
            raise AssertionError(f"{name}, {kind}: shown is {text}, recorded {bits:#x}")

    def _byte(self, shown: Shown, stands: Shown) -> None:
        step, memory, offset = stands["step"], stands["memory"], stands["at"]
        told = re.search(r" (\w+), bytes ([\da-f ]+) at (0x[\da-f]+)$", shown["what"])
        assert told is not None, shown["what"]
        self.same(int(told[3], 16), offset, "offset")
        data, _ = self.replay.memory_at(step, memory)
        raw = bytes.fromhex(told[2])
        self.same(raw, data[offset : offset + len(raw)].tobytes(), "bytes")
        writer = self.replay.writer(step, memory, offset)
        before = self.replay.memory_at(-1, memory)[1][offset] == 1
        if writer is None and not before:
            self.same(shown["value"], "never written", "value")
        elif shown["value"].startswith("phase "):
            self.same(shown["value"], self._phase(step, memory, offset), "mbarrier")
        else:
            bits = int.from_bytes(raw, "little")
            self._value(told[1], shown["value"], bits, f"byte {offset:#x}")
        self._who(shown["who"], stands, writer, bool(before))

    def _phase(self, step: int, memory: int, offset: int) -> str:
        """How an mbarrier stands at a step."""
        rows = [
            row
            for each in self.replay.barriers
            if each.get("memory") == memory and each.get("offset") == offset
            for row in each.get("phases", ())
            if row[0] <= step
        ]
        _, phase, pending, *rest = max(rows, key=lambda row: row[0])
        sent, expected = (*rest, 0, 0)[:2]
        arrived = f"{expected - pending} of {expected} arrived"
        told = arrived if expected else f"{pending} to arrive"
        grouped = f"{sent:,}".replace(",", "\u202f")
        return f"phase {phase} · {told} · {grouped} B"

    def _who(
        self, who: list[list[str]], stands: Shown, writer: Any, before: bool
    ) -> None:
        step, memory, offset = stands["step"], stands["memory"], stands["at"]
        rows: dict[str, list[str]] = {}
        name = ""
        for term, text in who:
            name = term or name
            rows.setdefault(name, []).append(text)
        [wrote] = rows["hidden by" if self._hides(writer) else "written by"]
        if writer is None:
            there = "nobody: it was there before the first step"
            self.same(wrote, there if before else "nobody yet", "writer")
        else:
            self.same(steps_in(wrote)[0], writer.step, "step of the writer")
            self.same(self._named(writer) in wrote, True, f"{writer} in {wrote!r}")
        flying = [
            (each["name"], each["issued"])
            for each in self.replay.units
            if each["issued"] <= step and not 0 <= each["done"] <= step
            if any(m == memory and at <= offset < at + n for m, at, n in each["writes"])
        ]
        told = [
            (text.partition(", issued at ")[0], steps_in(text)[0])
            for text in rows.get("may still write", [])
        ]
        self.same(told, flying, "who may still write")
        self._readers(rows, self._reads(memory, offset), step)

    def _hides(self, access: Any) -> bool:
        """Whether a unit is not done when it writes: then that is poison."""
        if access is None or access.unit is None:
            return False
        done = int(self.replay.units[access.unit]["done"])
        return not 0 <= done <= access.step

    def _reads(self, memory: int, offset: int) -> list[int]:
        """The steps that read a byte; lanes of a step, and of a unit, count once."""
        columns = self.replay.columns
        first = columns["r_offset"].astype(np.int64)
        fits = (columns["r_memory"] == memory) & (first <= offset)
        fits &= offset < first + columns["r_size"]
        both = [*zip(columns["r_step"][fits], columns["r_unit"][fits], strict=True)]
        return [
            int(each[0])
            for at, each in enumerate(both)
            if not at or both[at - 1] != each
        ]

    def _readers(self, rows: dict[str, list[str]], reads: list[int], step: int) -> None:
        past = [each for each in reads if each <= step]
        told = rows.get("read by", [])
        if not past:
            self.same(told, ["nobody yet"], "readers")
        else:
            more = len(past) - 3
            listed = told[: min(3, len(past))]
            found = [steps_in(each)[0] for each in listed]
            self.same(found, past[::-1][:3], "readers")
            said = [int(re.sub(r"\D", "", each)) for each in told[3:]]
            self.same(said, [more] if more > 0 else [], "reads before these")
        later = [each for each in reads if each > step]
        said = [steps_in(each)[0] for each in rows.get("next read", [])]
        self.same(said, later[:1], "next read")

    def _named(self, access: Any) -> str:
        """Who made an access, as a part of what must be said."""
        if access.unit is not None:
            return str(self.replay.units[access.unit]["name"])
        warp = self.replay.warps[int(self.replay.steps.warp[access.step])]
        return f"warp {warp.warp}"

    def _lines(self, shown: Shown, step: int, warp: int) -> None:
        at, ptx_file = self._last(step, warp), self.replay.ptx_file
        site = (
            self.replay.sites[int(self.replay.steps.site[at])]
            if at is not None
            else None
        )
        now = {} if site is None else {site.file: site.line, ptx_file: site.ptx_line}
        for file, rows in ((shown["file"], shown["source"]), (ptx_file, shown["ptx"])):
            text = self.replay.lines(file) if rows else []
            for line, runs, code, here in rows:
                written = text[line - 1] if line <= len(text) else ""
                self.same(code, written, f"{file}:{line}")
                steps = self.replay.steps_of_line(file, line)
                if file != ptx_file:  # what follows in the same line counts once
                    steps = steps[self.enters[steps]]
                count = len(steps)
                wanted = f"{count}×" if 0 < count < 10_000 else ""
                self.same(runs, wanted, f"executions of {file}:{line}")
                self.same(
                    here, now.get(file) == line, f"whether {file}:{line} is in view"
                )

    def _hazard(self, shown: str, step: int) -> None:
        here = [e for e in self.replay.problems if step in e["steps"]]
        if not here:
            self.same(shown, "", "problem")
            return
        told = re.match(r"Problem (\d+)(?: of \d+)?: (.*)$", shown)
        assert told is not None, shown
        some = [(each["number"], each["code"]) for each in here]
        self.same((int(told[1]), told[2]) in some, True, f"{shown} of {some}")


# ── texts ───────────────────────────────────────────────────────────────────


def steps_in(text: str) -> list[int]:
    """The steps that a text names; digits are in groups.

    >>> steps_in("warp 1, lane 3, step 1\u202f204 (st.shared, a.cu:3)")
    [1204]
    """
    return [
        int(each.replace("\u202f", ""))
        for each in re.findall("step ([\\d\u202f]+)", text)
    ]


def numbers(text: str) -> list[int]:
    """Lanes in ranges.

    >>> numbers("active: 0–2, 8")
    [0, 1, 2, 8]
    """
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:–(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def fits(kind: str, text: str, bits: int) -> bool:
    """Whether a text is what bits are in a type; a NaN has many bits and one text."""
    if kind in ("e4m3", "e5m2", "tf32"):
        value = float(
            dtype(kind).decode(
                np.uint32([bits & 0xFFFFFFFF]).astype(dtype(kind).bits_dtype)
            )[0]
        )
        return text == "nan" if np.isnan(value) else float(text) == value
    value = read(kind, text)
    return value is None or value == bits


# ── all launches ────────────────────────────────────────────────────────────


def launches() -> Iterator[tuple[str, Callable[[], ptx.Replay]]]:
    """The recorded launches, by name."""
    yield "small", small
    for source, entry, bug, schedule in LAUNCHES:
        name = f"{source}-{entry}-{bug}-{schedule}"
        yield name, lambda each=(source, entry, bug, schedule): recorded(*each)


def main() -> int:
    """Record, use and compare; 1 if something is wrong."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    made: dict[str, tuple[ptx.Replay, Acts]] = {}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, record in launches():
            if only in name:
                replay = record()
                replay.to_html(folder / f"{name}.html")
                made[name] = replay, acts(replay, len(replay))
        todo = [{"page": f"{e}.html", "acts": done} for e, (_, done) in made.items()]
        (folder / "acts.json").write_text(json.dumps(todo), encoding="utf-8")
        recorded_at = time.perf_counter()
        node = ["node", "tests/replay/shown.mjs", str(folder)]
        subprocess.run(node, cwd=EXPLORER, check=True)
        every = json.loads((folder / "shown.json").read_text(encoding="utf-8"))
    used_at = time.perf_counter()
    failed = compared = 0
    for (name, (replay, done)), page in zip(made.items(), every, strict=True):
        checked = Page(replay, page["seen"], done)
        try:
            checked.same(page["said"], [], "the console says")
            checked.check()
        except (AssertionError, KeyError) as why:
            failed += 1
            print(f"FAIL {name}: {why!r}")
        compared += checked.compared
    print(
        f"{len(made)} launches: {compared:,} values compared, {failed} launches differ "
        f"(recording {recorded_at - started:.0f} s, browser {used_at - recorded_at:.0f} s, "
        f"comparing {time.perf_counter() - used_at:.0f} s)"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
