"""Reads the host's part of a candidate, and says what of it is not understood.

It follows what each name can stand for: an array, a kernel, a number, a container.  It
does so without regard to order, so it can only be too careful.  What is not in
:mod:`~fragmenta.frontends.judge.known` is not understood.  Neither is arithmetic of the
host with the contents of inputs or of what launches left, nor what is kept from call to
call, except kernels, tables, and memory that is not returned, by sizes and types.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from typing import cast

from fragmenta.frontends.judge import known, of_sizes
from fragmenta.frontends.judge.exempt import Exempt, is_kernel, place_of
from fragmenta.frontends.judge.marking import NAME
from fragmenta.frontends.judge.of_sizes import Tag, Value

PLAIN, SIZE, PART, DATA, KEPT, KERNEL, RESULT, LAYER = (
    "plain",
    "size",
    "part",
    "data",
    "kept",
    "kernel",
    "result",
    "layer",
)
"""A number or a text; one that follows a size; a float that does; an element; what was
kept; a kernel; what a launch returns; a layer of PyTorch."""
NUMBERS = (PLAIN, SIZE, PART, KEPT, DATA)
_CALLED = (KERNEL, RESULT, LAYER)
INPUT: Tag = ("array", "input")
NOTHING: Value = frozenset()
NUMBER: Value = frozenset([PLAIN])
ROUNDS = 24
"""How often the file is gone through, until nothing new is learnt."""
MODULE = 0
"""The scope of the file."""


def not_understood(text: str, arrays: Sequence[bool]) -> list[str]:
    r"""What of a file is not understood, in words.

    ``arrays``: which inputs are arrays.

    >>> text = "import numpy as np\ndef candidate(x): return np.sort(x)"
    >>> not_understood(text, [True])
    ['line 2: `np.sort` is not known']
    >>> not_understood("def candidate(x): return x + 1", [True])
    ['line 1: `x + 1` computes with the contents of an array']
    """
    tree = ast.parse(text)
    reader = _NameResolver(text, tree, arrays)
    for _ in range(ROUNDS):
        before = reader.size()
        reader.go_through()
        if reader.size() == before:
            break
    reader.told.clear()
    reader.telling = True
    reader.go_through()
    return [*reader.told]


class _NameResolver:
    """What names, attributes and containers of a file can stand for."""

    def __init__(self, text: str, tree: ast.Module, arrays: Sequence[bool]) -> None:
        self.telling = False
        self.told: dict[str, None] = {}
        self._text, self._tree, self._arrays = text, tree, arrays
        self._left_out = Exempt(tree)
        self._names: dict[tuple[int, str], set[Tag]] = {}
        self._fields: dict[str, set[Tag]] = {}
        self._inside: dict[object, set[Tag]] = {}
        self._returns: dict[int, set[Tag]] = {}
        self._functions: dict[int, ast.FunctionDef | ast.Lambda] = {}
        self._scopes: dict[int, int] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        self._lasting: set[object] = set()
        """Containers and arrays that are there longer than a call."""
        self._changed: set[object] = set()
        """Those of them that functions change."""
        self._launched: set[Tag] = {INPUT}
        self._owned: dict[int, str] = {}
        self._globals: dict[int, set[str]] = {}
        self._scope = MODULE
        self._stored = {each for node in ast.walk(tree) for each in _bound_by(node)}
        self._torch = any(
            each.split(".")[0] == "torch"
            for node in ast.walk(tree)
            for each in _imported(node)
        )

    def size(self) -> int:
        """How much is known."""
        tables = (self._names, self._fields, self._inside, self._returns)
        found = sum(len(each) for table in tables for each in table.values())
        return found + len(self._launched) + len(self._lasting) + len(self._changed)

    def go_through(self) -> None:
        """Go through the file once, and through all functions that are known."""
        self._body(self._tree.body)
        done: set[int] = set()
        while len(done) < len(self._functions):
            for number, function in [*self._functions.items()]:
                if number not in done:
                    done.add(number)
                    self._function(number, function)
        self._enter()

    # ── what is told ────────────────────────────────────────────────────────

    def _tell(self, node: ast.AST, why: str) -> None:
        imports = isinstance(node, ast.ImportFrom)
        if self.telling and (imports or not self._left_out.holds(place_of(node))):
            shown = (ast.get_source_segment(self._text, node) or "?").splitlines()[0]
            shown = shown if len(shown) <= 48 else f"{shown[:45]}..."
            self.told[f"line {node.lineno}: `{shown}` {why}"] = None  # type: ignore[attr-defined]

    # ── functions ───────────────────────────────────────────────────────────

    def _enter(self) -> None:
        """The candidate is called with its inputs."""
        for start in ("candidate", "ModelNew"):
            made: set[Tag] = set()
            for named in [*self._names.get((MODULE, start), ())]:
                tag = named
                if start == "ModelNew" and isinstance(named, tuple):
                    self._construct(str(named[1]), [NUMBER] * 8, {})
                    tag = ("object", named[1])
                given = [
                    frozenset([INPUT]) if each else NUMBER for each in self._arrays
                ]
                made |= self._call_tag(tag, self._tree.body[-1], given, {})
            kept = {each for each in self._flat(frozenset(made)) if _is_array(each)}
            for each in kept & self._lasting if self.telling else ():
                self.told[f"it returns memory that it keeps ({_word(each)})"] = None

    def _function(self, number: int, function: ast.FunctionDef | ast.Lambda) -> None:
        before, self._scope = self._scope, number
        if isinstance(function, ast.Lambda):
            self._give(number, self._value(function.body))
        else:
            self._body(function.body)
        self._scope = before

    def _give(self, number: int, value: Value) -> None:
        self._returns.setdefault(number, set()).update(value)

    def _define(self, node: ast.FunctionDef | ast.Lambda, owner: str = "") -> Value:
        if isinstance(node, ast.FunctionDef):
            for each in node.decorator_list:
                self._decorator(each)
            if is_kernel(node):
                return frozenset([KERNEL])
            if not owner and node.name.startswith("__"):
                self._tell(node, "is a function that Python calls itself")
        number = id(node)
        self._functions[number] = node
        self._scopes.setdefault(number, self._scope)
        if owner:
            self._owned[number] = owner
        arguments = node.args
        defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
        given = [*arguments.posonlyargs, *arguments.args]
        for name, default in zip(
            given[len(given) - len(arguments.defaults) :],
            arguments.defaults,
            strict=True,
        ):
            self._bind(number, name.arg, self._value(default))
        for name, default_ in zip(
            arguments.kwonlyargs, arguments.kw_defaults, strict=True
        ):
            if default_ is not None:
                self._bind(number, name.arg, self._value(default_))
        for default in defaults:
            self._last(self._value(default))
        return frozenset([("own", number)])

    def _decorator(self, node: ast.expr) -> None:
        of = node.func if isinstance(node, ast.Call) else node
        names = [str(t[1]) for t in self._value(of) if _is(t, "library")]
        if not any(name in known.DECORATORS for name in names):
            self._tell(node, "is not known")

    def _bind(self, scope: int, name: str, value: Iterable[Tag]) -> None:
        self._names.setdefault((scope, name), set()).update(value)

    def _call_own(
        self,
        number: int,
        given: Sequence[Value],
        named: dict[str, Value],
        of: Value = NOTHING,
    ) -> Value:
        function = self._functions[number]
        arguments = function.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        rows = [of, *given] if of else [*given]
        for name, value in zip(names, rows, strict=False):
            self._bind(number, name, value)
        rest = rows[len(names) :]
        if arguments.vararg is not None:
            box = ("box", (number, "*"))
            self._inside.setdefault(box[1], set()).update(*rest, ())
            self._bind(number, arguments.vararg.arg, [box])
        for name, value in named.items():
            self._bind(number, name, value)
        return frozenset(self._returns.get(number, ()))

    def _construct(
        self, name: str, given: Sequence[Value], named: dict[str, Value]
    ) -> Value:
        made: Value = frozenset([("object", name)])
        for tag in self._methods(name, "__init__"):
            self._call_own(tag, given, named, made)
        if not self._methods(name, "__init__"):
            # Fields of a dataclass or a named tuple: by any name.
            self._fields.setdefault("*", set()).update(*given, *named.values(), ())
        return made

    def _methods(self, name: str, method: str) -> list[int]:
        return [
            number
            for number, owner in self._owned.items()
            if owner == name and getattr(self._functions[number], "name", "") == method
        ]

    # ── statements ──────────────────────────────────────────────────────────

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for each in body:
            if not self._left_out.holds(place_of(each)) or isinstance(
                each, ast.Import | ast.ImportFrom | ast.FunctionDef
            ):
                self._statement(each)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef():
                if self._left_out.holds(place_of(node)) and not is_kernel(node):
                    return
                self._bind(self._scope, node.name, self._define(node))
            case ast.ClassDef():
                self._class(node)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Assign():
                self._assign(node)
            case ast.AnnAssign():
                if node.value is not None:
                    self._store(node.target, self._value(node.value), node)
            case ast.AugAssign():
                self._augment(node)
            case ast.Expr() | ast.Return():
                value = self._value(node.value) if node.value else NUMBER
                if isinstance(node, ast.Return):
                    self._give(self._scope, value)
            case ast.If() | ast.While():
                self._condition(node.test)
                self._body(node.body)
                self._body(node.orelse)
            case ast.For():
                self._store(node.target, self._each(self._value(node.iter)), node)
                self._body(node.body)
                self._body(node.orelse)
            case ast.With():
                for item in node.items:
                    self._with(item)
                self._body(node.body)
            case ast.Try():
                self._body(node.body)
                for handler in node.handlers:
                    if handler.name:
                        self._bind(self._scope, handler.name, NUMBER)
                    self._body(handler.body)
                self._body(node.orelse)
                self._body(node.finalbody)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Subscript | ast.Attribute):
                        self._tell(target, "is taken away")
            case ast.Global():
                self._globals.setdefault(self._scope, set()).update(node.names)
            case ast.Assert():
                self._value(node.test)
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Raise():
                pass
            case _:
                self._tell(node, "is not understood")

    def _assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        for target in node.targets:
            sides = target, node.value
            rows = [each.elts if isinstance(each, ast.Tuple) else [] for each in sides]
            starred = any(isinstance(e, ast.Starred) for row in rows for e in row)
            if rows[0] and len(rows[0]) == len(rows[1]) and not starred:
                for one, other in zip(*rows, strict=True):
                    self._store(one, self._value(other), node)
            else:
                self._store(target, value, node)

    def _with(self, item: ast.withitem) -> None:
        self._value(item.context_expr)
        of = item.context_expr
        names = self._value(of.func) if isinstance(of, ast.Call) else NOTHING
        if not any(_is(t, "library") for t in names) or item.optional_vars:
            self._tell(of, "is not understood as a context")

    def _condition(self, test: ast.expr) -> None:
        value = self._value(test)
        if self._live(value) or DATA in value:
            self._tell(test, "decides by the contents of an array")

    def _class(self, node: ast.ClassDef) -> None:
        for of in (*node.bases, *(each.value for each in node.keywords)):
            names = [str(t[1]) for t in self._value(of) if _is(t, "library")]
            own = any(_is(t, "class") for t in self._value(of))
            if not own and not any(name in known.CLASSES for name in names):
                self._tell(of, "is no class that is known")
        for each in node.decorator_list:
            self._decorator(each)
        self._classes[node.name] = node
        self._bind(self._scope, node.name, [("class", node.name)])
        for statement in node.body:
            match statement:
                case ast.FunctionDef():
                    name = statement.name
                    if name.startswith("__") and name not in known.METHODS:
                        self._tell(statement, "is a method that Python calls itself")
                    made = self._define(statement, node.name)
                    self._fields.setdefault(name, set()).update(made)
                case ast.Assign() | ast.AnnAssign():
                    if statement.value is not None:
                        value = self._value(statement.value)
                        self._last(value)
                        targets = getattr(statement, "targets", None)
                        for target in targets or [statement.target]:  # type: ignore[union-attr]
                            if isinstance(target, ast.Name):
                                self._fields.setdefault(target.id, set()).update(value)
                case ast.Expr() | ast.Pass():
                    pass
                case _:
                    self._tell(statement, "is not understood in a class")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._module(node, alias.name)
                name = alias.name if alias.asname else alias.name.split(".")[0]
                self._bind(
                    self._scope,
                    alias.asname or alias.name.split(".")[0],
                    [("library", name)],
                )
            return
        self._module(node, str(node.module))
        for alias in node.names:
            if alias.name == "*":
                self._tell(node, "does not say what it imports")
            name = f"{node.module}.{alias.name}"
            self._bind(self._scope, alias.asname or alias.name, [("library", name)])

    def _module(self, node: ast.stmt, name: str) -> None:
        if name.partition(".")[0] not in known.MODULES and self.telling:
            self.told[f"line {node.lineno}: the module {name} is not known"] = None

    # ── what is stored ──────────────────────────────────────────────────────

    def _store(self, target: ast.expr, value: Value, node: ast.stmt) -> None:
        match target:
            case ast.Name():
                if target.id in self._globals.get(self._scope, ()):
                    self._keep(node, NUMBER, value)
                    self._bind(MODULE, target.id, value)
                    self._changed.add(("name", target.id))
                else:
                    self._bind(self._scope, target.id, value)
                    if self._scope == MODULE:
                        self._last(value)
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self._store(each, self._each(value), node)
            case ast.Starred():
                self._store(target.value, value, node)
            case ast.Attribute():
                self._store_field(target, value, node)
            case ast.Subscript():
                key = self._value(target.slice)
                for tag in self._value(target.value):
                    self._store_item(tag, key, value, node)

    def _store_field(self, target: ast.Attribute, value: Value, node: ast.AST) -> None:
        of = self._value(target.value)
        self._fields.setdefault(target.attr, set()).update(value)
        self._last(value)
        name = getattr(self._functions.get(self._scope), "name", "")
        if KERNEL in of:
            if target.attr != "max_dynamic_shared_size_bytes":
                self._tell(node, "changes a kernel")
        elif any(not _is(each, "object") for each in of):
            self._tell(node, "changes something that is not its own")
        elif name not in ("__init__", "__post_init__"):
            self._keep(node, NUMBER, value)
            self._changed.add(("field", target.attr))

    def _store_item(self, tag: Tag, key: Value, value: Value, node: ast.stmt) -> None:
        if _is(tag, "box"):
            assert isinstance(tag, tuple)
            self._inside.setdefault(tag[1], set()).update(value)
            if tag[1] in self._lasting:
                if _has_slice(node):
                    self._tell(node, "changes how much it keeps")
                self._keep(node, key, value)
                self._changed.add(tag[1])
                self._last(value)
        elif _is_array(tag):
            if self._live(key) or DATA in key:
                self._tell(node, "decides by the contents of an array where it writes")
            if tag in self._lasting and value - {PLAIN, SIZE, PART}:
                self._tell(node, "changes memory that is kept")
            elif DATA in value or KEPT in value:
                self._tell(node, "writes a number that it has read")
        elif tag not in (PLAIN, SIZE, PART, KEPT):
            self._tell(node, "is not understood")

    def _augment(self, node: ast.AugAssign) -> None:
        load = ast.copy_location(
            ast.BinOp(_loaded(node.target), node.op, node.value), node
        )
        value = self._value(load)
        if isinstance(node.target, ast.Name):
            if node.target.id in self._globals.get(self._scope, ()):
                self._tell(node, "counts from call to call")
            self._bind(self._scope, node.target.id, value)
            return
        inner = node.target.value
        if isinstance(node.target, ast.Attribute):
            self._tell(node, "counts from call to call")
        for tag in self._value(inner):
            key = tag[1] if _is(tag, "box") else tag
            if _is(tag, "object") or key in self._lasting:
                self._tell(node, "counts from call to call")

    def _keep(self, node: ast.AST, key: Value, value: Value) -> None:
        """Something is kept for later calls; says so unless it is harmless."""
        if {DATA, KEPT} & key or any(map(_is_array, self._flat(key))):
            self._tell(node, "keeps something by the contents of arrays")
        every = self._flat(value)
        if {DATA, RESULT} & every:
            self._tell(node, "keeps what was computed from arrays")
        if KEPT in every:
            self._tell(node, "changes what it keeps from call to call")
        if INPUT in every:
            self._tell(node, "keeps an input")
        self._last(value)

    def _last(self, value: Value) -> None:
        """What a value holds is there longer than a call."""
        for tag in self._flat(value):
            if _is(tag, "box"):
                self._lasting.add(tag[1])
            elif _is_array(tag) and tag != INPUT:
                self._lasting.add(tag)

    # ── expressions ─────────────────────────────────────────────────────────

    def _flat(self, value: Value) -> set[Tag]:
        """A value, and all that its containers hold."""
        found: set[Tag] = set()
        left = [*value]
        while left:
            tag = left.pop()
            if tag in found:
                continue
            found.add(tag)
            if _is(tag, "box"):
                left += self._inside.get(tag[1], ())
        return found

    def _live(self, value: Value) -> bool:
        """Whether it may have contents of inputs or of what launches left."""
        return any(_is_array(t) and t in self._launched for t in self._flat(value))

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant():
                return NOTHING if node.value is None else NUMBER
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.BinOp():
                return self._computed(node, [node.left, node.right])
            case ast.UnaryOp():
                return self._computed(node, [node.operand])
            case ast.Compare():
                return self._compared(node)
            case ast.BoolOp():
                return self._union(node.values)
            case ast.IfExp():
                self._condition(node.test)
                return self._union([node.body, node.orelse])
            case ast.Tuple() | ast.List() | ast.Set():
                return self._box(node, self._union(node.elts))
            case ast.Dict():
                self._union([each for each in node.keys if each is not None])
                return self._box(node, self._union(node.values))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._generators(node.generators)
                return self._box(node, self._value(node.elt))
            case ast.DictComp():
                self._generators(node.generators)
                self._value(node.key)
                return self._box(node, self._value(node.value))
            case ast.Starred():
                return self._each(self._value(node.value))
            case ast.Lambda():
                return self._define(node)
            case ast.JoinedStr() | ast.FormattedValue():
                parts = node.values if isinstance(node, ast.JoinedStr) else [node.value]
                value = self._union(parts)
                self._text_of(node, value)
                return NUMBER | (value & {SIZE, PART})
            case ast.Slice():
                ends = [node.lower, node.upper, node.step]
                return self._union([each for each in ends if each is not None])
            case ast.NamedExpr():
                value = self._value(node.value)
                self._bind(self._scope, node.target.id, value)
                return value
        self._tell(node, "is not understood")
        return NUMBER

    def _union(self, nodes: Iterable[ast.expr]) -> Value:
        return frozenset().union(*(self._value(each) for each in nodes))

    def _text_of(self, node: ast.AST, value: Value) -> None:
        if {DATA, KEPT} & value or self._live(value):
            self._tell(node, "is a text with what it has read")

    def _box(self, node: ast.AST, value: Value) -> Value:
        self._inside.setdefault(id(node), set()).update(value)
        if self._scope == MODULE:
            self._lasting.add(id(node))
        return frozenset([("box", id(node))])

    def _generators(self, generators: Sequence[ast.comprehension]) -> None:
        for each in generators:
            self._store(each.target, self._each(self._value(each.iter)), ast.Pass())
            for test in each.ifs:
                self._condition(test)

    def _each(self, value: Value) -> Value:
        """What a value holds, if it is gone through."""
        found: set[Tag] = set()
        for tag in value:
            if _is(tag, "box"):
                inner = self._inside.get(tag[1], set())
                found |= self._read(inner, tag[1])
            elif _is(tag, "object"):
                found |= self._fields.get("*", set())
            else:
                found.add(tag)
        return frozenset(found or NUMBER)

    def _read(self, found: Iterable[Tag], of: object) -> set[Tag]:
        """What is read; numbers that functions have put there are kept ones."""
        made = {*found}
        if of in self._changed and PLAIN in made:
            made.add(KEPT)
        return made

    def _name(self, node: ast.Name) -> Value:
        if node.id == NAME:
            self._tell(node, "is a name of the judge")
        scope = self._scope
        while True:
            found = self._names.get((scope, node.id))
            if found is not None:
                if scope not in (self._scope, MODULE):
                    self._last(frozenset(found))
                if scope == MODULE:
                    return frozenset(self._read(found, ("name", node.id)))
                return frozenset(found)
            if scope == MODULE:
                break
            scope = self._scopes.get(scope, MODULE)
        if node.id == "__name__":
            return NUMBER
        if hasattr(builtins, node.id):
            return frozenset([("library", f"builtins.{node.id}")])
        if node.id not in self._stored:
            self._tell(node, "is not known")
        return NOTHING

    def _attribute(self, node: ast.Attribute) -> Value:
        found: set[Tag] = set()
        for tag in self._value(node.value):
            found |= self._attribute_of(tag, node)
        return frozenset(found)

    def _attribute_of(self, tag: Tag, node: ast.Attribute) -> Value:
        name = node.attr
        if _is(tag, "library"):
            return self._of_library(f"{tag[1]}.{name}", node)
        if name.startswith("__") and name not in ("__init__", "__name__"):
            self._tell(node, "is not understood")
            return NUMBER
        if _is(tag, "method"):  # an attribute stands for its value, too
            return NOTHING
        if _is_array(tag):
            if name in known.SIZES:
                return frozenset([("method", (SIZE, name)), PLAIN, SIZE])
            return frozenset([("method", (tag, name)), tag])
        if _is(tag, "object"):
            made = {*self._fields.get(name, set()), *self._fields.get("*", set())}
            read = self._read(made, ("field", name))
            found: set[Tag] = set()
            for each in read:
                if _is(each, "own") and self._owned.get(cast("int", each[1])):
                    found |= self._bound(each, tag)
                else:
                    found.add(each)
            return frozenset(found or {PLAIN})
        if _is(tag, "class"):
            return frozenset(self._fields.get(name, {PLAIN}))
        if tag == LAYER:
            if name in ("weight", "bias", "running_mean", "running_var"):
                return frozenset([INPUT])
            return NUMBER if name in known.OF_LAYERS else frozenset([INPUT, PLAIN])
        if tag == RESULT:
            self._tell(node, "asks what a launch told")
            return NUMBER
        if tag == KERNEL:
            if name not in known.OF_KERNELS and not self._torch:
                self._tell(node, "is not known")
            return frozenset([KERNEL if name == "kernels" else ("method", (tag, name))])
        strange = _is(tag, "own") or (_is(tag, "box") and name not in known.OF_BOXES)
        if strange and name != "__name__":
            self._tell(node, "is not known")
        return frozenset([("method", (tag, name)), PLAIN])

    def _bound(self, each: Tag, of: Tag) -> set[Tag]:
        function = self._functions[each[1]]  # type: ignore[index]
        decorators = {
            getattr(d, "attr", getattr(d, "id", ""))
            for d in getattr(function, "decorator_list", [])
        }
        if "staticmethod" in decorators:
            return {each}
        if decorators & {"property", "cached_property"}:
            self._call_own(each[1], [], {}, frozenset([of]))  # type: ignore[arg-type]
            return {*self._returns.get(each[1], ())}  # type: ignore[call-overload]
        return {("bound", (each[1], of))}

    def _of_library(self, name: str, node: ast.AST) -> Value:
        hidden = any(part.startswith("_") for part in name.split(".")[1:])
        if hidden and name != "torch.nn.Module.__init__":
            self._tell(node, "is not known")
        return frozenset([("library", name)])

    def _subscript(self, node: ast.Subscript) -> Value:
        of, index = self._value(node.value), self._value(node.slice)
        if self._live(index) or DATA in index:
            self._tell(node, "decides by the contents of an array")
        found: set[Tag] = set()
        for tag in of:
            if _is(tag, "box") or _is(tag, "object"):
                found |= self._each(frozenset([tag]))
            elif tag in (LAYER, RESULT):
                self._tell(node, "is not understood")
            else:
                found.add(tag)
        return frozenset(found or NUMBER)

    def _computed(self, node: ast.expr, parts: Sequence[ast.expr]) -> Value:
        value = self._union(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return frozenset(value & {KEPT, DATA}) or NUMBER
        if DATA in value:
            self._tell(node, "computes with an element of an array")
        made = self._arithmetic(node, value)
        if SIZE not in value or not isinstance(node, ast.BinOp | ast.UnaryOp):
            return made
        why = of_sizes.not_known(node, [self._value(each) for each in parts])
        if why:
            self._tell(node, why)
        floats = of_sizes.is_float(node, value)
        return made | {PART} if floats else made - {PART}

    def _arithmetic(self, node: ast.AST, value: Value) -> Value:
        if self._live(value):
            if not self._torch:
                self._tell(node, "computes with the contents of an array")
            return frozenset([INPUT])
        made: set[Tag] = {t for t in value if t in NUMBERS or _is(t, "box")}
        if any(map(_is_array, value)):
            made = {("array", id(node)), *(made & {KEPT, DATA})}
        if any(t in (RESULT, LAYER) for t in value):
            self._tell(node, "is not understood")
        return frozenset(made or NUMBER)

    def _compared(self, node: ast.Compare) -> Value:
        sides = [node.left, *node.comparators]
        if all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
            self._union(sides)
            return NUMBER
        value = self._union(sides)
        if all(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
            left = self._value(node.left)
            if DATA in left or self._live(left):
                self._tell(node, "decides by the contents of an array")
            return NUMBER
        if DATA in value or any(_is_array(t) and t in self._launched for t in value):
            self._tell(node, "decides by the contents of an array")
        elif any(map(_is_array, value)):
            self._tell(node, "is a table of comparisons")
        return _numbers(value)

    # ── calls ───────────────────────────────────────────────────────────────

    def _call(self, node: ast.Call) -> Value:
        given = [self._value(each) for each in node.args]
        named = {
            each.arg or f"**{number}": self._value(each.value)
            for number, each in enumerate(node.keywords)
        }
        goes_on = getattr(node.func, "id", "") == "next" and len(node.args) == 1
        if goes_on and isinstance(node.args[0], ast.GeneratorExp):
            return self._each(given[0])
        found: set[Tag] = set()
        if _registers(node):
            self._register(node, given[1])
            return NUMBER
        of = self._value(node.func)
        methods = {t for t in of if _is(t, "method")}
        if not any(isinstance(t, tuple) or t in _CALLED for t in of):
            self._tell(node.func, "is called, and is no function that is known")
        # An attribute stands for its value and for a method; it is called.
        for tag in methods or of:
            found |= self._call_tag(tag, node, given, named)
        return frozenset(found)

    def _register(self, node: ast.Call, value: Value) -> None:
        """A module's buffer or weight is a field of it."""
        of = cast("ast.Attribute", node.func).value
        name = cast("ast.Constant", node.args[0]).value
        field = ast.Attribute(of, str(name), ast.Store())
        self._store_field(ast.copy_location(field, node), value, node)

    def _call_tag(
        self,
        tag: Tag,
        node: ast.AST,
        given: Sequence[Value],
        named: dict[str, Value],
    ) -> Value:
        every: Value = frozenset().union(*given, *named.values())
        if tag in (KERNEL, RESULT):
            return self._launch(node, every)
        if tag == LAYER:
            return frozenset([INPUT])
        if not isinstance(tag, tuple):
            return NUMBER if tag in (PLAIN, SIZE, PART, KEPT) else NOTHING
        kind, what = tag
        if kind == "own":
            self._cached(node, int(str(what)), every)
            return self._call_own(int(str(what)), given, named)
        if kind == "bound":
            number, of = cast("tuple[int, Tag]", what)
            self._cached(node, number, every)
            return self._call_own(number, given, named, frozenset([of]))
        if kind == "class":
            return self._construct(str(what), given, named)
        if kind == "object":
            made: set[Tag] = set()
            for method in ("__call__", "forward"):
                for number in self._methods(str(what), method):
                    made |= self._call_own(number, given, named, frozenset([tag]))
            return frozenset(made)
        if kind == "library":
            return self._library(str(what), node, given, named)
        if kind == "method":
            of, name = cast("tuple[Tag, str]", what)
            return self._method(of, name, node, given, every)
        if kind == "box":
            self._tell(node, "is not understood")
        return NOTHING

    def _cached(self, node: ast.AST, number: int, every: Value) -> None:
        """A function whose results are kept by its arguments."""
        decorators = getattr(self._functions[number], "decorator_list", [])
        words = {
            getattr(each, "attr", getattr(each, "id", ""))
            for decorator in decorators
            for each in ast.walk(decorator)
        }
        if words & {"lru_cache", "cache", "cached_property"}:
            self._keep(node, every, frozenset(self._returns.get(number, ())))

    def _launch(self, node: ast.AST, every: Value) -> Value:
        for tag in self._flat(every):
            if _is_array(tag):
                self._launched.add(tag)
        return frozenset([RESULT])

    def _library(
        self,
        name: str,
        node: ast.AST,
        given: Sequence[Value],
        named: dict[str, Value],
    ) -> Value:
        every: Value = frozenset().union(*given, *named.values())
        if known.is_arithmetic(name):
            if SIZE in every and name not in known.OF_SIZES:
                self._tell(node, "is no arithmetic of sizes that is known")
            if name.startswith("math."):
                return of_sizes.converted(name, self._pure(node, every))
        numpy = name.startswith("numpy.") and self._torch and self._live(every)
        if numpy:
            self._tell(node, "takes a tensor out of PyTorch's sight")
        of: ast.AST = node.func if isinstance(node, ast.Call) else node
        if name == "functools.partial" and given:
            return given[0]
        if name == "builtins.map" and given:
            inner = [self._each(each) for each in given[1:]]
            made = [self._call_tag(t, node, inner, {}) for t in given[0]]
            return self._box(node, frozenset().union(*made))
        if name == "builtins.super":
            return frozenset([("library", "torch.nn.Module")])
        if name == "torch.nn.Module.__init__" or name in known.DECORATORS:
            return NUMBER
        if name in known.FORM or _is_error(name):
            changed = any(_is(t, "box") and t[1] in self._changed for t in every)
            sized = name in ("builtins.len", "numpy.size", "numpy.shape")
            return (
                NUMBER | ({KEPT} if changed else set()) | ({SIZE} if sized else set())
            )
        if name in known.NUMBERS:
            plain = not self._live(every) and not any(map(_is_array, every))
            return (
                of_sizes.converted(name, every & {*NUMBERS}) or NUMBER
                if plain
                else frozenset([DATA])
            )
        if name in known.WRAPPING:
            if not all(isinstance(e, ast.Constant) for e in getattr(node, "args", [])):
                self._tell(of, "makes numbers that wrap around")
            return NUMBER
        if name in known.BOXES:
            return self._box(node, frozenset().union(*map(self._each, given), NOTHING))
        if name in known.NEW:
            new = self._made(node)
            if KERNEL in every:  # a variable of a module
                self._launched.add(new)
            return frozenset([new])
        if name in known.COPIES:
            tags = {t for t in self._flat(every) if _is_array(t)}
            return frozenset(tags | {self._made(node)}) if not tags else frozenset(tags)
        if name in known.KERNELS:
            self._text_of(node, every)
            if SIZE in self._flat(every):
                self._tell(of, "gets a text that is made for a size")
            return frozenset([KERNEL])
        if name in known.TABLES or (name in known.TORCH and self._torch):
            return self._arithmetic(node, every)
        if known.is_in(name, known.PURE):
            return of_sizes.converted(name, self._pure(node, every))
        if name == "collections.namedtuple":
            return frozenset([("class", name)])
        if name.startswith(known.LAYERS) and self._torch:
            return frozenset([LAYER])
        self._tell(of, "is not known")
        return NUMBER

    def _pure(self, node: ast.AST, every: Value) -> Value:
        if DATA in every or self._live(every):
            self._tell(node, "computes with the contents of an array")
        return _numbers(every)

    def _made(self, node: ast.AST) -> Tag:
        tag: Tag = ("array", id(node))
        if self._scope == MODULE:
            self._lasting.add(tag)
        return tag

    def _method(
        self,
        of: Tag,
        name: str,
        node: ast.AST,
        given: Sequence[Value],
        every: Value,
    ) -> Value:
        if of == KERNEL:
            if name in ("get_function", "get_global", "launch", "compile"):
                launches = name == "launch" or any(map(_is_array, self._flat(every)))
                return self._launch(node, every) if launches else frozenset([KERNEL])
            return self._launch(node, every) | {INPUT}  # a function of an extension
        if _is_array(of):
            return self._array_method(of, name, node, every)
        if _is(of, "box"):
            return self._box_method(of, name, node, given, every)
        if DATA in every or self._live(every):
            self._tell(node, "computes with the contents of an array")
        sized = SIZE in every or (of == SIZE and name not in known.SIZES)
        if sized and name not in known.TEXTS | known.SIZES:
            self._tell(node, "is no arithmetic of sizes that is known")
        elif name not in known.PLAIN_METHODS | known.SIZES:
            self._tell(node, "is not known")
        return _numbers(every | {of})

    def _array_method(self, of: Tag, name: str, node: ast.AST, every: Value) -> Value:
        if name in known.MOVES:
            if name in ("fill", "fill_", "copy_") and {DATA, KEPT} & every:
                self._tell(node, "writes a number that it has read")
            return frozenset([of])
        if name == "item":
            return frozenset([DATA])
        if name in known.NEW_OF:
            return frozenset([self._made(node)])
        if name in known.COUNTED:
            return self._arithmetic(node, frozenset([of]) | every)
        self._tell(node, "is not known")
        return NUMBER

    def _box_method(
        self, of: Tag, name: str, node: ast.AST, given: Sequence[Value], every: Value
    ) -> Value:
        assert isinstance(of, tuple)
        inner = frozenset(self._inside.get(of[1], set()))
        lasts = of[1] in self._lasting
        if name in ("get", "setdefault"):
            key = given[0] if given else NUMBER
            if name == "setdefault":
                self._store_item(of, key, every, node)  # type: ignore[arg-type]
            elif of[1] not in self._changed:
                self._tell(node, "is a table that was not gone through")
            elif {DATA} & key or self._live(key):
                self._tell(node, "decides by the contents of an array")
            return frozenset(self._read(inner, of[1])) | every
        if name in ("items", "values", "keys", "copy", "index", "count"):
            return frozenset([of])
        if name in ("append", "extend", "add", "insert", "update") and not lasts:
            self._inside.setdefault(of[1], set()).update(every)
            return NUMBER
        self._tell(node, "changes what it keeps" if lasts else "is not known")
        return frozenset(self._each(frozenset([of])))


def _registers(node: ast.Call) -> bool:
    """Whether a call gives a module a buffer or a weight, by a name that is written."""
    named = isinstance(node.func, ast.Attribute) and node.func.attr in (
        "register_buffer",
        "register_parameter",
    )
    return named and len(node.args) == 2 and isinstance(node.args[0], ast.Constant)


def _numbers(value: Iterable[Tag]) -> Value:
    """A number that comes from others."""
    return NUMBER | (frozenset(value) & {SIZE, PART, KEPT})


def _is(tag: Tag, kind: str) -> bool:
    return isinstance(tag, tuple) and tag[0] == kind


def _is_array(tag: Tag) -> bool:
    return isinstance(tag, tuple) and tag[0] == "array"


def _is_error(name: str) -> bool:
    found = getattr(builtins, name.removeprefix("builtins."), None)
    return isinstance(found, type) and issubclass(found, BaseException)


def _word(tag: Tag) -> str:
    return str(tag[0])


def _has_slice(node: ast.AST) -> bool:
    targets = getattr(node, "targets", [])
    parts = [getattr(each, "slice", None) for each in targets]
    return any(isinstance(each, ast.Slice | ast.Tuple) for each in parts)


def _loaded(node: ast.expr) -> ast.expr:
    """The target of an assignment as an expression."""
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        made: ast.expr = ast.Attribute(node.value, node.attr, ast.Load())
    else:
        assert isinstance(node, ast.Subscript)
        made = ast.Subscript(node.value, node.slice, ast.Load())
    return ast.copy_location(made, node)


def _bound_by(node: ast.AST) -> list[str]:
    """The names that a part of a tree gives a value."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    found = [getattr(node, each, None) for each in ("arg", "name")]
    return [each for each in found if isinstance(each, str)]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [str(node.module)] if isinstance(node, ast.ImportFrom) else []
