"""The registers and constants that an operand of a type may be.

The manual's rules, as ptxas applies them: a register fits if it has the size of the
type and its kind; ``.b`` fits every kind.  ``ld``, ``st`` and ``cvt`` take wider
registers.
"""

from __future__ import annotations

from functools import cache

from fragmenta.ptx.module import Immediate, Special, type_bytes


def kind(name: str) -> str:
    """``b``, ``i`` (an integer), ``f``, ``pred``, or ``packed`` for all others.

    >>> [kind(each) for each in ("b32", "s64", "f16", "bf16x2", "f16x2", "u16x2")]
    ['b', 'i', 'f', 'packed', 'f', 'i']
    """
    if name == "pred":
        return "pred"
    if name[0] in "us" and name[1:2].isdecimal() and not name.startswith("s2f6"):
        return "i"
    if name[0] == "b" and name[1:].isdecimal():
        return "b"
    return "f" if name in ("f16", "f32", "f64", "f16x2") else "packed"


def size(name: str) -> int:
    """The bytes of a register that holds a type.

    >>> size("e4m3x2"), size("e2m1x2"), size("f16x2"), size("ue8m0x2")
    (2, 1, 4, 2)
    """
    if (name[0] in "eu" and "m" in name) or name.startswith("s2f6"):
        small, _, times = name.partition("x")
        bits = 4 if small == "e2m1" else 8
        return max(1, bits * int(times or 1) // 8)
    return type_bytes(name)


@cache
def fits(register: str, of: str, wider: bool = False, vector: bool = False) -> bool:
    """Whether a register of a type can be an operand of a type.

    >>> fits("f32", "s32"), fits("b32", "f32"), fits("f32", "b32"), fits("s32", "u32")
    (False, True, True, True)
    >>> fits("b64", "u16"), fits("b64", "u16", wider=True)
    (False, True)
    """
    if not register or not of:  # not declared, or not known: any type is accepted
        return True
    have, want = kind(register), kind(of)
    if "pred" in (have, want):
        return have == want
    have_bytes, want_bytes = size(register), size(of)
    if have_bytes != want_bytes:
        if not wider or have_bytes < want_bytes or want == "packed":
            return False
        if want == "f":
            return have == "b"
    if have == "b" or want == "b":
        return True
    if want == "packed":
        return False
    if want == "i":
        return register == "f16x2" or (have == "i" and "x" not in of)
    return register == of or (vector and have == "i")


@cache
def constant_fits(form: str, of: str) -> bool:
    """Whether a constant (``int``, ``f32`` or ``f64``) can be an operand of a type.

    >>> constant_fits("int", "f32"), constant_fits("f64", "f32")
    (False, True)
    >>> constant_fits("f32", "b32"), constant_fits("f32", "s32")
    (True, False)
    """
    want = kind(of) if of else ""
    if form == "int":
        return want in ("b", "i", "pred", "")
    return of in ("f32", "f64", "") or of == form.replace("f", "b")


def is_address(register: str) -> bool:
    """Whether a register of a type can hold an address.

    >>> is_address("u64"), is_address("f64"), is_address("b128")
    (True, False, False)
    """
    return not register or (kind(register) in ("b", "i") and register != "b128")


def described(operand: Immediate) -> str:
    """What a constant is called in a message."""
    return (
        "an integer constant" if operand.form == "int" else "a floating-point constant"
    )


#: The special registers that do not have 32 bits.
_SPECIAL = {
    "%clock64": "u64",
    "%globaltimer": "u64",
    "%gridid": "u64",
    "%current_graph_exec": "u64",
    "%is_explicit_cluster": "pred",
}


def special_type(operand: Special) -> str:
    """The type of a special register.

    >>> special_type(Special("%tid.x")), special_type(Special("%clock64"))
    ('u32', 'u64')
    """
    name = operand.name
    if name.startswith("%pm") and name.endswith("_64"):
        return "u64"
    return _SPECIAL.get(name, "u32")
