"""The rules: one row for each kind of mistake that is reported.

A row has all that is known about a rule: its name, how severe it is, what it means, how
a report calls the other place, and what repairs it.  The check of PTX texts, the units,
the race detectors, the reports, SARIF and the tables in the documentation read it here.
Nothing else spells the name of a rule, so a name that does not exist is an error for
the type checker.  Users see names: ``Problem.rule`` is a string.

Some faults have a kind that is more exact than a rule, such as ``out-of-bounds``.  It
is the ``kind`` of a ``KernelFault``; among problems such a fault counts as its rule.
"""

from __future__ import annotations

from dataclasses import KW_ONLY

from fragmenta.base.arrays.lazy_dataclass import dataclass

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)

ATOMIC, FENCED = "an atomic operation", "a fence and an atomic flag"
"""Words of repairs that programming languages have their own words for."""
_TOGETHER = (
    "Let all threads of the warp, or warpgroup, execute it, with the same operands."
)

_ROWS: dict[str, Rule] = {}


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule: a row of this module."""

    name: str
    severity: str
    """The severity of its problems, if nothing else is said where they are found."""
    meaning: str
    """What a program that breaks it does."""
    _: KW_ONLY
    launch: bool = False
    """Whether a launch finds it; otherwise only the check of the text does."""
    documented: bool = True
    """Whether it has a page, if a launch finds it."""
    exception: str = ""
    """When its problems have another severity, for the documentation."""
    other: str = "the other place"
    """What the other place of a problem is called."""
    before: str = ""
    """What the earlier of two accesses did, and what is missing between the two."""
    repair: str = ""
    """What repairs it, for all kinds of accesses."""
    fatal: str = ""
    """What repairs it if the kernel cannot go on."""
    race: bool = False
    """Whether it is about two accesses of memory in the wrong order, or in none."""
    symmetric: bool = False
    """Whether the two accesses are one problem in either order."""
    stops: bool = False
    """Whether the kernel always ends with it."""
    consequence: bool = False
    """Whether a race, a missing wait or a misused mbarrier may lead to it."""
    part_of: Rule | None = None
    """The rule that a kind of fault counts as."""

    def __post_init__(self) -> None:
        assert self.name not in _ROWS, f"there are two rows for {self.name}"
        _ROWS[self.name] = self

    @property
    def reported(self) -> Rule:
        """The rule itself, or the one that a kind of fault counts as."""
        return self.part_of or self

    @property
    def page(self) -> str:
        """Its page, from the root of the project; nothing if it has none.

        >>> SHARED_RACE.page
        'docs/hazards/shared-race.md'
        """
        found = self.launch and self.documented
        return f"docs/hazards/{self.name}.md" if found else ""

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return named, (self.name,)  # a row stays one object

    def __deepcopy__(self, _: object) -> Rule:
        return self


def named(name: str) -> Rule:
    """The row of a rule, or of a kind of fault.

    >>> named("leak") is LEAK
    True
    """
    return _ROWS[name]


def of_fault(kind: str) -> Rule:
    """The rule that a fault counts as, by its kind.

    >>> print(of_fault("deadlock"), of_fault("metadata"), of_fault("trap"))
    deadlock illegal-metadata fault
    """
    return _ROWS.get(kind, FAULT).reported


# ── what a look at the text shows ───────────────────────────────────────────

SYNTAX = Rule(
    "syntax",
    ERROR,
    "The text is not PTX.",
)
UNKNOWN_OPCODE = Rule(
    "unknown-opcode",
    ERROR,
    "There is no such instruction.",
)
UNKNOWN_MODIFIER = Rule(
    "unknown-modifier",
    ERROR,
    "The instruction has no such modifier.",
)
NOT_COVERED = Rule(
    "not-covered",
    WARNING,
    "The instruction exists, and is neither checked nor run here.",
)
MODIFIERS = Rule(
    "modifiers",
    ERROR,
    "These modifiers do not go together, or one of them is missing.",
)
MODIFIER_ORDER = Rule(
    "modifier-order",
    INFO,
    "The modifiers stand in another order than in the manual.",
)
OPERAND_COUNT = Rule(
    "operand-count",
    ERROR,
    "There are too many or too few operands.",
)
OPERAND = Rule(
    "operand",
    ERROR,
    "An operand is not what the instruction takes.",
)
REGISTER = Rule(
    "register",
    ERROR,
    "A register has the wrong type or width.",
)
CONSTANT = Rule(
    "constant",
    ERROR,
    "A constant is out of range, or not of the type of the instruction.",
)
STATE_SPACE = Rule(
    "state-space",
    ERROR,
    "A variable is in another state space than the instruction says.",
    launch=True,
    documented=False,
    exception="warning in a launch: shared memory, named in the other form",
)
UNDECLARED = Rule(
    "undeclared",
    ERROR,
    "A register or a name is not declared.",
)
LABEL = Rule(
    "label",
    ERROR,
    "A branch goes to a label that does not exist.",
)
VERSION = Rule(
    "version",
    ERROR,
    "The instruction needs a newer PTX version than the file has.",
)
TARGET = Rule(
    "target",
    ERROR,
    "The target does not have the instruction.",
)
TENSOR = Rule(
    "tensor",
    ERROR,
    "A Tensor Core instruction does not exist, or its operands do not fit.",
)
CTA_GROUP = Rule(
    "cta-group",
    ERROR,
    "One function has tcgen05 of single CTAs and of pairs.",
)
DEPRECATED = Rule(
    "deprecated",
    WARNING,
    "The instruction is deprecated.",
)
UNSUPPORTED = Rule(
    "unsupported",
    WARNING,
    "A GPU may do it, but fragmenta does not.",
)
EXPANDED = Rule(
    "expanded",
    INFO,
    "The assembler replaces the instruction by others on this target.",
)
UNINITIALISED = Rule(
    "uninitialised",
    WARNING,
    "A register or memory is read before it is written.",
    launch=True,
    exception="error for `ptx.empty`",
    other="the store",
    repair="Write it first, or do not read it.",
    consequence=True,
)
ALIGNED = Rule(
    "aligned",
    WARNING,
    "Not all threads of the warp can run the instruction together.",
)
SHARED_MEMORY = Rule(
    "shared-memory",
    ERROR,
    "A kernel has more shared memory than the target allows.",
)

# ── what only a launch shows ────────────────────────────────────────────────

SHARED_RACE = Rule(
    "shared-race",
    ERROR,
    "Nothing orders two accesses of one place in shared memory.",
    launch=True,
    other="the other access",
    before="{other} {verb} it, and nothing orders the two",
    repair="Let a barrier come between the two.",
    fatal="Let no block of a cluster end before the others are done with its shared "
    "memory: a barrier of the cluster before the end.",
    race=True,
    symmetric=True,
)
GLOBAL_RACE = Rule(
    "global-race",
    ERROR,
    "Nothing orders two accesses of one place in global memory.",
    launch=True,
    other="the other access",
    before="{other} {verb} it, and nothing orders the two",
    repair=f"If both add to it, use {ATOMIC}. Otherwise let one release and the other "
    f"acquire, with {FENCED}, or use two launches.",
    race=True,
    symmetric=True,
)
READ_BEFORE_ARRIVAL = Rule(
    "read-before-arrival",
    ERROR,
    "What an asynchronous copy writes is read too early.",
    launch=True,
    other="the copy",
    before="{other} fills it and need not be complete",
    race=True,
)
OVERWRITE_WHILE_READ = Rule(
    "overwrite-while-read",
    ERROR,
    "Something is overwritten that may still be read.",
    launch=True,
    other="the read",
    before="{other} may still read it",
    race=True,
)
MISSING_PROXY_FENCE = Rule(
    "missing-proxy-fence",
    ERROR,
    "The async proxy may not see what threads have written.",
    launch=True,
    exception="warning for global memory",
    other="the write",
    before="{other} wrote it through the generic proxy, and no fence.proxy.async is "
    "between that and {user}",
)
WGMMA_REGISTERS_IN_FLIGHT = Rule(
    "wgmma-registers-in-flight",
    WARNING,
    "A register of a wgmma that still runs is touched.",
    launch=True,
    exception="error for metadata",
    other="that wgmma",
    repair="Execute wgmma.wait_group for that wgmma before the instruction.",
)
MISSING_WGMMA_FENCE = Rule(
    "missing-wgmma-fence",
    WARNING,
    "Nothing orders registers before the wgmma that takes them.",
    launch=True,
    other="the other wgmma",
    repair="Execute wgmma.fence before the wgmma.",
)
MBARRIER = Rule(
    "mbarrier",
    ERROR,
    "An mbarrier is used as it must not be.",
    launch=True,
    exception="information if only mbarrier.inval is missing",
    other="its mbarrier.init",
    before="an mbarrier is there, which only instructions for mbarriers may access",
)
DEADLOCK = Rule(
    "deadlock",
    ERROR,
    "All threads wait, and nothing can wake one of them.",
    launch=True,
    fatal="Let every thread that is expected come to the barrier.",
    stops=True,
    consequence=True,
)
# What ends a deadlock, if more is known about it.
UNBALANCED = (
    "Check that the arrivals and bytes that are expected are those that come, and that "
    "every thread waits for the phase that it means."
)
FRESH = (
    "These wait for each other, and each mbarrier is new. A new mbarrier passes a wait "
    "for parity 1: who waits for an empty stage begins with that parity."
)
OTHER_PARITY = (
    "Did you mean parity {}? A wait for parity {} passes while the phase after that is "
    "under way."
)
OVERTAKEN = (
    "Let the warps meet once per phase (bar.sync), or let only the warp wait that "
    "issues the work."
)
"""About waits by parity that come after a second phase."""
NOBODY_WRITES = (
    "Let the thread that is to write it do so before it ends or waits itself, and let "
    "nobody overwrite the value before all who wait for it have seen it."
)
"""About a word that threads spin on, and that nobody changes any more."""
NO_END = (
    "Nobody waits for another: the loop has no end, as nothing that decides whether it "
    "goes on changes."
)
"""About loops that ask for no word of memory."""
DOES_NOT_FIT = (
    "Blocks that wait for others have to be on the GPU at the same time as these. "
    "Launch no more blocks than fit, as a cooperative launch does, or let no block "
    "wait for a later one."
)
ONE_ORDER = (
    "Let everybody who takes several locks take them in the same order, and give all "
    "of them back."
)
BARRIER_COLLISION = Rule(
    "barrier-collision",
    ERROR,
    "Two groups of warps use one barrier at the same time.",
    launch=True,
    exception="warning for warps that meet at different `__syncthreads()`",
    other="the other arrival",
    repair="Give each group of warps a barrier of its own, or let the groups meet in "
    "between.",
)
DIVERGENT_ALIGNED = Rule(
    "divergent-aligned",
    ERROR,
    "Not all threads run an .aligned instruction together.",
    launch=True,
    exception="information for threads that returned",
    repair=_TOGETHER,
    fatal=_TOGETHER,
)
MEMBERMASK = Rule(
    "membermask",
    ERROR,
    "A membermask does not name the lanes that exchange values.",
    launch=True,
    exception="fault if a lane does not name itself; warning for the value of a lane "
    "that takes no part",
    repair="Name every lane that executes it, and only those.",
    fatal="Name every lane that executes it, and only those.",
)
BAD_DESCRIPTOR = Rule(
    "bad-descriptor",
    ERROR,
    "A product is given a descriptor that it cannot use.",
    launch=True,
    stops=True,
    consequence=True,
)
LAYOUT_MISMATCH = Rule(
    "layout-mismatch",
    ERROR,
    "A tile is read in another layout than it was copied in.",
    launch=True,
    exception="warning if no layout explains a descriptor",
    other="the copy",
)
TENSOR_MEMORY = Rule(
    "tensor-memory",
    ERROR,
    "Tensor memory is allocated or used as it must not be.",
    launch=True,
    exception="fault if it cannot be done",
)
TENSOR_MEMORY_RACE = Rule(
    "tensor-memory-race",
    ERROR,
    "Nothing orders two accesses of one place in tensor memory.",
    launch=True,
    exception="warning with `strict`",
    other="the other access",
    race=True,
    symmetric=True,
)
TENSOR_REGISTERS_IN_FLIGHT = Rule(
    "tensor-registers-in-flight",
    WARNING,
    "A register is used that a tcgen05.ld still fills.",
    launch=True,
    exception="only with `strict`",
    other="that tcgen05.ld",
    repair="Execute tcgen05.wait::ld before the instruction.",
)
MISSING_TENSOR_FENCE = Rule(
    "missing-tensor-fence",
    WARNING,
    "A barrier orders tcgen05 only with its own fences.",
    launch=True,
    exception="in a kernel without any, only with `strict`",
    other="the other access",
    repair="Execute tcgen05.fence::before_thread_sync before the barrier, and "
    "tcgen05.fence::after_thread_sync after it.",
)
ILLEGAL_METADATA = Rule(
    "illegal-metadata",
    ERROR,
    "The metadata of a sparse product has an illegal code.",
    launch=True,
    stops=True,
    consequence=True,
)
BAD_TENSOR_MAP = Rule(
    "bad-tensor-map",
    ERROR,
    "A copy is given a tensor map that it cannot use.",
    launch=True,
    stops=True,
)
LEAK = Rule(
    "leak",
    ERROR,
    "The kernel ends, and nobody has waited for asynchronous work.",
    launch=True,
    exception="warning for `cp.async`",
    repair="Wait for it before the kernel ends.",
    consequence=True,
)
BANK_CONFLICT = Rule(
    "bank-conflict",
    INFO,
    "An access of shared memory takes more passes than it needs.",
    launch=True,
)
UNWATCHED = Rule(
    "unwatched",
    INFO,
    "A part of the launch was not watched.",
    launch=True,
    documented=False,
)
FREED = Rule(
    "freed",
    ERROR,
    "A program frees memory twice, or copies memory that it has freed.",
    launch=True,
    documented=False,
    repair="Free it once, and after its last use.",
)
COPIED_PAST_END = Rule(
    "copied-past-end",
    WARNING,
    "A program copies more bytes than an allocation has.",
    launch=True,
    documented=False,
    repair="Copy no more bytes than were allocated; sizes count bytes, not elements.",
)
COPIED_WRONG_WAY = Rule(
    "copied-wrong-way",
    WARNING,
    "The direction of a copy is not that of its addresses.",
    launch=True,
    documented=False,
    repair="Name the direction that the copy has, or cudaMemcpyDefault.",
)
REFUSED_LAUNCH = Rule(
    "refused-launch",
    ERROR,
    "CUDA refuses a launch, and the program does not ask for the error.",
    launch=True,
    documented=False,
    repair="Look at cudaGetLastError() after the launch.",
)
FAULT = Rule(
    "fault",
    ERROR,
    "The kernel does what it must not do, and cannot go on.",
    launch=True,
    documented=False,
    stops=True,
    consequence=True,
)
SCHEDULE = Rule(
    "schedule",
    ERROR,
    "The result depends on when asynchronous work is done.",
    launch=True,
    documented=False,
    repair="A problem of these lines, or a result that depends on chance.",
    consequence=True,
)

# ── what numerics shows ─────────────────────────────────────────────────────

NAN = Rule(
    "nan",
    ERROR,
    "A NaN is born, or comes from an input, and reaches an output.",
    launch=True,
    documented=False,
    exception="info if it reaches no array",
)
INFINITY = Rule(
    "infinity",
    WARNING,
    "A number becomes infinite.",
    launch=True,
    documented=False,
    exception="info if it reaches no array",
)
OUTPUT_ERROR = Rule(
    "output-error",
    WARNING,
    "An output is further from the exact result than its type explains.",
    launch=True,
    documented=False,
    exception="error if a tenth or more is wrong",
)
CANCELLATION = Rule(
    "cancellation",
    WARNING,
    "A difference of numbers with errors has few right bits, or none.",
    launch=True,
    documented=False,
)
ABSORPTION = Rule(
    "absorption",
    INFO,
    "Addends are so small that a sum does not change.",
    launch=True,
    documented=False,
    exception="warning if most of the error of an output comes from it",
)
SATURATION = Rule(
    "saturation",
    WARNING,
    "Numbers are cut to the largest one of a format.",
    launch=True,
    documented=False,
)
UNDERFLOW = Rule(
    "underflow",
    INFO,
    "Numbers are so small that they become zero.",
    launch=True,
    documented=False,
)
OTHER_BRANCH = Rule(
    "other-branch",
    WARNING,
    "A comparison, a choice or a conversion to an integer depends on rounding.",
    launch=True,
    documented=False,
)
UNROUNDED = Rule(
    "unrounded",
    WARNING,
    "Numbers that are quantised are cut toward zero, and not rounded.",
    launch=True,
    documented=False,
)
CLIPPED = Rule(
    "clipped",
    WARNING,
    "A range of a few bits cuts off many of the numbers that are quantised.",
    launch=True,
    documented=False,
)
WRAPPED = Rule(
    "wrapped",
    WARNING,
    "A sum of bytes is kept in a byte, where it wraps, and goes on as a number.",
    launch=True,
    documented=False,
)
LOST_EXACT = Rule(
    "lost-exact",
    INFO,
    "Bits of a float are changed so that its exact value cannot be followed.",
    launch=True,
    documented=False,
)

# ── kinds of faults ─────────────────────────────────────────────────────────

OUT_OF_BOUNDS = Rule("out-of-bounds", ERROR, "A copy leaves its memory.", part_of=FAULT)
OTHER_BLOCK = Rule(
    "other-block", ERROR, "A copy uses a block that it must not use.", part_of=FAULT
)
READ_ONLY = Rule(
    "read-only", ERROR, "A copy writes to memory that is only read.", part_of=FAULT
)
MISALIGNED = Rule(
    "misaligned",
    ERROR,
    "An address of a copy is not a multiple of its unit.",
    part_of=FAULT,
)
BAD_MASK = Rule(
    "bad-mask",
    ERROR,
    "A copy goes to blocks that the cluster does not have.",
    part_of=FAULT,
)
BAD_SIZE = Rule(
    "bad-size", ERROR, "A copy has a size that no copy can have.", part_of=FAULT
)
BAD_OPERANDS = Rule(
    "bad-operands", ERROR, "A copy is given operands that do not fit.", part_of=FAULT
)
BAD_COPY = Rule("bad-copy", ERROR, "A copy does not fit its tensor map.", part_of=FAULT)
METADATA = Rule(
    "metadata", ERROR, "A sparse mma has illegal metadata.", part_of=ILLEGAL_METADATA
)
BARRIER = Rule(
    "barrier", ERROR, "A barrier is used as it must not be.", part_of=MBARRIER
)

RULES = {name: rule for name, rule in _ROWS.items() if rule.part_of is None}
"""All rules by their names.  Kinds of faults are not among them."""
