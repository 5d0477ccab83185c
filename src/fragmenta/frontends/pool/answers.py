"""Results and errors of launches as JSON, and back.

A worker answers with JSON and the bytes of the arrays.  Nothing in the answer is
executed: an error is one of :mod:`fragmenta.errors`, made of numbers and texts.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from fragmenta import errors
from fragmenta.errors import Error, KernelError, KernelHazard
from fragmenta.frontends.api.kernels import Result
from fragmenta.frontends.pool.confining import crashed
from fragmenta.launch import result as records
from fragmenta.launch.limits import no_memory
from fragmenta.ptx.module import Location

if TYPE_CHECKING:
    from fragmenta.ptx.checking.problem import Problem
    from fragmenta.values.counters.report import Counters
    from fragmenta.values.numerics.report import Numerics

Json: TypeAlias = dict[str, Any]
"""An answer, as JSON is read."""


# ── results ─────────────────────────────────────────────────────────────────


def result_json(result: records.Result) -> Json:
    """A result of a launch."""
    return {
        "counts": result.counts,
        "fidelity": result.fidelity,
        "output": result.output,
        "seconds": result.seconds,
        "target": result.target,
        "written_for": result.written_for,
        "watched": result.watched,
        "schedule": result.schedule,
        "complete": result.complete,
        "hazards": [problem_json(each) for each in result.hazards],
        "problems": [problem_json(each) for each in result.problems],
        "counters": _counters_json(result),
        "numerics": _numerics_json(result),
    }


def _counters_json(result: records.Result) -> Json | None:
    """What a launch counted; the pool itself needs it only if one did."""
    if result.counters is None:
        return None
    from fragmenta.values.counters.report import counters_json

    return counters_json(result.counters)


def _counters_of(given: Json | None) -> Counters | None:
    if given is None:
        return None
    from fragmenta.values.counters.report import counters_of

    return counters_of(given)


def _numerics_json(result: records.Result) -> Json | None:
    """What a launch lost, if it was asked."""
    if result.numerics is None:
        return None
    from fragmenta.values.numerics.wire import numerics_json

    return numerics_json(result.numerics)


def _numerics_of(given: Json | None, text: str) -> list[Numerics]:
    if given is None:
        return []
    from fragmenta.values.numerics.wire import numerics_of

    return [numerics_of(given, text)]


def result_of(given: Json, text: str = "") -> Result:
    """The inverse of :func:`result_json`; ``text`` is the PTX of the kernel."""
    made = Result(
        {str(name): int(count) for name, count in given["counts"].items()},
        {str(name): int(count) for name, count in given["fidelity"].items()},
        str(given["output"]),
        float(given["seconds"]),
        str(given["target"]),
        str(given["written_for"]),
        bool(given["watched"]),
        complete=bool(given["complete"]),
        counters=_counters_of(given["counters"]),
        followed=_numerics_of(given["numerics"], text),
    )
    made.__dict__["schedule"] = given["schedule"]
    for name in ("hazards", "problems"):
        made.__dict__[name] = [problem_of(each) for each in given[name]]
    return made


def variables_json(kept: dict[str, bytes]) -> Json:
    """The variables of a module, by name."""
    return {name: base64.b64encode(data).decode() for name, data in kept.items()}


def variables_of(given: Json) -> dict[str, bytes]:
    """The inverse of :func:`variables_json`."""
    return {str(name): base64.b64decode(data) for name, data in given.items()}


# ── errors ──────────────────────────────────────────────────────────────────


def error_json(error: BaseException) -> Json:
    """An error that a launch raised."""
    if isinstance(error, MemoryError):
        error = no_memory(error)
    if not isinstance(error, Error):
        error = crashed(f"failed with {type(error).__name__}: {error}")
    if not isinstance(error, KernelError):
        plain = all(isinstance(each, str | int) for each in error.args)
        given = list(error.args) if plain else [str(error)]
        return {"error": type(error).__name__, "given": given}
    # The pool itself needs it only if there are problems.
    from fragmenta.ptx.checking.problem import problems_of

    result = error.result if isinstance(error, KernelHazard) else None
    return {
        "error": type(error).__name__,
        "message": error.message,
        "before": error.before,
        "kind": error.kind,
        "line": error.line,
        "source": error.source,
        "place": _source_json(cast("Location | None", error.place)),
        "block": error.block,
        "thread": error.thread,
        "output": error.output,
        "schedule": error.schedule,
        "notes": list(getattr(error, "__notes__", [])),
        "problems": [problem_json(each) for each in problems_of(error)],
        "result": result_json(result) if isinstance(result, records.Result) else None,
    }


def error_of(given: Json, text: str = "") -> Error:
    """The inverse of :func:`error_json`."""
    name = str(given["error"])
    kind: object = getattr(errors, name, Error) if name in errors.__all__ else Error
    assert isinstance(kind, type)
    assert issubclass(kind, Error)
    if not issubclass(kind, KernelError):
        return kind(*(e for e in given["given"] if isinstance(e, str | int)))
    problems = [problem_of(each) for each in given["problems"]]
    where = (
        int(given["line"]),
        str(given["source"]),
        _three(given["block"]),
        _three(given["thread"]),
    )
    if issubclass(kind, KernelHazard):
        made: KernelError = KernelHazard(given["message"], given["kind"], problems)
        if isinstance(made, KernelHazard) and given["result"] is not None:
            made.result = result_of(given["result"], text)
    else:
        made = kind(str(given["message"]), str(given["kind"]), *where)
        made.problems, made.before = problems, str(given["before"])
    made.line, made.source, made.block, made.thread = where
    made.place = _source(given["place"])
    made.output = str(given["output"])
    made.order = partial(dict, given["schedule"])
    for each in given["notes"]:
        made.add_note(str(each))
    return made


def _three(given: list[int] | None) -> tuple[int, int, int] | None:
    if given is None:
        return None
    x, y, z = map(int, given)
    return x, y, z


# ── problems ────────────────────────────────────────────────────────────────


def _source_json(source: Location | None) -> list[object] | None:
    if source is None:
        return None
    return [source.file, source.line, source.column, _source_json(source.caller)]


def _source(given: list[Any] | None) -> Location | None:
    if given is None:
        return None
    file, line, column, caller = given
    return Location(str(file), int(line), int(column), _source(caller))


def problem_json(problem: Problem) -> Json:
    """A problem with its whole sources, which ``to_dict`` shortens."""
    found = problem.to_dict() | {"source": _source_json(problem.source)}
    pairs = zip(found["related"], problem.related, strict=True)
    found["related"] = [{**d, "source": _source_json(of.source)} for d, of in pairs]
    return found


def problem_of(given: Json) -> Problem:
    """The inverse of :func:`problem_json`."""
    from fragmenta.ptx.checking.problem import Problem, Related

    given.pop("frames", None)  # the source has them
    for each in given["related"]:
        each.pop("frames", None)
    related = tuple(
        Related(**{**each, "source": _source(each["source"])})
        for each in given["related"]
    )
    block, source = _three(given["block"]), _source(given["source"])
    return Problem(**{**given, "related": related, "block": block, "source": source})
