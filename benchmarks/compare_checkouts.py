"""Compare the speed of this checkout with an older one, benchmark by benchmark.

    git worktree add ../older COMMIT
    python benchmarks/compare_checkouts.py ../older

Both run their own benchmarks, in turn, so that a busy moment of the machine hits both.
Printed is the least time of each benchmark that both have, and the ratio: below 1, this
checkout is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]


def times(checkout: Path, only: str) -> dict[str, float]:
    """The least seconds of each benchmark of a checkout, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pytest", "benchmarks", "-q"]
        command += ["--ignore", "benchmarks/gpu", "--ignore", "benchmarks/peers"]
        command += ["-p", "no:cacheprovider"]
        command += ["-k", only] if only else []
        path = [checkout / "src", checkout, os.environ.get("PYTHONPATH", "")]
        ran = subprocess.run(
            [*command, f"--benchmark-json={report}"],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists() or not report.read_bytes():
            raise SystemExit(f"{checkout}: no benchmark ran:\n{ran.stdout}{ran.stderr}")
        found = json.loads(report.read_text())["benchmarks"]
    return {each["name"]: each["stats"]["min"] for each in found}


def least(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The least of several rounds, for the benchmarks that are in all of them.

    >>> least([{"a": 2.0, "b": 1.0}, {"a": 1.5}])
    {'a': 1.5}
    """
    names = set.intersection(*(set(each) for each in rounds))
    return {name: min(each[name] for each in rounds) for name in sorted(names)}


def show(old: dict[str, float], new: dict[str, float]) -> None:
    """Print the seconds of both, and their ratio."""
    print(f"{'benchmark':52} {'before':>9} {'now':>9} {'ratio':>6}")
    for name in sorted(old.keys() & new.keys()):
        ratio = new[name] / old[name]
        print(f"{name[:52]:52} {old[name]:9.2e} {new[name]:9.2e} {ratio:6.2f}")
    for name in sorted(old.keys() ^ new.keys()):
        print(f"{name[:52]:52} only {'before' if name in old else 'now'}")


def main() -> None:
    """Run the benchmarks of both checkouts in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("older", type=Path, help="the folder of the older checkout")
    parser.add_argument("--rounds", type=int, default=3, help="how often each runs")
    parser.add_argument("-k", dest="only", default="", help="benchmarks, as for pytest")
    parser.add_argument("--json", type=Path, help="write the seconds of both to a file")
    given = parser.parse_args()
    older = given.older.resolve()
    if not (older / "src" / "fragmenta").is_dir():
        raise SystemExit(f"{given.older} is not a checkout: it has no src/fragmenta")
    before: list[dict[str, float]] = []
    after: list[dict[str, float]] = []
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
        before.append(times(older, given.only))
        after.append(times(HERE, given.only))
        if given.json:
            seconds = {"before": least(before), "now": least(after)}
            given.json.write_text(json.dumps(seconds, indent=1))
    show(least(before), least(after))


if __name__ == "__main__":
    main()
