"""The time of the import, and of a command in a terminal.

Both are set against importing what they stand on, in fresh processes that take
turns in one run, so that a busy machine slows both sides alike.  Also runs as a
script: ``python benchmarks/bench_import.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

ROUNDS = 15
SOURCE = Path(__file__).resolve().parent.parent / "src"
# As for users: compiled modules are kept, whatever the environment says.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)
WHERE = ["where", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "A", "3", "17"]
SHORT = ["where", "mma.m16n8k64.s4.s4", "A", "3", "17"]
LIBRARY = "import numpy, ml_dtypes"
KERNEL = ".version 8.0 .target sm_80 .entry f() { ret; }"

# name: what is timed, what it is set against, how many milliseconds it may add
CASES: dict[str, tuple[list[str], list[str], float]] = {
    "import fragmenta": (
        ["-c", f"{LIBRARY}, fragmenta"],
        ["-c", LIBRARY],
        60,
    ),
    "import fragmenta, first look-up": (
        ["-c", f"{LIBRARY}, fragmenta; fragmenta.find('movmatrix').d.where(0, 3, 5)"],
        ["-c", LIBRARY],
        float("inf"),
    ),
    "import fragmenta.ptx": (
        ["-c", f"{LIBRARY}, fragmenta.ptx"],
        ["-c", LIBRARY],
        60,
    ),
    "import fragmenta.ptx, read a kernel": (
        ["-c", f"{LIBRARY}; from fragmenta import ptx; ptx.parse({KERNEL!r}).kernels"],
        ["-c", LIBRARY],
        float("inf"),
    ),
    "fragmenta where, full name": (
        ["-m", "fragmenta", *WHERE],
        ["-c", "import numpy"],
        300,
    ),
    "fragmenta where, short name": (
        ["-m", "fragmenta", *SHORT],
        ["-c", "import numpy"],
        300,
    ),
    "fragmenta --help": (["-m", "fragmenta", "--help"], ["-c", ""], float("inf")),
}

# Commands, and the CPU time to the first line that each of them prints; of ``run``, to
# the start of the program.
SCALE = """.version 8.0 .target sm_80 .address_size 64
.visible .entry scale(.param .u64 p) {
 .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<4>;
 ld.param.u64 %d1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4;
 add.u64 %d3, %d1, %d2; ld.global.f32 %f1, [%d3]; add.f32 %f2, %f1, %f1;
 st.global.f32 [%d3], %f2; ret; }"""
ONE = ["--block", "32", "--arg", "ones:f32:32"]
F16 = "mma.m16n8k16.f32.f16"
COMMANDS = {
    "--help": ["--help"],
    "list": ["list", "mma", "f16"],
    "show": ["show", F16],
    "formula": ["formula", F16, "A"],
    "where": SHORT,
    "table": ["table", F16, "A"],
    "which": ["which", F16, "3", "5"],
    "draw": ["draw", F16],
    "idesc": ["idesc", "0x08400010"],
    "matmul": ["matmul", F16, "a.npy", "b.npy"],
    "explain": ["explain", F16, "--row", "3", "--col", "5", "--seed", "1"],
    "compare": ["compare", F16],
    "quantize": ["quantize", "a.npy", "mxfp8_e4m3"],
    "sparsity": ["sparsity", "zeros.npy", "mma.sp::ordered_metadata.m16n8k32.f32.f16"],
    "shared": ["shared", "wgmma.m64n128k16.f32.f16", "B"],
    "check": ["check", "k.ptx"],
    "launch": ["launch", "k.ptx", *ONE],
    "launch --list": ["launch", "k.ptx", "--list"],
    "launch --help": ["launch", "--help"],
    "run": ["run", "--", "true"],
    "orders": ["orders", "k.ptx", *ONE],
    "judge --help": ["judge", "--help"],
    "serve --help": ["serve", "--help"],
    "emit": ["emit", F16],
    "verify": ["verify", F16],
}
WITHOUT_A_GPU = 2
"""How ``verify`` ends where there is none."""
STANDS_ON = "import numpy, ml_dtypes, typer, rich, time"
LIMIT = 2.0
"""CPU time that the first line may take, of that of these imports."""
FIRST_LINE = """
import sys, time
seen = []
def watched(stream):
    write = stream.write
    def watch(text):
        seen or seen.append(time.process_time())
        return write(text)
    stream.write = watch
watched(sys.stdout), watched(sys.stderr)
def start(event, _):
    if event == "subprocess.Popen":
        seen or seen.append(time.process_time())
sys.addaudithook(start)
from fragmenta.commands.cli import main
try:
    main()
finally:
    print(seen[0], file=sys.stderr)
"""

# One tile of each kind, in a process that has compiled nothing and finds nothing kept.
FIRST = {
    "f16": "mma.m16n8k16.f32.f16",
    "bf16": "mma.m16n8k16.f32.bf16",
    "tf32": "mma.m16n8k8.f32.tf32",
    "f64": "mma.m16n8k16.f64",
    "s8, satfinite": "mma.m16n8k32.satfinite.s32.s8.s8",
    "b1": "mma.m16n8k256.xor",
    "e4m3 wgmma, 64 x 256": "wgmma.m64n256k32.f32.e4m3.e4m3",
    "f16 sparse": "mma.sp::ordered_metadata.m16n8k32.f32.f16",
    "mxf8f6f4": "mma.kind::mxf8f6f4.f32.e4m3.e4m3",
    "mxf4nvf4": "mma.kind::mxf4nvf4.scale_vec::4X.ue4m3",
}
#: Seconds that the first result may take, and the compilation for a large one.
FIRST_RESULT, COMPILATION = 1.5, 5.0

FIRST_TILE = """
import sys, time
start = time.perf_counter()
import numpy as np, fragmenta as fm
op = fm.find(sys.argv[1])
m, n, k = op.shape
A = np.zeros((m, k), op.types["a"].storage)
B = np.zeros((k, n), op.types["b"].storage)
scales = {}
if op.scale_vec:
    of = op.scale_a.dtype.storage
    scales = {"scale_a": np.ones((m, op.scale_vec), of)}
    scales |= {"scale_b": np.ones((op.scale_vec, n), of)}
op(A, B, **scales)
print(time.perf_counter() - start)
"""

LARGE = """
import sys, time
import numpy as np, fragmenta as fm
op = fm.find(sys.argv[1])
A = np.ones((512, 512), op.types["a"].storage)
times = []
for _ in range(2):
    start = time.perf_counter()
    fm.matmul(op, A, A)
    times.append(time.perf_counter() - start)
print(times[0] - times[1])
"""


def milliseconds(words: list[str]) -> float:
    """The time that one fresh interpreter takes."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return 1e3 * (time.perf_counter() - start)


def measure(name: str, rounds: int = ROUNDS) -> tuple[float, float]:
    """The least time of the case, and of what it is set against."""
    timed, against, _ = CASES[name]
    milliseconds(timed)  # writes bytecode, warms the file cache
    pairs = [(milliseconds(timed), milliseconds(against)) for _ in range(rounds)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def table(times: dict[str, tuple[float, float]]) -> str:
    """Every case on a line."""
    lines = [f"{'in ms':<34}{'took':>8}{'bare':>8}{'added':>8}{'limit':>8}"]
    for name, (spent, bare) in times.items():
        limit = CASES[name][2]
        allowed = f"{limit:8.0f}" if limit < float("inf") else ""
        lines.append(f"{name:<34}{spent:8.0f}{bare:8.0f}{spent - bare:8.0f}{allowed}")
    return "\n".join(lines)


def lines_table(times: dict[str, float]) -> str:
    """The CPU time to the first line of each command."""
    lines = ["CPU time in ms to the first line of each command"]
    return "\n".join(lines + [f"{name:<34}{ms:8.0f}" for name, ms in times.items()])


def first(program: str, name: str) -> float:
    """The seconds that a program prints, run with an empty cache."""
    done = subprocess.run(
        [sys.executable, "-c", program, name],
        env={**ENVIRONMENT, "FRAGMENTA_CACHE": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def first_line(words: list[str], folder: str) -> float:
    """The milliseconds of CPU time to the first line of a command."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_LINE, *words],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    fine = (0, WITHOUT_A_GPU) if words[0] == "verify" else (0,)
    assert done.returncode in fine, (words, done.stdout, done.stderr)
    return 1e3 * float(done.stderr.splitlines()[-1])


def imports(rounds: int = 5) -> float:
    """The milliseconds of CPU time of what commands stand on."""
    words = [sys.executable, "-c", f"{STANDS_ON}; print(time.process_time())"]
    told = [
        subprocess.run(words, env=ENVIRONMENT, capture_output=True, check=True).stdout
        for _ in range(rounds)
    ]
    return 1e3 * min(map(float, told))


def first_lines(rounds: int = 5) -> dict[str, float]:
    """The least of all commands."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k.ptx").write_text(SCALE)
        for name, value in {"a": 1, "b": 1, "zeros": 0}.items():
            np.save(f"{folder}/{name}.npy", np.full((64, 64), value, np.float16))
        return {
            name: min(first_line(words, folder) for _ in range(rounds))
            for name, words in COMMANDS.items()
        }


def test_the_first_result() -> None:
    for title, name in FIRST.items():
        seconds = min(first(FIRST_TILE, name) for _ in range(3))
        print(f"\nfirst result of {title}: {seconds:.2f} s", end="")
        assert seconds <= FIRST_RESULT, title


def test_the_first_large_product() -> None:
    for title in ("f16", "bf16"):
        seconds = min(first(LARGE, FIRST[title]) for _ in range(3))
        print(f"\ncompiling for 512^3 of {title}: {seconds:.2f} s", end="")
        assert seconds <= COMPILATION, title


def test_the_first_lines(capsys: pytest.CaptureFixture[str]) -> None:
    times, bare = first_lines(), imports()
    with capsys.disabled():
        print(f"\n{lines_table(times)}\n{'what they stand on':<34}{bare:8.0f}")
    assert [name for name, spent in times.items() if spent > LIMIT * bare] == []


def test_what_it_adds(capsys: pytest.CaptureFixture[str]) -> None:
    times = {name: measure(name) for name in CASES}
    with capsys.disabled():
        print(f"\n{table(times)}")
    for name, (spent, bare) in times.items():
        assert spent - bare <= CASES[name][2], name


if __name__ == "__main__":
    print(table({name: measure(name) for name in CASES}))
    print(f"\n{lines_table(first_lines())}")
