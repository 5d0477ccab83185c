"""The parts of a judge: messages, values, sizes, comparisons, origins and costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt.arguments import Pointer, Struct
from fragmenta.engine.simt.layout import POISON
from fragmenta.errors import BadCall
from fragmenta.frontends.judge.comparing import CompletedCall, compared, diagnose
from fragmenta.frontends.judge.cost import Cost
from fragmenta.frontends.judge.findings import KINDS, WORDS, Finding, rank
from fragmenta.frontends.judge.held import LAYOUTS, elements, free, hold
from fragmenta.frontends.judge.loading import constants, with_constants
from fragmenta.frontends.judge.origins import Origins
from fragmenta.frontends.judge.settings import Settings
from fragmenta.frontends.judge.sizes import odd, scaled
from fragmenta.frontends.judge.values import VALUES, changed
from fragmenta.frontends.judge.verdict import Verdict, verdict_json, verdict_of
from fragmenta.frontends.judge.wire import arguments_json, arguments_of, dump, load
from fragmenta.frontends.pool.packing import pack, unpack
from fragmenta.reference.cards import card
from tests.clock import HANG


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


# ── messages ────────────────────────────────────────────────────────────────

TREES = [
    None,
    True,
    -7,
    2.5,
    "text",
    b"\x00\xff",
    [1, [2, "3"]],
    {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": [b"", np.zeros((0, 4))]},
    {"~": 1},
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_a_tree_comes_back(tree: Any) -> None:
    assert same(load(dump(tree)), tree)


@pytest.mark.parametrize("seed", range(60))
def test_changed_bytes_are_a_tree_or_refused(seed: int) -> None:
    """A process of a stranger sends what it likes."""
    block = bytearray(dump({"x": np.arange(40), "y": [1, "two", b"three"]}))
    random = np.random.default_rng(seed)
    for _ in range(int(random.integers(1, 6))):
        block[int(random.integers(0, len(block)))] = int(random.integers(0, 256))
    with suppress(ValueError):
        load(bytes(block[: int(random.integers(0, len(block) + 1))]))


def test_arguments_of_a_launch_come_back() -> None:
    x = np.arange(32, dtype=np.float32)
    given = [x, Pointer(x, 8), Struct(b"\0" * 16, ((8, Pointer(x, 4)),)), 7, 2.5, b"ab"]
    packed, memory = pack(given)
    made = arguments_of(json.loads(json.dumps(arguments_json(packed))))
    assert made == packed
    assert np.array_equal(unpack(made, memory)[0], x)  # type: ignore[arg-type]


WRONG_ARGUMENTS: list[Any] = [
    None,
    {},
    {"values": [], "regions": [[-1, True, []]]},
    {"values": [], "regions": [[4, True, [[0, 9]]]]},
    {"values": [["array", 1, 0, "<f4", [1], [4]]], "regions": [[4, True, []]]},
    {"values": [["array", 0, 0, "O", [1], [8]]], "regions": [[8, True, []]]},
    {"values": [["array", 0, 0, "<f4", [-1], [4]]], "regions": [[4, True, []]]},
    {"values": [["pointer", ["number", 3], 0]], "regions": []},
    {"values": [["other", 3]], "regions": []},
    {"values": [["struct", "zz", [], 8]], "regions": []},
]


@pytest.mark.parametrize("given", WRONG_ARGUMENTS, ids=repr)
def test_wrong_arguments_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        arguments_of(given)


def test_wrong_arguments_are_refused_without_assertions() -> None:
    """``python -O`` leaves them out."""
    code = f"""
from fragmenta.frontends.judge.wire import arguments_of
for given in {WRONG_ARGUMENTS!r}:
    try:
        print(arguments_of(given))
    except ValueError:
        pass
"""
    done = subprocess.run(
        [sys.executable, "-O", "-c", code],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout == ""


# ── inputs ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (3,), (4, 5), (2, 3, 4)])
def test_layouts_keep_the_elements(layout: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    made = free(hold(x), layout)
    assert isinstance(made, np.ndarray)
    assert np.array_equal(made, x)
    assert made.flags.c_contiguous or layout != "contiguous"
    if len(shape) > 1 and layout != "contiguous":
        assert not made.flags.c_contiguous


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_values_keep_form_sign_and_zeros(kind: str, name: str) -> None:
    random = np.random.default_rng(1)
    normal = random.standard_normal((16, 16)).astype(name)
    made = free(changed(hold([normal, np.abs(normal), np.triu(normal), 3]), kind, 5))
    assert isinstance(made, list)
    plain, positive, triangle, number = made
    assert number == 3
    assert plain.dtype == normal.dtype
    with np.errstate(invalid="ignore"):
        assert not (positive < 0).any()
        assert (np.tril(triangle, -1) == 0).all()
    assert (kind == "plain") == np.array_equal(plain, normal)


def test_whole_numbers_are_kept() -> None:
    labels = np.arange(9)
    assert np.array_equal(free(changed(hold([labels]), "nan", 0))[0], labels)  # type: ignore[index]


def test_sizes_are_halved_until_they_fit() -> None:
    given = {"batch": 16, "N": 4096, "M": 64, "axis": 1}
    made = scaled(given, lambda sizes: sizes["N"] * sizes["M"] <= 4096)
    assert made == {"batch": 16, "N": 64, "M": 32, "axis": 1}  # the largest first
    assert scaled(given, lambda _: False)["N"] <= 16  # it comes to an end


@pytest.mark.parametrize("step", [1, 4, 8])
def test_other_sizes(step: int) -> None:
    given = {"N": 64, "M": 100, "axis": 2}
    made = odd(given, 3, step)
    assert made["axis"] == 2
    assert made["N"] < 64
    assert made["M"] < 100
    assert all(made[n] % 2 if step == 1 else made[n] % step == 0 for n in "NM")


def test_only_numbers_with_names_are_sizes() -> None:
    text = (
        "N = 1 << 3\nx = 3.5\ny = N * 2\ndef f():\n    M = 4\nz: int = 3\nflag = True"
    )
    assert constants(text) == {"N": 8, "z": 3}
    names: dict[str, Any] = {}
    exec(compile(with_constants(text, {"N": 5, "M": 9}), "f", "exec"), names)
    assert names["N"] == 5
    assert names["y"] == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"seeds": 0},
        {"values": ("zeors",)},
        {"target": "sm_12345"},
        {"elements": 1.5},
        {"shapes": "yes"},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"\w"):
        Settings(**wrong)


def test_a_wrong_kind_of_values_names_the_nearest() -> None:
    with pytest.raises(BadCall, match="did you mean zeros"):
        Settings(values=("zeors",))


# ── comparisons ─────────────────────────────────────────────────────────────

SIZE = 64


def case(
    seed: int, kind: str = "main", values: str = "plain", layout: str = "contiguous"
):  # type: ignore[no-untyped-def]
    """A case whose result is twice its input."""
    x = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    exact = 2 * x.astype(np.float64)
    unit = np.abs(exact) * 2.0**-24
    rows = [{"value": exact, "most": 4 * unit, "variance": unit**2}]
    low = {"float16": [[np.abs(exact) * 2.0**-10, (np.abs(exact) * 2.0**-12) ** 2]]}
    return {
        "name": f"{kind} {seed}",
        "set": kind,
        "values": values,
        "layout": layout,
        "inputs": hold([x]),
        "expected": rows,
        "types": ["float32"],
        "lower": low,
    }


CASES = [
    case(0),
    case(1),
    case(2, "other"),
    case(3, "other", layout="pitched"),
    case(4, "other", "nan"),
    case(5, "other", "large"),
]


def right(which: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(CASES[which]["expected"][0]["value"], np.float32)


def outcome(wrong: dict[int, np.ndarray]) -> list[str]:  # type: ignore[type-arg]
    """What is found if some outputs are wrong."""
    calls = []
    for which, about in enumerate(CASES):
        found = compared(about, hold(wrong.get(which, right(which))))
        if isinstance(found, Finding):
            return [found.name]
        calls.append(CompletedCall(about, found))
    return [each.name for each in diagnose(calls)]


def poisoned() -> np.ndarray:  # type: ignore[type-arg]
    made = right(0).copy()
    made[5:] = np.full(SIZE - 5, POISON, np.uint32).view(np.float32)
    return made


def half_of(which: int) -> np.ndarray:  # type: ignore[type-arg]
    made = right(which).copy()
    made[SIZE // 2 :] *= 1.5
    return made


def lost(which: int) -> np.ndarray:  # type: ignore[type-arg]
    made = right(which).copy()
    made[3] = np.nan
    return made


DIAGNOSES: dict[str, tuple[str, dict[int, Any]]] = {
    "right": ("", {}),
    "zeros": ("zeros", {i: np.zeros(SIZE, np.float32) for i in range(6)}),
    "zeros later": ("zeros", {2: np.zeros(SIZE, np.float32)}),
    "constant": ("constant", {0: np.full(SIZE, 0.5, np.float32)}),
    "unwritten": ("unwritten", {0: poisoned()}),
    "input": ("input-returned", {0: elements(CASES[0]["inputs"][0])}),
    "cached": ("cached", {1: right(0), 2: right(0)}),
    "the same for all": (
        "ignores-inputs",
        {i: np.arange(SIZE, dtype=np.float32) for i in range(6)},
    ),
    "seed": ("seed-specific", {1: right(1) * 1.5}),
    "sizes": ("shape-specific", {i: right(i) * 1.5 for i in range(2, 6)}),
    "strides": ("ignores-strides", {3: right(3) * 1.5}),
    "strides and sizes": ("shape-specific", {i: right(i) * 1.5 for i in range(2, 6)}),
    "nan": ("special-values", {4: lost(4)}),
    "large": ("values-specific", {5: right(5) * 1.5}),
    "half": ("part-computed", {i: half_of(i) for i in range(6)}),
    "all": ("inaccurate", {i: right(i) * 1.5 for i in range(6)}),
    "low": (
        "low-precision",
        {i: right(i).astype(np.float16).astype(np.float32) for i in range(6)},
    ),
    "approximation": (
        "inaccurate",
        {i: right(i) * np.float32(1 + 2.0**-11) for i in range(6)},
    ),
    "shape": ("wrong-form", {0: right(0)[:-1]}),
    "type": ("wrong-form", {0: right(0).astype(np.float16)}),
}


@pytest.mark.parametrize("name", DIAGNOSES)
def test_why_results_are_wrong(name: str) -> None:
    wanted, wrong = DIAGNOSES[name]
    assert outcome(wrong) == ([wanted] if wanted else [])


def test_an_error_within_its_bound_is_right() -> None:
    near = np.nextafter(right(0), np.float32(np.inf))
    assert outcome({0: near}) == []


def test_infinities_are_right_where_the_result_is_beyond_the_range() -> None:
    about = case(0)
    about["expected"][0]["value"] = np.full(SIZE, 1e39)
    found = compared(about, hold(np.full(SIZE, np.inf, np.float32)))
    assert isinstance(found, list)
    assert not found[0].bad.any()
    found = compared(about, hold(np.full(SIZE, -np.inf, np.float32)))
    assert isinstance(found, list)
    assert found[0].bad.all()


# ── findings and verdicts ───────────────────────────────────────────────────


def test_every_finding_leads_to_a_word() -> None:
    assert {each.word for each in KINDS.values()} == {*WORDS}
    assert sorted(KINDS, key=rank) == sorted(
        KINDS, key=lambda name: (WORDS.index(KINDS[name].word), [*KINDS].index(name))
    )


def test_the_word_of_a_verdict_is_the_first() -> None:
    findings = (Finding("hazard", "race"), Finding("zeros", "0"))
    assert Verdict("k", findings).word == "wrong"
    assert Verdict("k").word == "clean"


def test_a_verdict_fits_a_terminal() -> None:
    text = "output 0[3] is 0, exactly 7 " * 9
    verdict = Verdict("k.py", tuple(Finding(name, text, "seed 0") for name in KINDS))
    assert max(map(len, str(verdict).splitlines())) <= 80
    assert verdict_of(json.loads(json.dumps(verdict_json(verdict)))) == verdict


# ── costs and origins ───────────────────────────────────────────────────────


SQUARES = """
extern "C" __global__ void squares(const float4 *x, float *y, int n) {
    __shared__ float kept[32];
    int t = blockIdx.x * 32 + threadIdx.x;
    if (t >= n) return;
    float4 v = x[t];
    kept[threadIdx.x] = __fmul_rn(v.x, v.x);
    y[t] = __fmaf_rn(v.y, v.z, kept[threadIdx.x]);
}"""


def test_costs_are_the_counts_of_launches() -> None:
    kernel = ptx.RawKernel(SQUARES, "squares").kernel
    x, y = np.ones(400, np.float32), np.zeros(100, np.float32)
    cost = Cost()
    for _ in range(2):
        result = kernel.launch(4, 32, [x, y, np.int32(100)], counters=True)
        cost.add("squares", result.counters)
    assert cost.kernels == {"squares": 2}
    assert cost.read == 2 * 1600  # each launch reads all of x, and not more
    assert cost.written == 2 * 416  # in sectors of 32 bytes
    # 100 lanes of 128 multiply twice: exactly, not for each warp
    assert cost.lane_products == {"f32": 2 * 200}
    assert cost.all_products == 400
    name = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    assert cost.metrics[name] == 2 * 50
    assert cost.least_seconds()["memory"] == 1600 / card("h200").bandwidth
    told = cost.to_dict()
    assert told["launches"] == 2
    assert told["bound_by"] == "memory"
    cost.add("squares", None)  # one that was not counted
    assert (cost.launches, cost.read) == (3, 3200)


def raw(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def test_an_output_must_be_what_a_launch_left() -> None:
    x = np.arange(64, dtype=np.float32)
    origins = Origins()
    origins.add([raw(x), raw(x * 0)], [raw(x), raw(x * 3)])
    assert origins.wrote([0, 1, 0, [4]], x * 3)
    assert origins.wrote([0, 1, 4, [8]], (x * 3)[1::2])
    assert not origins.wrote([0, 1, 0, [4]], x * 4)
    assert not origins.wrote(None, x * 3)
    for wrong in ([0, 5, 0, [4]], [9, 0, 0, [4]], [0, 1, 200, [4]], [0, 1, 0, [99]]):
        assert not origins.wrote(wrong, x * 3)


# ── confinement ─────────────────────────────────────────────────────────────

CONFINED = """
import ctypes, os, platform, resource, signal, socket, subprocess, sys, threading
from pathlib import Path
from fragmenta.frontends.judge import confine as of
from fragmenta.frontends.judge.confine import confine
from fragmenta.launch.limits import Limits
folder, secret = Path(sys.argv[1]), Path(sys.argv[2])
def called(name, *words):
    machine = platform.machine()
    number = {**of._CALLS[machine], **of._OF_ITSELF[machine]}[name]
    system = ctypes.CDLL(None, use_errno=True).syscall
    if system(number, *words) < 0:
        raise OSError(ctypes.get_errno(), name)
taken = confine(folder, Limits(seconds=100, memory=1 << 32))
(folder / "own").write_text("mine")
threading.Thread(target=int).start()
import uuid  # Python's own files can be read
tries = {
    "files": [
        lambda: secret.read_text(),
        lambda: secret.with_name("new").write_text("x"),
        lambda: os.listdir(secret.parent),
        lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(1),
    ],
    "network": [lambda: socket.socket(), lambda: socket.socket(socket.AF_UNIX)],
    "processes": [
        os.fork,
        lambda: subprocess.run([sys.executable, "-c", ""]),
        lambda: os.kill(os.getppid(), 0),
        lambda: called("tkill", os.getppid(), 0),
        lambda: called("tgkill", os.getppid(), os.getppid(), 0),
        lambda: called("rt_sigqueueinfo", os.getppid(), 0, 0),
        lambda: called("rt_tgsigqueueinfo", os.getppid(), os.getppid(), 0, 0),
        lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE),
        lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 3),
        lambda: os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)),
        lambda: called("ioprio_set", 1, os.getppid(), 0),
        lambda: called("shmget", 0, 4096, 0o1600),
        lambda: called("msgget", 0, 0o1600),
        lambda: called("semget", 0, 1, 0o1600),
        lambda: called("mq_open", b"q", 0o102, 0o600, 0),
        lambda: called("add_key", b"user", b"k", b"v", 1, -3),
    ],
}
os.sched_setaffinity(0, os.sched_getaffinity(0))
signal.raise_signal(0)  # but itself it can reach
resource.prlimit(0, resource.RLIMIT_NOFILE)
resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)
for what in taken:
    for each in tries[what]:
        try:
            each()
        except PermissionError:
            continue
        print("not refused:", what, tries[what].index(each))
print(*taken)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's")
def test_a_confined_process_cannot_reach_others(tmp_path: Path) -> None:
    folder, others = tmp_path / "own", tmp_path / "others"
    folder.mkdir()
    others.mkdir()
    (others / "secret").write_text("results")
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, str(folder), str(others / "secret")],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert "not refused" not in done.stdout, done.stdout
    assert set(done.stdout.split()) <= {"files", "network", "processes"}
    assert socket.socket  # this process still can
