"""A checker for the part of JSON Schema that the project's own schema uses.

A keyword that it does not know is an error, so that nothing is left unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "null": type(None),
}
_ABOUT = {"$schema", "title", "description", "$defs"}


def complaints(value: object, schema: dict, root: dict, where: str = "$") -> Iterator:
    """What is wrong with a value."""
    for keyword, wanted in schema.items():
        if keyword in _ABOUT or keyword == "properties":
            continue
        yield from _CHECKS[keyword](value, wanted, schema, root, where)


def _type(value, wanted, schema, root, where):
    names = [wanted] if isinstance(wanted, str) else wanted
    fits = any(
        isinstance(value, _TYPES[name])
        and not (name == "integer" and isinstance(value, bool))
        for name in names
    )
    if not fits:
        yield f"{where} is {type(value).__name__}, not {wanted}"


def _const(value, wanted, schema, root, where):
    if value != wanted or type(value) is not type(wanted):
        yield f"{where} is {value!r}, not {wanted!r}"


def _required(value, wanted, schema, root, where):
    if isinstance(value, dict):
        yield from (f"{where} has no {name}" for name in wanted if name not in value)


def _items(value, wanted, schema, root, where):
    for number, each in enumerate(value if isinstance(value, list) else ()):
        yield from complaints(each, wanted, root, f"{where}[{number}]")


def _others(value, wanted, schema, root, where):
    known = schema.get("properties", {})
    for name, each in (value if isinstance(value, dict) else {}).items():
        inside = f"{where}.{name}"
        if name in known:
            yield from complaints(each, known[name], root, inside)
        elif wanted is False:
            yield f"{inside} is not in the schema"
        elif wanted is not True:
            yield from complaints(each, wanted, root, inside)


def _any(value, wanted, schema, root, where):
    found = [list(complaints(value, each, root, where)) for each in wanted]
    if all(found):
        yield from min(found, key=len)


def _reference(value, wanted, schema, root, where):
    here = root
    for name in wanted.removeprefix("#/").split("/"):
        here = here[name]
    yield from complaints(value, here, root, where)


_CHECKS = {
    "type": _type,
    "const": _const,
    "required": _required,
    "items": _items,
    "additionalProperties": _others,
    "anyOf": _any,
    "$ref": _reference,
}
