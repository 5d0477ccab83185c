"""What an H200 does with membermasks that do not name the right lanes.

    nvcc -std=c++17 -arch=sm_90a -o membermasks tests/simt/membermasks.cu
    ./membermasks 0 >> RESULTS       # on the machine with the GPU; after a status of 3,
                                     # once more with the number after the last one
    python -m tests.simt.membermasks RESULTS

Each line of the results is a launch of one warp.  ``tests/golden/membermasks.json``
keeps one entry for each instruction and setup.  A lane of a setup executes the
instruction (0), is elsewhere (1) or has ended (2).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[1] / "golden" / "membermasks.json"
ALL, HALF, EVEN = 0xFFFFFFFF, 0xFFFF, 0x55555555


def _setup(mask: Any, where: Any = 0, step: int = 1) -> dict[str, Any]:
    def each(of: Any) -> list[int]:
        return [of(lane) if callable(of) else of for lane in range(32)]

    return {"masks": each(mask), "where": each(where), "step": step}


def _below(lane: int) -> int:
    return (1 << lane) - 1


SETUPS = {
    "all lanes, mask -1": _setup(ALL, step=16),
    "all lanes execute, each half names itself": _setup(
        lambda lane: HALF if lane < 16 else HALF << 16, step=16
    ),
    "all lanes execute, mask 0000ffff": _setup(HALF, step=16),
    "all lanes execute, mask 55555555": _setup(EVEN),
    "lanes 16-31 elsewhere, mask 0000ffff": _setup(HALF, lambda n: n // 16, 16),
    "odd lanes elsewhere, mask 55555555": _setup(EVEN, lambda n: n & 1),
    "lanes 16-31 ended, mask 0000ffff": _setup(HALF, lambda n: n // 16 * 2, 16),
    "lanes 16-31 ended, mask -1": _setup(ALL, lambda n: n // 16 * 2, 16),
    "odd lanes ended, mask -1": _setup(ALL, lambda n: 2 * (n & 1)),
    "lanes 8-15 elsewhere, 16-31 ended, mask 000000ff": _setup(
        0xFF, lambda n: min(n // 8, 2), 8
    ),
    "lanes 16-31 elsewhere then ended, mask -1": _setup(ALL, lambda n: n // 16, 16),
    "all lanes execute, each names the lanes below it": _setup(_below),
    "all lanes execute, each names itself and those below": _setup(
        lambda lane: _below(lane + 1)
    ),
    "all lanes execute, each names all but itself": _setup(lambda n: ALL ^ 1 << n),
    "all lanes execute, each names itself alone": _setup(lambda n: 1 << n),
    "all lanes execute, mask 0": _setup(0),
    "lanes 0-15 execute, each names the lanes below it, rest elsewhere": _setup(
        _below, lambda n: n // 16
    ),
    "all lanes execute, even name the even, odd name all": _setup(
        lambda n: ALL if n & 1 else EVEN
    ),
}
REFUSED = "illegal instruction"


def keep(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results, each once; a mask in a register and a constant do the same."""
    found: dict[str, dict[str, Any]] = {}
    for each in lines:
        executing = [w == 0 for w in SETUPS[each["setup"]]["where"]]
        if each["status"] == "cudaErrorIllegalInstruction":
            made: Any = REFUSED
        else:
            assert each["status"] == "cudaSuccess"
            chosen = [lane for lane in range(32) if executing[lane]]
            made = [
                [f"{each['d'][n]:x}" for n in chosen],
                [each["p"][n] for n in chosen],
            ]
            made = [" ".join(made[0]), "".join(map(str, made[1]))]
        before = found.setdefault(each["op"], {}).setdefault(each["setup"], made)
        assert before == made, each
    return found


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text("utf-8").strip()
    given = json.loads(
        text if text.startswith("[") else f"[{text.replace(chr(10), ',')}]"
    )
    KEPT.write_text(json.dumps(keep(given), indent=1) + "\n", "utf-8")
