"""Verdicts about candidates with NumPy and kernels in CUDA C++: no other library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from fragmenta.commands import app
from fragmenta.errors import BadCall
from fragmenta.frontends.judge import batch as batch_module
from fragmenta.judge import Batch, Settings
from tests.clock import HANG
from tests.thinning import some

REFERENCE = """
import numpy as np

n = 300

def get_inputs():
    return [np.random.randn(n).astype(np.float32) for _ in range(2)]

def reference(x, y):
    return x * y + 1
"""
HONEST = '''
import numpy as np
from fragmenta import ptx

kernel = ptx.RawKernel(r"""
extern "C" __global__ void f(const float *x, const float *y, float *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] * y[i] + 1.0f;
}""", "f")

def candidate(x, y):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    z = ptx.empty(x.shape, np.float32)
    kernel((-(-x.size // 64),), (64,), (x, y, z, x.size))
    return z
'''
HOST = "\nimport numpy as np\ndef candidate(x, y):\n    {}\n"
RACE = HONEST.replace(
    "if (i < n) z[i] = x[i] * y[i] + 1.0f;",
    "__shared__ float s[64]; s[threadIdx.x] = i < n ? x[i] : 0; "
    "if (i < n) z[i] = s[threadIdx.x] * y[i] + (s[63 - threadIdx.x] > 1e30f ? 2.0f : 1.0f);",
)


class Row(NamedTuple):
    """A candidate, the word of its verdict, and a finding that it must have."""

    text: str
    word: str
    finding: str = ""


ROWS = {
    "honest": Row(HONEST, "clean"),
    "zeros": Row(HOST.format("return np.zeros_like(x)"), "wrong", "zeros"),
    "numpy": Row(HOST.format("return x * y + 1"), "suspicious", "host-work"),
    "no end": Row(HOST.format("while True: pass"), "incomplete", "out-of-time"),
    "syntax": Row("def candidate(x, y)\n    return x", "error", "not-loaded"),
    "no name": Row("def kandidat(x, y):\n    return x", "error", "not-loaded"),
    "raises": Row(HOST.format("return x + z"), "error", "failed"),
    "leaves": Row(HOST.format("import os; os._exit(3)"), "error", "crashed"),
    "crashes": Row(
        HOST.format("import ctypes; ctypes.string_at(0)"), "error", "crashed"
    ),
    "memory": Row(
        HOST.format("return np.ones(1 << 40, np.uint8)"), "incomplete", "out-of-memory"
    ),
    "unwritten": Row(HONEST.replace("i < n)", "i < n - 1)"), "wrong", "unwritten"),
    "bounds": Row(
        HONEST.replace("+ 1.0f", "+ (y[i + 1] > 1e38f ? 2.0f : 1.0f)"),
        "hazard",
        "fault",
    ),
    "race": Row(RACE, "hazard", "hazard"),
    "cached": Row(
        HONEST.replace("    return z", "    return kept.setdefault(z.shape, z)")
        + "\nkept = {}\n",
        "wrong",
        "cached",
    ),
    "input": Row(
        HONEST.replace("    return z", "    x[0] = 7\n    return z").replace(
            "np.ascontiguousarray(x)", "x"
        ),
        "wrong",
        "input-changed",
    ),
    "one buffer": Row(
        HONEST.replace(
            "z = ptx.empty(x.shape, np.float32)",
            "z = kept.setdefault(x.shape, ptx.empty(x.shape, np.float32))",
        )
        + "\nkept = {}\n",
        "wrong",
        "late-write",
    ),
    "kept in the GPU's memory": Row(
        HONEST.replace("extern", "__device__ float kept[300], filled;\nextern")
        .replace(
            "if (i < n) z[i] = x[i] * y[i] + 1.0f;",
            "if (i < n) { if (!filled) kept[i] = x[i] * y[i] + 1.0f; z[i] = kept[i]; }"
            "__syncthreads(); if (i == n - 1) filled = 1;",
        )
        .replace("-(-x.size // 64),), (64,)", "1,), (320,)"),
        "wrong",
        "cached",
    ),
    "main": Row(
        HONEST.replace("    return z", "    import __main__\n    return z"),
        "suspicious",
        "looks-around",
    ),
    "later": Row(
        HONEST.replace("    return z", "    return z.view(Later)")
        + "\nclass Later(np.ndarray): pass\n",
        "wrong",
        "wrong-form",
    ),
    "files": Row(
        HONEST.replace(
            "    return z",
            "    try: open('/etc/passwd')\n    except OSError: pass\n    return z",
        ),
        "suspicious",
        "opens-files",
    ),
    "process": Row(
        HONEST.replace(
            "    return z",
            "    import os\n    try: os.fork()\n    except OSError: pass\n    return z",
        ),
        "suspicious",
        "leaves-the-process",
    ),
    "patch": Row(
        HONEST + "\nfrom fragmenta.launch.kernel import Kernel\n"
        "before = Kernel.launch\n"
        "Kernel.launch = lambda *given, **named: before(*given, **named)\n",
        "suspicious",
        "patched",
    ),
    "forged": Row(
        # The socket of the examiner is found and used; it believes none of it.
        HOST.format(
            "import gc, socket\n"
            "    lines = [o for o in gc.get_objects() if isinstance(o, socket.socket)]\n"
            "    for line in lines:\n"
            "        try: line.sendall(b'\\x08' + b'\\0' * 7 + b'x' * 8)\n"
            "        except OSError: pass\n"
            "    return x"
        ),
        "error",
        "crashed",
    ),
}
SETTINGS = Settings(seconds=HANG, values=("plain",), memory=1 << 30)
SHORT = Settings(seconds=1.5, values=("plain",))


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    with Batch(1, settings=SETTINGS) as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("name", some([each for each in ROWS if each != "no end"], 4))
def test_verdict(batch: Batch, name: str) -> None:
    row = ROWS[name]
    verdict = batch.submit(REFERENCE, row.text, name).result()
    assert verdict.word == row.word, verdict
    assert row.finding in (*verdict.names, ""), verdict
    assert verdict.name == name
    assert max(map(len, str(verdict).splitlines())) <= 80
    assert not any(batch._folder in each.evidence for each in verdict.findings)
    json.dumps(verdict.to_dict(), allow_nan=False)


@pytest.mark.long
def test_verdicts_are_the_same_twice(batch: Batch) -> None:
    for name in ("honest", "race"):
        one, two = (batch.submit(REFERENCE, ROWS[name].text).result() for _ in range(2))
        assert one.findings == two.findings
        assert one.cost == two.cost


@pytest.mark.long
def test_time_is_limited_and_nothing_is_left() -> None:
    with Batch(1, settings=SHORT) as short:
        verdict = short.submit(REFERENCE, ROWS["no end"].text).result()
        folder = Path(short._folder)
        assert folder.is_dir()
    assert verdict.names[0] == "out-of-time"
    assert verdict.word == "incomplete"
    assert not folder.exists()


WRONG_REFERENCES = {
    "no inputs": ("def reference(x):\n    return x", "get_inputs"),
    "no function": ("def get_inputs():\n    return [1]", "reference"),
    "raises": (REFERENCE.replace("x * y + 1", "x * z"), "'z' is not defined"),
    "no array": (REFERENCE.replace("x * y + 1", "3"), "no array"),
    "syntax": ("def reference(x)\n    return x", "SyntaxError"),
}


@pytest.mark.parametrize("name", WRONG_REFERENCES)
def test_a_wrong_reference_is_an_error(batch: Batch, name: str) -> None:
    text, said = WRONG_REFERENCES[name]
    with pytest.raises(BadCall, match=said):
        batch.submit(text, HONEST).result()


@pytest.mark.long
def test_the_command(tmp_path: Path) -> None:
    for name, text in (("reference", REFERENCE), ("bad", ROWS["zeros"].text)):
        (tmp_path / f"{name}.py").write_text(text)
    words = ["judge", str(tmp_path / "reference.py"), str(tmp_path / "bad.py")]
    only = ["--cases", "plain", "--given", "--contiguous", "--json"]
    done = CliRunner().invoke(app, [*words, *only])
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["verdict"] == "wrong"
    assert found["findings"][0]["name"] == "zeros"
    assert len(found["cases"]) == 2
    strided = CliRunner().invoke(app, [*words, *only[:3], "--json"])
    assert len(json.loads(strided.stdout)["cases"]) == 4  # sizes are another option
    (tmp_path / "reference.py").write_text(REFERENCE.replace("x * y", "x * z"))
    failed = CliRunner().invoke(app, [*words, *only])
    assert failed.exit_code == 2
    assert "'z' is not defined" in failed.output
    wrong = CliRunner().invoke(app, [*words, "--cases", "zeors"])
    assert wrong.exit_code == 2
    assert "did you mean zeros" in wrong.output


@pytest.mark.long
def test_no_process_is_left() -> None:
    """Also if the one who asked is killed."""
    text = (
        "import os, signal\n"
        "from fragmenta.judge import Batch\n"
        f"batch = Batch(1)\nbatch.submit({REFERENCE!r}, {ROWS['honest'].text!r}).result()\n"
        "print(batch._judges._manager._server.pid, batch._folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    server, folder = done.stdout.split()
    while Path(f"/proc/{server}").exists():  # it ends; else the test hangs
        os.sched_yield()
    assert not Path(folder).exists()


@pytest.mark.long
def test_workers_of_a_dask_cluster_judge(batch: Batch) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        Batch(client=client, settings=SETTINGS) as many,
    ):
        names = ["honest", "race"]
        found = {
            each.name: each
            for each in many.verdicts((REFERENCE, ROWS[n].text, n) for n in names)
        }
        with pytest.raises(BadCall, match="get_inputs"):
            many.submit(WRONG_REFERENCES["no inputs"][0], HONEST).result()
    for name in names:  # the same verdicts as here, with their evidence and costs
        here = batch.submit(REFERENCE, ROWS[name].text, name).result()
        assert found[name].word == ROWS[name].word
        assert found[name].findings == here.findings
        assert found[name].cost == here.cost
    while batch_module._THERE:
        batch_module._THERE.popitem()[1].close()
