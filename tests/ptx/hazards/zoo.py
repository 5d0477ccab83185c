"""What every instrument says about every kernel of the hazards, in one launch each.

    python -m tests.ptx.hazards.zoo              # write tests/golden/hazards/zoo.json
    python -m tests.ptx.hazards.zoo OLDER        # compare with an older checkout

A launch is watched, counted, followed with exact values and recorded, by one schedule
after the other.  What is long is kept as a digest.  The comparison runs this file in
both checkouts: an answer that differs is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta import Error, ptx
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.replay.ending import differences, endings

GOLDEN = Path(__file__).parents[2] / "golden" / "hazards" / "zoo.json"
SCHEDULES = ("eager", "lazy", 1, "lazy+oldest-waits")
STATES = 2_000
"""How many states of its orders are visited at most."""
LIMITS = ptx.Limits(instructions=500_000)


def digest(*parts: object) -> str:
    """A few digits for something long."""
    total = 0
    for each in parts:
        data = each if isinstance(each, bytes) else repr(each).encode()
        total = zlib.crc32(data, total)
    return f"{total:08x}"


def launch(case: Case, **options: Any) -> tuple[Any, str]:
    """A launch of a case, or the fault that ends it, and a digest of its arrays."""
    row, given = case.row, running.made(case.row)
    kernel = running.loaded(row.source, case.bug).kernels[row.entry]
    if row.cluster > 1:
        options["cluster"] = row.cluster
    arguments = running.for_launch(row, given)
    try:
        made = kernel.launch(row.grid, row.block, arguments, limits=LIMITS, **options)
    except ptx.KernelError as fault:
        made = fault
    arrays = [each for each in given if isinstance(each, np.ndarray)]
    return made, digest(*running.left(row, arrays))


def watching(case: Case) -> ptx.Watch:
    return ptx.Watch("report", strict=case.row.source in running.STRICT)


def stacked(case: Case, schedule: str | int) -> dict[str, object]:
    """What all instruments say of one launch."""
    every = [watching(case), ptx.Counting(), ptx.ExactValues(), ptx.Window()]
    with endings() as found:
        result, left = launch(case, instruments=every, schedule=schedule)
    if isinstance(result, ptx.KernelError):
        return {"fault": result.kind, "words": digest(str(result))}
    (stepped,) = result.steps
    replay = result.replay()
    ends = [each for each in found if each.told is stepped.told]
    return {
        "rules": sorted(f"{each.severity} {each.rule}" for each in result.hazards),
        "words": digest([each.paragraph() for each in result.hazards]),
        "left": left,
        "counts": digest(result.counters),
        "lost": sorted(each.rule for each in result.numerics.problems),
        "numerics": digest(str(result.numerics)),
        "steps": len(replay),
        "replay": digest(replay.steps.site.tobytes(), replay.units),
        "rebuilds memory": not any(differences(replay, e, stepped) for e in ends),
    }


def orders(case: Case) -> str:
    """What is found when all orders are explored."""
    result, _ = launch(case, watch=watching(case), orders=STATES)
    if isinstance(result, ptx.KernelError):
        return f"{result.kind} {digest(str(result))}"
    verdict = result.orders.verdict.replace(" ", "-")
    return f"{verdict} {digest(str(result.orders))}"


def sameness(case: Case) -> str:
    """Whether it leaves the bits of the right kernel."""
    try:
        one, other = (call(each) for each in (case, case._replace(bug=0)))
        found = ptx.same(one, other, tries=2)
    except ptx.KernelError as fault:
        return f"{fault.kind} {digest(str(fault))}"
    except Error as why:
        return f"refused {digest(str(why))}"
    return f"{found.verdict.replace(' ', '-')} {digest(str(found))}"


def call(case: Case) -> ptx.Call:
    row, given = case.row, running.made(case.row)
    kernel = running.loaded(row.source, case.bug).kernels[row.entry]
    options = {"cluster": row.cluster} if row.cluster > 1 else {}
    arguments = running.for_launch(row, given)
    return ptx.Call(kernel, row.grid, row.block, arguments, limits=LIMITS, **options)


ASKED: dict[str, Callable[[Case], object]] = {
    **{str(each): lambda case, by=each: stacked(case, by) for each in SCHEDULES},
    "orders": orders,
    "same": sameness,
}
WORDS = ("orders", "same")


def answers(case: Case) -> dict[str, object]:
    """Everything about one case."""
    return {name: ask(case) for name, ask in ASKED.items()}


def plain(found: dict[str, Any]) -> dict[str, str]:
    """The words of answers, without digests: those do not depend on the compiler."""
    kept = {name: each.split()[0] for name, each in found.items() if name in WORDS}
    for schedule in map(str, SCHEDULES):
        each = found[schedule]
        said = [each["fault"]] if "fault" in each else each["rules"] + each["lost"]
        kept[schedule] = ", ".join(dict.fromkeys(said))
        if not each.get("rebuilds memory", True):
            kept[schedule] += ", does not rebuild memory"
    return {name: each for name, each in kept.items() if each}


def _named(name: str) -> dict[str, object]:
    (case,) = [each for each in cases() if each.name == name]
    return answers(case)


def alone() -> None:
    """Blocks of a racy kernel run one after the other if the process has one core."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def everything() -> dict[str, dict[str, object]]:
    """The answers about all cases."""
    names = [each.name for each in cases()]
    with ProcessPoolExecutor(os.cpu_count(), initializer=alone) as pool:
        found = pool.map(_named, names, chunksize=4)
        return dict(zip(names, found, strict=True))


def of_checkout(folder: Path) -> dict[str, dict[str, object]]:
    """What this file finds in another checkout."""
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    ran = subprocess.run(
        [sys.executable, __file__, "--print"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, dict[str, object]] = json.loads(ran.stdout)
    return found


def main() -> None:
    """Write the answers, or compare them with those of another checkout."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    now = everything()
    if asked == "--print":
        json.dump(now, sys.stdout)
    elif not asked:
        kept = {name: json.dumps(plain(found)) for name, found in now.items()}
        rows = ",\n".join(f"{json.dumps(name)}: {row}" for name, row in kept.items())
        GOLDEN.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    else:
        before = of_checkout(Path(asked).resolve())
        apart = [name for name in now if before.get(name) != now[name]]
        for name in apart:
            print(name, before.get(name), now[name], sep="\n  ")
        print(f"{len(now)} kernels, {len(apart)} with other answers")


if __name__ == "__main__":
    main()
