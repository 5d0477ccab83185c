"""The command ``judge``: verdicts about kernels that machines write."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.files import complete_file
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, printable, width, write
from fragmenta.commands.targets import complete_target, target_of
from fragmenta.errors import BadCall
from fragmenta.frontends.judge.batch import Batch, source
from fragmenta.frontends.judge.findings import CLEAN
from fragmenta.frontends.judge.settings import Settings
from fragmenta.frontends.judge.values import VALUES
from fragmenta.frontends.judge.verdict import Verdict


@command(
    "judge",
    "fragmenta judge reference.py candidate.py",
    "fragmenta judge reference.py candidates/*.py --json > verdicts.jsonl",
    "fragmenta judge reference.py candidate.py --cases plain,zeros --contiguous",
)
def judge(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE",
            help="What is right: Model and get_inputs, or reference and get_inputs.",
            autocompletion=complete_file,
            show_default=False,
        ),
    ],
    candidates: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATE...",
            help="What is judged: ModelNew, or candidate.",
            autocompletion=complete_file,
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The GPU whose bits kernels return, such as sm_90a or hopper.",
            autocompletion=complete_target,
        ),
    ] = "sm_90a",
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="S", help="The time that a candidate may take."
        ),
    ] = Settings.seconds,
    memory: Annotated[
        int,
        typer.Option(
            "--memory", metavar="BYTES", help="Memory that a candidate may use."
        ),
    ] = Settings.memory,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            help="Candidates at the same time; by default one on each core.",
            show_default=False,
        ),
    ] = None,
    cases: Annotated[
        str,
        typer.Option(
            "--cases",
            metavar="KINDS",
            help="The kinds of values that inputs have; by default all.",
            show_default=False,
        ),
    ] = ",".join(VALUES),
    given: Annotated[
        bool,
        typer.Option("--given", help="Try no other sizes than the given ones."),
    ] = False,
    contiguous: Annotated[
        bool,
        typer.Option("--contiguous", help="Try no inputs with gaps, or transposed."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""A verdict is one word, and the evidence for it:

    \b
      clean        right, without hazards, by its own work
      wrong        results differ from the reference, or inputs are changed
      hazard       a launch has a race, leaves its memory, or the like
      suspicious   the results may be right, but not because of the work
      incomplete   evidence is missing: time was over, or sizes are refused
      error        it cannot be loaded, or fails

    A candidate is Python with kernels in Triton, CUDA C++ (load_inline, RawKernel) or
    PTX.  It runs in a process of its own, with limits; docs/judge.md says what it
    cannot do there.  With --json, each verdict is one line.  The exit status is 1 if
    a verdict is not clean.
    """
    settings = Settings(
        target=target_of(target) or "sm_90a",
        seconds=seconds,
        memory=memory,
        values=tuple(each.strip() for each in cases.split(",") if each.strip()),
        shapes=not given,
        strides=not contiguous,
    )
    for path in (reference, *candidates):
        source(path, "file")  # a file that is missing is said before work begins
    words: list[str] = []
    with Batch(workers or min(len(candidates), 64), settings=settings) as batch:
        for verdict in batch.judge((reference, each) for each in candidates):
            if verdict.names[:1] == ("no-reference",):
                raise BadCall(verdict.findings[0].evidence)
            words.append(verdict.word)
            _print(verdict, as_json)
    if not as_json and len(words) > 1:
        counts = [f"{words.count(each)} {each}" for each in dict.fromkeys(words)]
        write(f"{len(words)} candidates: {', '.join(counts)}")
    if any(each != CLEAN for each in words):
        raise typer.Exit(NOTHING)


def _print(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        write(json.dumps(verdict.to_dict()))
    else:
        emit(printable(verdict.text(width())))
