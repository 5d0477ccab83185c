"""The processes of a judge: a fork server, examiners, and the children they ask.

The fork server has loaded what all need.  An examiner is forked for each candidate, and
forks its children at once, before it knows anything: so no child has ever had the
results of the reference in its memory.  A candidate's Python runs in these children
only, an examiner never runs it.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import pickle
import re
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from fragmenta.base.arrays.threads import use_cores
from fragmenta.base.progress import clock
from fragmenta.cuda.tools import compiler
from fragmenta.errors import BadCall, Error
from fragmenta.frontends.judge.child import follow
from fragmenta.frontends.judge.comparing import Case
from fragmenta.frontends.judge.cost import problem_seconds
from fragmenta.frontends.judge.examining import Channel, Examination
from fragmenta.frontends.judge.messages import Gone, receive, send
from fragmenta.frontends.judge.questions import Prepare, Try
from fragmenta.frontends.judge.verdict import Verdict, ordered, verdict_json
from fragmenta.frontends.judge.wire import Tree, dump, load
from fragmenta.frontends.pool import forkserver, frames
from fragmenta.frontends.pool.answers import Json, error_json
from fragmenta.frontends.pool.confining import die_with_parent
from fragmenta.frontends.pool.orders import HERE, WorkerTerms

CHILDREN = 3
"""Of a candidate: its process, a fresh one, and one that asks the reference again."""
REFERENCE = 240.0
"""Seconds that a reference may take at least."""
MOST = frames.MOST_HEAD - (1 << 20)
"""Characters of the cases of a reference, which are sent in the head of an answer."""


def main() -> None:
    """Be the fork server of a pool of judges."""
    folder = sys.argv.pop()  # the last word is the folder of the batch
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    use_cores(1)
    warm_up()
    forkserver.main(work)
    shutil.rmtree(folder, ignore_errors=True)  # also if the batch was killed
    os._exit(0)  # Triton's library complains if the interpreter comes to its end


_FIRST = 'extern "C" __global__ void first(float *x) { x[threadIdx.x] *= 2; }'


def warm_up() -> None:
    """Load NVRTC, PyTorch and Triton, if they are here, and what a judge needs."""
    # Its first kernel takes NVRTC a second.
    with suppress(Error, OSError):
        compiler.find().compile_ptx(compiler.TranslationUnit(_FIRST, "sm_90a"))
    try:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        from fragmenta.frontends.judge import reference
        from fragmenta.frontends.judge.libraries import (
            composed,
            load_inline,
            torch_standin,
        )

        assert composed
        assert load_inline
        assert reference
        assert torch_standin
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False), torch.device("meta"):
            torch.nn.Linear(2, 2)(torch.rand(2, 2))
    except ImportError:
        return
    try:
        from fragmenta.frontends.judge.libraries import triton_standin

        triton_standin.warm_up("sm_90a")
    except ImportError:
        return


def work(pool: socket.socket, terms: WorkerTerms) -> None:
    """Be an examiner: answer one question."""
    use_cores(terms.cores)
    lines = [_fork(pool) for _ in range(CHILDREN)]
    gc.enable()
    pool.sendall(HERE)
    asked = frames.receive(pool, _read)
    if asked is None:
        return
    question, data = asked
    folder = Path(question.folder) / str(os.getpid())
    try:
        for line in lines:
            (folder / str(line.process)).mkdir(parents=True, mode=0o700)
        if isinstance(question, Prepare):
            head: Json = {"cases": _prepare(question, lines[0], folder)}
        else:
            cases = _cases(load(data[0].data))
            verdict = _examine(question, cases, lines, folder)
            head = {"verdict": verdict_json(verdict)}
    except Error as error:
        head = error_json(error)
    finally:
        for line in lines:
            with suppress(ProcessLookupError):
                os.kill(line.process, signal.SIGKILL)
            os.waitpid(line.process, 0)
        shutil.rmtree(folder, ignore_errors=True)
    head["ends"] = True
    frames.send(pool, frames.frame(question.number, json.dumps(head).encode(), []))


def _read(head: bytes) -> tuple[Prepare | Try, list[int]]:
    question: Prepare | Try = pickle.loads(head)  # from the pool, not from a stranger
    return question, question.arguments.sizes


def _fork(pool: socket.socket) -> Channel:
    """A child that waits for orders."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    process = os.fork()
    if process:
        theirs.close()
        return Channel(ours, process)
    try:
        die_with_parent(parent)
        pool.close()
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        gc.enable()
        follow(theirs)
    except BaseException:
        os._exit(1)
    finally:
        os._exit(0)


def _prepare(question: Prepare, line: Channel, folder: Path) -> str:
    """The cases of a reference, as text."""
    settings = question.settings
    seconds = max(settings.seconds, REFERENCE)
    line.socket.settimeout(seconds)
    send(
        line.socket,
        {
            "do": "reference",
            "text": question.text.text,
            "folder": str(folder / str(line.process)),
            "seconds": seconds,
            "memory": settings.memory,
            "seeds": settings.seeds,
            "values": list(settings.values),
            "shapes": settings.shapes,
            "strides": settings.strides,
            "elements": settings.elements,
            "products": settings.products,
        },
    )
    name = question.text.file or "the reference"
    try:
        answer = receive(line.socket)
    except TimeoutError:
        raise BadCall(f"{name} takes longer than {seconds:g} s") from None
    except Gone:
        raise BadCall(f"the process that ran {name} ended without an answer") from None
    assert isinstance(answer, dict)
    if "error" in answer:
        raise BadCall(f"{name}: {answer['text']}")
    made = base64.b64encode(dump(answer["cases"])).decode()
    if len(made) > MOST:
        raise BadCall(
            f"the inputs and results of {name} are too large; sizes are made smaller "
            "if they are whole numbers with names, such as n = 4096, at its top"
        )
    return made


def _examine(
    question: Try, cases: list[Case], lines: list[Channel], folder: Path
) -> Verdict:
    start = clock.now()
    until = start + question.settings.seconds
    examination = Examination(question.text.text, question.settings, folder, until)
    examination.run(lines, cases)
    findings = [
        each._replace(evidence=_without(question.folder, each.evidence))
        for each in examination.findings
    ]
    cost = examination.cost
    counted = cost.to_dict()
    about = cases[0]
    counted["bytes_needed"], counted["products_needed"] = (
        about["matter"],
        about["products"],
    )
    needed = int(str(about["matter"])), int(str(about["products"]))
    counted["problem_seconds_at_least_on_h200"] = problem_seconds(*needed)
    estimated = {str(each) for case in cases for each in _list(case["estimated"])}
    return Verdict(
        question.text.file,
        ordered(findings),
        tuple(examination.tried),
        counted,  # type: ignore[arg-type]
        tuple(examination.confined),
        clock.now() - start,
        tuple(sorted(estimated)),
        tuple(examination.sizes),
    )


def _without(folder: str, evidence: str) -> str:
    """Evidence without the folders of this judge, which are gone when it is read.

    >>> _without("/tmp/judge-7", "open('/tmp/judge-7/12/13/candidate.py')")
    "open('candidate.py')"
    """
    return re.sub(rf"{re.escape(folder)}(?:/\d+)*/?", "", evidence)


def _cases(tree: Tree) -> list[Case]:
    assert isinstance(tree, list)
    return [each for each in tree if isinstance(each, dict)]


def _list(tree: Tree) -> list[Tree]:
    return tree if isinstance(tree, list) else []
