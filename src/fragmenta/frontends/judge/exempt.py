"""Parts of a candidate's Python that need not run, because they compute nothing.

They refuse, import, or ask for the form of an argument.  What is left out is exact: a
condition that looks like one of these and decides by a size is not.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

Place = tuple[int, int, int, int]
"""Where something is in a text: first and last line, first and last column."""


def place_of(node: ast.AST) -> Place:
    """Where a part of a tree is."""
    at = node
    return at.lineno, at.end_lineno, at.col_offset, at.end_col_offset  # type: ignore[attr-defined]


def within(inner: Place, outer: Place) -> bool:
    """Whether a place is in another one.

    >>> within((2, 2, 4, 9), (1, 3, 0, 1))
    True
    """
    starts = (outer[0], outer[2]) <= (inner[0], inner[2])
    return starts and (inner[1], inner[3]) <= (outer[1], outer[3])


_BY_NAME = frozenset(
    [
        *("globals", "locals", "vars", "getattr", "eval", "exec", "__dict__"),
        *("modules", "__import__", "import_module", "attrgetter", "methodcaller"),
        *("__globals__", "__getattribute__", "f_globals", "__builtins__"),
        *("pickle", "loads", "Unpickler", "marshal", "copyreg", "find_class"),
        *("resolve_name", "locate", "getmembers", "get_objects", "run_path"),
    ]
)
"""What finds functions by names that are made at run time."""


def unused(tree: ast.Module) -> set[str]:
    r"""The functions and variables of a file that nothing in it names.

    >>> text = "def g(): pass\ndef h(): g()\ndef candidate(): pass\na = 1"
    >>> sorted(unused(ast.parse(text)))
    ['a', 'g', 'h']
    """
    inside: dict[str, set[str]] = {}
    named: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.If) and _asks_for_script(node.test):
            continue
        words = _words(node)
        # A decorator gets the function, and may keep it.
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            inside.setdefault(node.name, set()).update(words)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            inside.setdefault(node.targets[0].id, set())
            named |= words
        else:
            named |= words
    named |= {"candidate", "ModelNew"}
    size = 0
    while size != len(named):
        size = len(named)
        for name, words in inside.items():
            if name in named:
                named |= words
    return set() if named & _BY_NAME else {*inside} - named


def _asks_for_script(test: ast.expr) -> bool:
    """Whether a condition is ``__name__ == "__main__"``."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == "__main__"
    )


def _words(node: ast.AST) -> set[str]:
    """All words of a statement that may name something."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
    return found


class Exempt:
    """Parts of a file that need not run: they refuse, or are no code of the host."""

    def __init__(self, tree: ast.Module) -> None:
        self._parts: list[Place] = []
        self.idle: list[Place] = []
        """The bodies of functions that do not run as Python."""
        self._forgiven: list[Place] = []
        self._handlers: set[Place] = set()
        self._of_blocks: set[Place] = set()
        self._names = _Names(tree)
        self._caught = _Caught(tree)
        idle = unused(tree)
        for each in tree.body:
            if isinstance(each, ast.FunctionDef) and each.name in idle:
                self._leave_out_function(each)
            elif isinstance(each, ast.If) and self._names.is_main(each.test):
                self._leave_out(each.body)
                self._forgiven.append(place_of(each.test))
        for node in ast.walk(tree):
            self._add(node)

    def holds(self, at: Place) -> bool:
        """Whether a place is in such a part."""
        return any(within(at, each) for each in self._parts)

    def forgives(self, at: Place) -> bool:
        """Whether a place is in a condition that may go one way."""
        return at in self._handlers or any(within(at, each) for each in self._forgiven)

    def counts_blocks(self, at: Place) -> bool:
        """Whether a place says how many blocks a size has, or how large they are.

        Both grow with the size, so what was so for the smallest and the largest one is
        so for all between.
        """
        return at in self._of_blocks

    def _add(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call) and _is_of_blocks(node):
            self._of_blocks.add(place_of(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._leave_out([node])
        elif isinstance(node, ast.Raise):
            if not self._caught.catches(node):
                self._leave_out([node])
        elif isinstance(node, ast.Assert):
            if self._names.is_pure(node.test) and not self._caught.catches(node):
                self._leave_out([node])
        elif isinstance(node, ast.If):
            if self._names.asks_empty(node.test):
                self._leave_out(node.body)
                self._forgiven.append(place_of(node.test))
            for body in (node.body, node.orelse):
                if self._refuses(body):
                    self._leave_out(body)
                    self._forgiven.append(place_of(node.test))
        elif isinstance(node, ast.Try):
            self._add_handlers(node)
        elif isinstance(node, ast.FunctionDef) and is_kernel(node):
            self._leave_out_function(node)
        elif isinstance(node, ast.expr) and self._names.asks_form(node):
            self._forgiven.append(place_of(node))

    def _add_handlers(self, node: ast.Try) -> None:
        """Those of imports, and those that refuse; others must run."""
        imports = any(isinstance(e, ast.Import | ast.ImportFrom) for e in node.body)
        imports = imports and all(map(_is_about_imports, node.body))
        for each in node.handlers:
            self._handlers.add(place_of(each))
            alone = imports and all(map(_is_about_imports, each.body))
            if alone or self._refuses(each.body):
                self._leave_out([each])
            elif each.type is not None:
                self._leave_out([each.type])

    def _refuses(self, body: Sequence[ast.stmt]) -> bool:
        """Whether statements only come to a ``raise`` that leaves the candidate."""
        if not body or not isinstance(body[-1], ast.Raise):
            return False
        if self._caught.catches(body[-1]):
            return False
        return all(self._is_message(each) for each in body[:-1])

    def _is_message(self, node: ast.stmt) -> bool:
        """Whether a statement makes a message, or tells it."""
        if isinstance(node, ast.Assign):
            return all(isinstance(each, ast.Name) for each in node.targets)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return _called(node.value) in _TELLING
        return isinstance(node, ast.Pass | ast.Import | ast.ImportFrom)

    def _leave_out_function(self, node: ast.FunctionDef) -> None:
        self._leave_out([node])
        (a, _, b, _), (_, c, _, d) = place_of(node.body[0]), place_of(node.body[-1])
        self.idle.append((a, c, b, d))

    def _leave_out(self, nodes: Sequence[ast.AST | None]) -> None:
        self._parts += [place_of(each) for each in nodes if each is not None]


def _is_of_blocks(node: ast.Call) -> bool:
    """Whether it is ``cdiv(...)``, or numbers with a constant as their bound."""
    if _called(node) in ("min", "max") and not node.keywords:
        return any(isinstance(each, ast.Constant) for each in node.args)
    return _called(node) == "cdiv" and len(node.args) == 2


_TELLING = frozenset(
    [
        *("print", "warn", "debug", "info", "warning", "error", "exception"),
        *("critical", "print_exc", "print_exception"),
    ]
)


def _is_about_imports(node: ast.stmt) -> bool:
    plain = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    return plain or isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Raise)


def _called(node: ast.Call) -> str:
    """The last name of what is called."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def is_kernel(node: ast.FunctionDef) -> bool:
    """Whether Triton compiles a function: then it does not run as Python."""
    return any(
        (isinstance(each, ast.Attribute) and each.attr == "jit")
        or (isinstance(each, ast.Name) and each.id == "jit")
        for decorator in node.decorator_list
        for each in ast.walk(decorator)
    )


class _Caught:
    """The exceptions that a file may catch itself: raising them is no refusal."""

    def __init__(self, tree: ast.Module) -> None:
        self._names = {"StopIteration", "StopAsyncIteration", "AttributeError"}
        self._bases: dict[str, list[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Try | ast.TryStar):
                for each in node.handlers:
                    if not isinstance(each.body[-1], ast.Raise):
                        self._names |= {*_names_of(each.type)} or {"BaseException"}
            elif isinstance(node, ast.Call) and _called(node) == "suppress":
                self._names |= {name for each in node.args for name in _names_of(each)}
            elif isinstance(node, ast.ClassDef):
                self._bases[node.name] = [n for e in node.bases for n in _names_of(e)]
            elif isinstance(node, ast.FunctionDef) and node.name == "__exit__":
                self._names.add("BaseException")

    def catches(self, node: ast.Raise | ast.Assert) -> bool:
        """Whether the file may catch what a statement raises."""
        if isinstance(node, ast.Assert):
            return self._catches("AssertionError")
        if node.exc is None:  # what was caught goes on
            return False
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return any(map(self._catches, _names_of(raised) or ["?"]))

    def _catches(self, name: str) -> bool:
        if name in self._names:
            return True
        if name in self._bases:
            return any(map(self._catches, self._bases[name]))
        known = getattr(builtins, name, None)
        if not isinstance(known, type):  # of a library: any but a known one catches it
            return bool(self._names & {"Exception", "BaseException"})
        kinds = [getattr(builtins, each, None) for each in self._names]
        return any(isinstance(e, type) and issubclass(known, e) for e in kinds)


def _names_of(node: ast.expr | None) -> list[str]:
    """The last names of exceptions."""
    if node is None:
        return []
    if isinstance(node, ast.Tuple):
        return [name for each in node.elts for name in _names_of(each)]
    return [str(getattr(node, "attr", getattr(node, "id", "BaseException")))]


_TYPES = frozenset(
    [
        *("isinstance", "hasattr", "callable", "issubclass", "is_contiguous"),
        *("is_cuda", "is_floating_point", "dtype", "ndim", "dim", "bias", "kind"),
        *("device", "flags", "c_contiguous"),
    ]
)
"""What conditions ask that are about the form of an argument, not about its size."""


_PURE = frozenset(
    [
        *("isinstance", "hasattr", "callable", "issubclass", "len", "type", "all"),
        *("any", "abs", "min", "max", "int", "float", "bool", "tuple", "list", "set"),
        *("str", "repr", "format", "join", "sum", "range", "zip", "prod", "isfinite"),
        *("isnan", "allclose", "array_equal", "equal", "issubdtype", "is_contiguous"),
        *("is_floating_point", "dim", "size", "numel", "nelement", "element_size"),
        *("stride", "data_ptr", "bit_count", "divmod", "dtype", "get", "product"),
        *("startswith", "endswith", "keys", "values", "items"),
    ]
)
"""Functions that change nothing."""
_SAME_FORM = frozenset(
    ["ascontiguousarray", "asarray", "contiguous", "copy", "detach", "cuda", "tuple"]
)
"""Functions whose results have the form of what they get."""


class _Names:
    """What the names of a file stand for, as far as conditions ask for it."""

    def __init__(self, tree: ast.Module) -> None:
        self._parameters: set[str] = set()
        self._stored: set[str] = set()
        self._defined: set[str] = set()
        plain = {id(name) for node in ast.walk(tree) for name in _keeping(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                self._parameters.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._defined.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._defined.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                if id(node) not in plain:
                    self._stored.add(node.id)
            elif isinstance(node, ast.alias) and node.asname:
                self._defined.add(node.asname)
        self._extents: set[str] = set()
        for _ in range(3):  # a product of sizes that have names
            self._extents = self._sizes_of_arrays(tree)

    def _sizes_of_arrays(self, tree: ast.Module) -> set[str]:
        """Names that only sizes of arrays are given to, as they are."""
        given: dict[str, bool] = {}

        def note(name: str, right: bool) -> None:
            given[name] = given.get(name, True) and right

        plain: set[int] = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            [target], value = node.targets, node.value
            if isinstance(target, ast.Name):
                plain.add(id(target))
                note(target.id, self._is_extent(value))
            elif isinstance(target, ast.Tuple | ast.List):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                for at, each in enumerate(target.elts):
                    one = self._is_extent(values[at]) if at < len(values) else False
                    if isinstance(each, ast.Name):
                        plain.add(id(each))
                        note(each.id, _is_shape(value) or one)
        for node in ast.walk(tree):
            stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
            if stored and id(node) not in plain:
                note(node.id, False)  # type: ignore[attr-defined]
        return {name for name, right in given.items() if right} - self._parameters

    def is_main(self, test: ast.expr) -> bool:
        """Whether a condition is that of a script, or that of type checkers."""
        if isinstance(test, ast.Name | ast.Attribute):
            name = getattr(test, "attr", getattr(test, "id", ""))
            return name == "TYPE_CHECKING" and name not in self._stored | self._defined
        own = "__name__" in self._stored | self._parameters
        return _asks_for_script(test) and not own

    def is_pure(self, node: ast.expr) -> bool:
        """Whether nothing changes if an expression is evaluated."""
        for each in ast.walk(node):
            if isinstance(each, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
                return False
            if isinstance(each, ast.Call):
                name = _called(each)
                known = name in _PURE and name not in self._defined | self._stored
                if not known or any(word.arg == "out" for word in each.keywords):
                    return False
        return True

    def asks_empty(self, node: ast.expr) -> bool:
        """Whether a condition asks if an array has no elements, so nothing is to do.

        Every size that is compared is that of an array, as it is.
        """
        if isinstance(node, ast.BoolOp):
            return isinstance(node.op, ast.Or) and all(
                map(self.asks_empty, node.values)
            )
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not) and self._is_extent(node.operand)
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return False
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.In):
            zero = isinstance(left, ast.Constant) and left.value == 0
            return zero and _is_shape(right)
        limit = {ast.Eq: 0, ast.LtE: 0, ast.Lt: 1}.get(type(node.ops[0]))
        asked = isinstance(right, ast.Constant) and right.value == limit
        return limit is not None and asked and self._is_extent(left)

    def _is_extent(self, node: ast.expr) -> bool:
        """Whether an expression is a size of an array, also by a name or a product."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self._is_extent(node.left) and self._is_extent(node.right)
        if isinstance(node, ast.Name):
            return node.id in self._extents
        if {"shape", "size", "numel", "nelement"} & self._defined:
            return False
        if isinstance(node, ast.Subscript):
            return _is_shape(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            plain = node.func.attr in ("numel", "nelement") and not node.args
            sized = node.func.attr == "size" and len(node.args) == 1
            return (plain or sized) and not node.keywords
        return isinstance(node, ast.Attribute) and node.attr == "size"

    def asks_form(self, node: ast.expr) -> bool:
        """Whether a condition asks for the type or the form of an argument only."""
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not) and self.asks_form(node.operand)
        if isinstance(node, ast.BoolOp):
            return all(map(self.asks_form, node.values))
        if not isinstance(node, ast.Compare):
            return self._is_form(node)
        if len(node.ops) != 1:
            return False
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            none = isinstance(right, ast.Constant) and right.value is None
            return none and (self._is_given(left) or self._is_form(left))
        if not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return False
        sides = self._is_form(left), self._is_form(right)
        fixed = [
            s or self._is_fixed(e) for s, e in zip(sides, (left, right), strict=True)
        ]
        return any(sides) and all(fixed)

    def _is_form(self, node: ast.expr) -> bool:
        """Whether an expression is the form of an argument, such as its type."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                name, first = node.func.id, node.args[:1]
                plain = name in _TYPES and name not in self._stored | self._defined
                return plain and bool(first) and self._is_given(first[0])
            return not node.args and self._is_form(node.func)
        named = isinstance(node, ast.Attribute) and self._is_given(node)
        return named and node.attr in _TYPES  # type: ignore[attr-defined]

    def _is_given(self, node: ast.expr) -> bool:
        """Whether an expression is an argument, or an attribute of one."""
        if isinstance(node, ast.Attribute):
            return node.attr not in self._defined and self._is_given(node.value)
        given = isinstance(node, ast.Name) and node.id in self._parameters
        return given and node.id not in self._stored  # type: ignore[attr-defined]

    def _is_fixed(self, node: ast.expr) -> bool:
        """Whether an expression is a constant, or a name of a library."""
        if isinstance(node, ast.Attribute):
            return self._is_fixed(node.value)
        if isinstance(node, ast.Name):
            return node.id not in self._stored | self._defined | self._parameters
        return isinstance(node, ast.Constant)


def _is_shape(node: ast.expr) -> bool:
    """Whether an expression is the shape of an array."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "size" and not node.args and not node.keywords
    return isinstance(node, ast.Attribute) and node.attr == "shape"


_PLAIN = (
    *(ast.Name, ast.Call, ast.Attribute, ast.Tuple, ast.List, ast.keyword),
    *(ast.Constant, ast.expr_context),
)
"""Parts of expressions that decide nothing."""


def _keeping(node: ast.AST) -> Iterator[ast.Name]:
    """Names that get what has the form of what they had, or a default for None."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
        name = getattr(node.test.left, "id", "")
        if isinstance(node.test.ops[0], ast.Is):
            for each in node.body:
                if isinstance(each, ast.Assign):
                    yield from (
                        e
                        for e in each.targets
                        if isinstance(e, ast.Name) and e.id == name
                    )
    if not isinstance(node, ast.Assign):
        return
    parts = [*ast.walk(node.value)]
    calls = [each for each in parts if isinstance(each, ast.Call)]
    if all(isinstance(each, _PLAIN) for each in parts) and all(
        _called(each) in _SAME_FORM and len(each.args) < 2 for each in calls
    ):
        used = {each.id for each in parts if isinstance(each, ast.Name)}
        for target in node.targets:
            names = [e for e in ast.walk(target) if isinstance(e, ast.Name)]
            yield from (name for name in names if name.id in used)
