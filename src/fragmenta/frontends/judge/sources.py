"""Reads the source of a candidate: whether it asks for the time, or for the judge."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CLOCKS = {
    "time": frozenset(
        [
            *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic"),
            *("monotonic_ns", "process_time", "process_time_ns", "thread_time"),
            *("thread_time_ns", "clock_gettime", "clock_gettime_ns", "sleep"),
            *("localtime", "gmtime", "ctime", "strftime", "asctime"),
        ]
    ),
    "os": frozenset(["times", "wait3", "wait4"]),
    "resource": frozenset(["getrusage"]),
    "timeit": frozenset(["default_timer", "timeit", "repeat", "Timer"]),
    "datetime": frozenset(["now", "utcnow", "today"]),
}
"""What asks for the time, by module."""
_TIMES = frozenset(
    [
        *("uuid1", "getmtime", "getctime", "getatime", "st_mtime", "st_mtime_ns"),
        *("st_ctime", "st_ctime_ns", "st_atime", "st_atime_ns"),
    ]
)
"""What has the time in it: names of this machine, and dates of files."""
_CLASSES = {"datetime": ("datetime", "date")}
_NAMES = {
    "__closure__": "looks-around",
    "cell_contents": "looks-around",
    "capture_locals": "looks-around",
    "marshal": "hidden-code",
    "CodeType": "hidden-code",
    "getrlimit": "knows-the-judge",
}
"""Names by which a source gets at what is not its own, or hides what it does."""
_INTERFACE = "__array_interface__"
"""An object that has it is an array at any address."""
_JUDGE = ("FRAGMENTA_", "fragmenta.judge", "fragmenta/judge", "fragmenta-judge")
"""Texts that only somebody who looks for the judge has."""


def suspicions(text: str) -> Iterator[tuple[str, str]]:
    r"""Findings that the source of a candidate shows by itself.

    >>> [*suspicions("import os\nos.times()")]
    [('uses-the-clock', 'line 2: its source has os.times')]
    >>> [name for name, _ in suspicions("import time\nlate = time.time() > 2e9")]
    ['uses-the-clock', 'decides-by-time']
    >>> [name for name, _ in suspicions("np.datetime64('now') > np.datetime64(5, 's')")]
    ['uses-the-clock']
    >>> [*suspicions("import os\nos.environ.get('FRAGMENTA_CACHE')")]
    [('knows-the-judge', "its source has the text 'FRAGMENTA_CACHE'")]
    """
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    clocks = clocks_in(nodes)
    if clocks:
        line = min(clocks)
        yield "uses-the-clock", f"line {line}: its source has {clocks[line]}"
        line = _compares(nodes, {*clocks})
        if line:
            yield "decides-by-time", f"line {line}: the time decides what it does"
    if asks_for_main(nodes):
        yield "looks-around", "its source asks for the module __main__"
    yield from _names(nodes)
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and value.startswith(_JUDGE):
            yield "knows-the-judge", f"its source has the text {value[:40]!r}"


def _names(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Findings for single names, as an attribute, an import, a keyword or a text."""
    for node in nodes:
        said = {getattr(node, "attr", None), getattr(node, "arg", None)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            said |= {each.name for each in node.names}
            said.add(getattr(node, "module", None))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            said.add(node.value)
        for name in said & {*_NAMES}:
            line = getattr(node, "lineno", 0)
            yield _NAMES[str(name)], f"line {line}: its source has {name}"
        sets = isinstance(node, ast.FunctionDef) and node.name == _INTERFACE
        sets |= _INTERFACE in said and not isinstance(
            getattr(node, "ctx", None), ast.Load
        )
        if sets:
            yield "raw-memory", f"line {getattr(node, 'lineno', 0)}: an {_INTERFACE}"


def clocks_in(nodes: list[ast.AST]) -> dict[int, str]:
    r"""The functions of a clock that a source asks for, by line.

    >>> text = "import time as t\nfrom time import sleep\nt.perf_counter()"
    >>> clocks_in([*ast.walk(ast.parse(text))])
    {2: 'time.sleep', 3: 'time.perf_counter'}
    """
    names: dict[str, str] = {}
    found: dict[int, str] = {}
    functions: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in _CLOCKS:
                    names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in _CLOCKS:
            for alias in node.names:
                if alias.name in _CLOCKS[node.module]:
                    found[node.lineno] = f"{node.module}.{alias.name}"
                    functions[alias.asname or alias.name] = found[node.lineno]
                if alias.name in _CLASSES.get(node.module, ()):
                    names[alias.asname or alias.name] = node.module
        elif isinstance(node, ast.Call):
            for name in _by_text(node):
                found[node.lineno] = name
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in _TIMES:
            found[node.lineno] = node.attr
        module, attribute = _asked(node, names)
        if attribute in _CLOCKS.get(module, ()):
            found[getattr(node, "lineno", 0)] = f"{module}.{attribute}"
        if isinstance(node, ast.Name) and node.id in functions:
            found[node.lineno] = functions[node.id]
    return found


def _compares(nodes: list[ast.AST], lines: set[int]) -> int:
    """The line where the time is compared with a number other than 0; 0 if none is.

    ``lines`` ask for the time.  Who measures variants compares times with each other.
    """
    timed = {
        each.id
        for node in nodes
        if isinstance(node, ast.Assign) and node.lineno in lines
        for each in node.targets
        if isinstance(each, ast.Name)
    }

    def is_time(node: ast.AST) -> bool:
        return any(
            getattr(each, "id", "") in timed
            or (isinstance(each, ast.Call) and each.lineno in lines)
            for each in ast.walk(node)
        )

    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            fixed = [each for each in sides if _number(each)]
            if fixed and any(is_time(each) for each in sides if each not in fixed):
                return node.lineno
    return 0


def _number(node: ast.AST) -> bool:
    """Whether an expression is made of numbers, and not 0."""
    inner = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    parts = [*ast.walk(node)]
    values = [each.value for each in parts if isinstance(each, ast.Constant)]
    return all(isinstance(each, inner) for each in parts) and any(values)


def _by_text(node: ast.Call) -> Iterator[str]:
    """A clock that is imported by its name as a text, or that a library reads."""
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    given = node.args[0] if node.args else None
    asked = given.value if isinstance(given, ast.Constant) else None
    if name == "datetime64" and asked in ("now", "today"):
        yield f"{name}({asked!r})"
    if name in _TIMES:
        yield name
    imports = name in ("__import__", "import_module")
    if imports and asked in ("time", "timeit", "resource"):
        yield f"{name}({asked!r})"


def _asked(node: ast.AST, names: dict[str, str]) -> tuple[str, str]:
    """The module and the name of ``module.name``, or of ``getattr(module, "name")``."""
    if isinstance(node, ast.Attribute):
        inner = node.value
        if isinstance(inner, ast.Attribute):  # datetime.datetime.now
            inner = inner.value
        if isinstance(inner, ast.Name):
            return names.get(inner.id, ""), node.attr
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
        of, *rest = [*node.args, None]
        name = rest[0] if rest else None
        if isinstance(of, ast.Name) and isinstance(name, ast.Constant):
            return names.get(of.id, ""), str(name.value)
    return "", ""


def asks_for_main(nodes: list[ast.AST]) -> bool:
    r"""Whether a source asks for the module that was started, which is the judge's.

    >>> def asks(text):
    ...     return asks_for_main([*ast.walk(ast.parse(text))])
    >>> asks("import __main__ as m"), asks("sys.modules['__main__']")
    (True, True)
    >>> asks("if __name__ == '__main__':\n    pass")
    False
    """
    main = "__main__"
    compared = {
        id(each)
        for node in nodes
        if isinstance(node, ast.Compare)
        for each in (node.left, *node.comparators)
    }
    return any(
        (isinstance(node, ast.Import) and any(n.name == main for n in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == main)
        or (
            isinstance(node, ast.Constant)
            and node.value == main
            and id(node) not in compared
        )
        for node in nodes
    )
