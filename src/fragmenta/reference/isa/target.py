"""Targets, and the PTX version from which on each exists.

A target is the name in a ``.target`` directive, such as ``sm_90``, ``sm_90a`` or
``sm_120f``.  The row of an instruction in a table names its targets in a short form:

``sm_80+``
    the targets with this number or a higher one, with any suffix;
``sm_90..110``
    the targets with numbers from 90 to 110, with any suffix;
``120a/f``, which is shown as ``sm_120a/f sm_121a/f``
    the targets of architecture family 12.x with suffix ``a`` or ``f``;
``sm_90a``, ``sm_121a``
    only this target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, UnsupportedTarget, nearest, one_of, shortened

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction


class Version(NamedTuple):
    """A PTX version, such as 8.5; versions compare by number, so 8.5 < 8.10."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``8.5``.

        >>> Version.parse("8.5") < Version.parse("8.10")
        True
        """
        major, dot, minor = str(text).partition(".")
        numbers = (major, minor)
        if not (dot and all(each.isdecimal() and len(each) < 5 for each in numbers)):
            given = shortened(str(text))
            raise BadCall(f"a PTX version is written as 8.5; given {given}")
        return cls(int(major), int(minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


_SINCE = """
sm_70 6.0    sm_72 6.1    sm_75 6.3
sm_80 7.0    sm_86 7.1    sm_87 7.4    sm_88 9.0    sm_89 7.8
sm_90 7.8    sm_90a 8.0
sm_100 8.6   sm_100a 8.6  sm_100f 8.8
sm_103 8.8   sm_103a 8.8  sm_103f 8.8
sm_107 9.4   sm_107a 9.4  sm_107f 9.4
sm_110 9.0   sm_110a 9.0  sm_110f 9.0
sm_120 8.7   sm_120a 8.7  sm_120f 8.8
sm_121 8.8   sm_121a 8.8  sm_121f 8.8
"""

#: Every target, with the first PTX version that has it.
TARGETS: dict[str, Version] = {
    name: Version.parse(version)
    for name, version in re.findall(r"(sm_\w+) (\S+)", _SINCE)
}

#: Targets that have another name now.
RENAMED = {"sm_101": "sm_110", "sm_101a": "sm_110a", "sm_101f": "sm_110f"}

_PREFERRED = "sm_90a"
"""The default target: its arithmetic was measured."""

#: The numbers of the targets; a suffix ``a`` or ``f`` changes no arithmetic.
ARCHITECTURES = tuple(dict.fromkeys(int(name[3:].rstrip("af")) for name in TARGETS))


@dataclass(frozen=True)
class Requirement:
    """What an instruction needs: a PTX version, and one of these targets."""

    ptx: Version
    targets: tuple[str, ...]
    text: str

    def ptx_on(self, target: str) -> Version:
        """The first PTX version that has the instruction on this target."""
        return max(self.ptx, TARGETS[check_target(target)])

    def __str__(self) -> str:
        return f"PTX {self.ptx}, {self.text}"


# Architectures and GPUs, as people say them.
_SAID = """
volta                            | sm_70..72
v100                             | sm_70
xavier                           | sm_72
turing t4                        | sm_75
ampere                           | sm_80..88
a100 a30                         | sm_80
a10 a40 rtx3090                  | sm_86
orin                             | sm_87
ada lovelace l4 l40 l40s rtx4090 | sm_89
hopper h100 h200 gh200           | sm_90..90
blackwell                        | sm_100..103 sm_110+
b200 gb200                       | sm_100..100
b300 gb300                       | sm_103..103
thor                             | sm_110..110
rtx5090                          | sm_120..120
gb10                             | sm_121..121
"""


@cache
def targets_by_word() -> dict[str, tuple[str, ...]]:
    """The targets of each word that people say.

    >>> targets_by_word()["hopper"]
    ('sm_90', 'sm_90a')
    """
    rows = (row.split("|") for row in _SAID.strip().splitlines())
    return {word: expand(have) for words, have in rows for word in words.split()}


def most_capable(targets: Iterable[str]) -> tuple[str, ...]:
    """One target of each architecture: that with most instructions.

    >>> most_capable(["sm_90", "sm_90a", "sm_89"])
    ('sm_90a', 'sm_89')
    """
    best: dict[int, str] = {}
    for each in targets:
        which = _number_suffix(each)[0]
        if which not in best or each.endswith("a"):
            best[which] = each
    return tuple(best.values())


def check_target(target: str) -> str:
    """The target that a name or a word means; what is unknown is refused.

    >>> check_target("sm_90a"), check_target("A100"), check_target("hopper")
    ('sm_90a', 'sm_80', 'sm_90a')
    >>> check_target("ampere")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: ampere is sm_80, sm_86, sm_87 or sm_88; name \
one of them
    """
    word = target.strip().lower() if isinstance(target, str) else ""
    if word not in targets_by_word():
        return check_target_name(target)
    found = most_capable(targets_by_word()[word])
    if len(found) > 1:
        raise UnsupportedTarget(f"{target} is {one_of(found)}; name one of them")
    return found[0]


def check_target_name(target: str) -> str:
    """The name of a target, as PTX has it; an unknown name is refused.

    >>> check_target_name("sm_91")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: no target sm_91 (did you mean sm_90?); \
the targets are sm_70, sm_72, sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, sm_90, \
sm_90a, sm_100, sm_100a, sm_100f, sm_103, sm_103a, sm_103f, sm_107, sm_107a, \
sm_107f, sm_110, sm_110a, sm_110f, sm_120, sm_120a, sm_120f, sm_121, sm_121a \
and sm_121f
    """
    if not isinstance(target, str):
        raise UnsupportedTarget(
            f"a target is a text such as 'sm_90a'; given {target!r}"
        )
    if target in TARGETS:
        return target
    if target in RENAMED:
        raise UnsupportedTarget(
            f"{target} is {RENAMED[target]} since PTX 9.0, which renamed it"
        )
    if target.lower() in targets_by_word():
        meant = one_of(targets_by_word()[target.lower()])
        raise UnsupportedTarget(f"{target} is {meant}; PTX names one of these")
    raise UnsupportedTarget(
        f"no target {target}{nearest(str(target), TARGETS)}; "
        f"the targets are {one_of(TARGETS, 'and')}"
    )


def chosen_target(op: Instruction, target: str | None) -> str:
    """The target to compute for; one without the instruction is refused.

    >>> import fragmenta as fm
    >>> chosen_target(fm.mma("m16n8k16", a="f16", d="f32"), None)
    'sm_90a'
    >>> chosen_target(fm.mma("m16n8k16", a="f16", d="f32"), "sm_75")
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: \
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 needs PTX 7.0, sm_80+; given sm_75
    """
    if target is None:
        have = op.requires.targets
        return _PREFERRED if _PREFERRED in have else have[0]
    found = check_target(target)
    if not op.supported_on(found):
        raise UnsupportedTarget(f"{op} needs {op.requires}; given {target}")
    return found


def number(target: str) -> int:
    """The number of a target, without its suffix.

    >>> number("sm_100f")
    100
    """
    return _number_suffix(check_target(target))[0]


@cache
def shown(text: str) -> str:
    """The short form of a table as people read it: a family with all its members.

    >>> shown("sm_90a 120a/f"), shown("sm_80+")
    ('sm_90a sm_120a/f sm_121a/f', 'sm_80+')
    """
    return " ".join(_members(word) for word in text.split())


def _members(word: str) -> str:
    """A word of a table; of a family, each member with both suffixes."""
    if not word.endswith("a/f"):
        return word
    numbers = dict.fromkeys(_number_suffix(name)[0] for name in _word(word))
    return " ".join(f"sm_{each}a/f" for each in numbers)


@cache
def expand(text: str) -> tuple[str, ...]:
    """The targets that the short form of a table names.

    >>> expand("120a/f")
    ('sm_120a', 'sm_120f', 'sm_121a', 'sm_121f')
    >>> expand("sm_110+")[:4]
    ('sm_110', 'sm_110a', 'sm_110f', 'sm_120')
    """
    named = {name for word in text.split() for name in _word(word)}
    return tuple(name for name in TARGETS if name in named)


def _word(word: str) -> Iterable[str]:
    if word.endswith("+"):
        least = _number_suffix(word[:-1])[0]
        return [name for name in TARGETS if _number_suffix(name)[0] >= least]
    if ".." in word:
        least, most = (int(text) for text in word.removeprefix("sm_").split(".."))
        return [name for name in TARGETS if least <= _number_suffix(name)[0] <= most]
    if word.endswith("a/f"):
        family = int(word[:-3].removeprefix("sm_")) // 10
        return [
            name
            for name in TARGETS
            if _number_suffix(name)[0] // 10 == family and name[-1] in "af"
        ]
    return [check_target_name(word)]


def _number_suffix(target: str) -> tuple[int, str]:
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        raise UnsupportedTarget(f"{target} is not a target such as sm_90a")
    return int(match[1]), match[2]
