"""The findings of a judge: the name of each, the word of its verdict, its meaning.

A verdict is one word.  It is that of the first row here that was found, and ``clean``
if nothing was.  A finding that leads to ``clean`` is a remark.
"""

from __future__ import annotations

from typing import NamedTuple

CLEAN, WRONG, HAZARD, SUSPICIOUS, INCOMPLETE, ERROR = (
    "clean",
    "wrong",
    "hazard",
    "suspicious",
    "incomplete",
    "error",
)
WORDS = (ERROR, WRONG, HAZARD, SUSPICIOUS, INCOMPLETE, CLEAN)
"""The words of a verdict; of several findings, the first word here counts."""


class FindingKind(NamedTuple):
    """A kind of finding."""

    name: str
    word: str
    means: str


_TABLE = (
    # error: there is nothing to judge
    ("no-reference", ERROR, "the reference fails: nothing is said of the candidate"),
    ("not-loaded", ERROR, "the candidate cannot be loaded"),
    ("failed", ERROR, "a call of the candidate raised an exception"),
    ("crashed", ERROR, "the process of the candidate ended without an answer"),
    # wrong: results differ from the reference
    ("wrong-form", WRONG, "an output has another shape or type, or there are others"),
    ("zeros", WRONG, "an output is zero everywhere, and should not be"),
    ("constant", WRONG, "an output has one value everywhere, and should have others"),
    ("input-returned", WRONG, "an output is a copy of an input"),
    ("unwritten", WRONG, "a part of an output was never written"),
    ("cached", WRONG, "an output is that of an earlier call, with other inputs"),
    ("ignores-inputs", WRONG, "outputs do not change with the inputs"),
    ("shape-specific", WRONG, "right for the given sizes, wrong for others"),
    ("seed-specific", WRONG, "right for the first seed, wrong for others"),
    ("part-computed", WRONG, "a part of the elements is right, the others are not"),
    ("low-precision", WRONG, "errors are those of a smaller format inside"),
    ("special-values", WRONG, "NaN or infinity is lost, or appears"),
    ("values-specific", WRONG, "right for ordinary values, wrong for others"),
    ("inaccurate", WRONG, "an element is further from the exact value than its bound"),
    ("input-changed", WRONG, "a call changes an input"),
    ("state-kept", WRONG, "the result depends on earlier calls"),
    ("not-repeatable", WRONG, "two calls with the same inputs give other bits"),
    ("schedule", WRONG, "another order of asynchronous work gives other bits"),
    ("late-write", WRONG, "an output still changes after the call has returned"),
    # hazard: the launches have problems
    ("hazard", HAZARD, "a launch has a race, or another hazard"),
    ("fault", HAZARD, "a launch leaves its memory, or does what stops it"),
    # suspicious: the results may be right, but not because of the work
    ("no-launch", SUSPICIOUS, "no kernel was launched"),
    ("library-work", SUSPICIOUS, "operators of the library do the work"),
    (
        "host-work",
        SUSPICIOUS,
        "outputs, or what kernels read, are computed by the host",
    ),
    ("reads-too-little", SUSPICIOUS, "kernels load less than the inputs that matter"),
    ("too-few-products", SUSPICIOUS, "kernels multiply less than the problem needs"),
    ("input-aliased", SUSPICIOUS, "an output shares memory with an input"),
    ("side-stream", SUSPICIOUS, "work on another stream is not waited for"),
    ("patched", SUSPICIOUS, "functions of the judge, the library or the clock changed"),
    ("looks-around", SUSPICIOUS, "it searches the process for objects of others"),
    ("opens-files", SUSPICIOUS, "it opens files"),
    ("leaves-the-process", SUSPICIOUS, "it starts processes, or uses the network"),
    ("raw-memory", SUSPICIOUS, "it reads or writes memory by its address"),
    ("hidden-code", SUSPICIOUS, "it runs code that it makes at run time"),
    ("decides-by-time", SUSPICIOUS, "it compares the time with a fixed number"),
    ("knows-the-judge", SUSPICIOUS, "it asks for modules or variables of the judge"),
    # incomplete: evidence is missing
    ("out-of-time", INCOMPLETE, "the time was over before all cases were tried"),
    ("out-of-memory", INCOMPLETE, "a call needs more memory than it may have"),
    ("shape-refused", INCOMPLETE, "the candidate refuses other sizes than the given"),
    ("data-dependent", INCOMPLETE, "which launches are made depends on the data"),
    ("not-followed", INCOMPLETE, "kernels need data whose origin is not clear"),
    ("size-limited", INCOMPLETE, "right up to the given sizes, not above them"),
    ("size-not-tried", INCOMPLETE, "the given sizes are too large to be tried here"),
    ("extreme-values", INCOMPLETE, "right for ordinary values, not near the limits"),
    ("state-fixed", INCOMPLETE, "right for these weights and scalars, not for others"),
    ("uses-the-clock", INCOMPLETE, "it asks for the time: other times were not tried"),
    ("not-reached", INCOMPLETE, "a part of it never ran in all calls that were tried"),
    ("not-understood", INCOMPLETE, "it does what this judge does not follow"),
    ("not-run", INCOMPLETE, "a part of the candidate cannot be run here"),
    # remarks: what a verdict does not cover
    ("one-way", CLEAN, "a condition of a kernel went the same way in all calls"),
    ("ignores-strides", CLEAN, "right for contiguous inputs only"),
    ("stride-refused", CLEAN, "the candidate refuses inputs with other strides"),
)
KINDS = {name: FindingKind(name, word, means) for name, word, means in _TABLE}
"""All kinds of findings, by name.

>>> KINDS["zeros"].word
'wrong'
"""


class Finding(NamedTuple):
    """Something that a judge found, and the evidence."""

    name: str
    evidence: str
    case: str = ""
    """The inputs that showed it."""

    @property
    def word(self) -> str:
        """The word of the verdict that it leads to."""
        return KINDS[self.name].word


def rank(name: str) -> tuple[int, int]:
    """Where a finding stands: by its word, then by its row.

    >>> rank("failed") < rank("zeros") < rank("hazard") < rank("not-run")
    True
    """
    return WORDS.index(KINDS[name].word), [*KINDS].index(name)
