"""Names for reports: of instructions, addresses and blocks, as users know them.

An instruction is a line of the program it was compiled from, an address a place in a
variable or in an array that was given to the kernel.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.arguments import Elements
from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.layout import SHARED_START
from fragmenta.errors import BadMetadata
from fragmenta.ptx.families import ACCESSES
from fragmenta.ptx.module import Instruction, Module, demangled
from fragmenta.ptx.placement import place_shared

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction as TensorInstruction

_LOCAL = re.compile(r"E(\d+)(\w+)$")
_PARAMETER = re.compile(r"\bargument (\d+) \(([^()]+)\)")
_MBARRIER = re.compile(r"\bthe mbarrier at 0x([0-9a-f]+)")
MOST_LETTERS = 24
"""Of the name of a variable."""


COMPARED = {
    "eq": "equal to",
    "ne": "other than",
    "lt": "less than",
    "le": "at most",
    "gt": "more than",
    "ge": "at least",
}
"""What a value has to be, by the word of a comparison."""


class _Variable(NamedTuple):
    start: int
    end: int
    name: str


class KernelNames:
    """The names in a kernel."""

    def __init__(self, module: Module, compiled: Compiled) -> None:
        self.module, self.compiled = module, compiled

    # ── instructions ────────────────────────────────────────────────────────

    def instruction(self, site: int) -> Instruction | None:
        """The instruction of a site."""
        if not 0 <= site < len(self.compiled.places):
            return None
        function, index = self.compiled.places[site]
        found: Instruction = self.module.functions[function].instructions[index]
        return found

    def at_line(self, line: int) -> Instruction | None:
        """The first instruction in a line of the PTX."""
        for function in self.module.functions.values():
            for each in function.instructions:
                if each.line == line > 0:
                    return each
        return None

    def function(self, site: int) -> str:
        """The function that a site is in."""
        known = 0 <= site < len(self.compiled.places)
        return str(self.compiled.places[site][0]) if known else ""

    def place(self, site: int) -> str:
        """Where an instruction is: a line of the source, or of the PTX."""
        found = self.instruction(site)
        return "an unknown place" if found is None else place(found)

    def mnemonic(self, site: int) -> str:
        """The short name of an instruction."""
        found = self.instruction(site)
        return "an instruction" if found is None else short(found.mnemonic)

    # ── addresses ───────────────────────────────────────────────────────────

    @cached_property
    def _variables(self) -> list[_Variable]:
        """Variables in shared memory, with where they begin and end."""
        module = self.module
        kernel = module.functions[self.compiled.kernel]
        placed = place_shared(module, kernel, SHARED_START)
        places = [
            (module.functions[function].variables[name], start)
            for (function, name), start in placed.inner.items()
        ]
        places += [(module.variables[n], start) for n, start in placed.module.items()]
        found, unsized = [], defaultdict(list)
        for variable, start in places:
            if variable.elements is not None:
                end = start + variable.size
                found.append(_Variable(start, end, plain(variable.name)))
            elif variable.name in placed.dynamic:
                unsized[start].append(plain(variable.name))
        # Several of them begin at one place: it may be any of them.
        found += [_Variable(n, 1 << 24, " or ".join(of)) for n, of in unsized.items()]
        return sorted(found)

    def shared(self, offset: int) -> str:
        """A place in shared memory, as variable and bytes; nothing if it has no name.

        A variable without a size begins where those with one end.
        """
        for each in self._variables:
            if each.start <= offset < each.end:
                more = offset - each.start
                return f"{each.name}+{more:#x}" if more else each.name
        return ""

    def mbarrier(self, offset: int) -> str:
        """An mbarrier, by its name if it has one."""
        name = self.shared(offset)
        where = f"shared {offset:#x}"
        return (
            f"the mbarrier {name} ({where})" if name else f"the mbarrier at {offset:#x}"
        )

    def with_mbarriers(self, text: str) -> str:
        """A text in which mbarriers have their names."""
        return _MBARRIER.sub(lambda found: self.mbarrier(int(found[1], 16)), text)

    def shared_range(self, first: int, last: int) -> str:
        """Bytes of shared memory; ``last`` is the address past them."""
        name, where = self.shared(first), span(first, last, "shared")
        return f"{name} ({where})" if name else where


def span(first: int, last: int, memory: str) -> str:
    """Some bytes, by their first and last address.

    >>> span(0x400, 0x480, "shared")
    'shared 0x400-0x47f'
    """
    return f"{memory} {first:#x}" + (f"-{last - 1:#x}" if last - first > 1 else "")


def array(name: str) -> str:
    """What an array is called: the number and the name of a parameter.

    >>> array("argument 1 (_Z4copyPKjPj_param_1)"), array("table")
    ('argument 1', 'table')
    >>> array("argument 0 (x) and argument 2 (y)")
    'x (argument 0) and y (argument 2)'
    """

    def said(found: re.Match[str]) -> str:
        number, own = found.groups()
        generated = re.search(r"_param_\d+$", own)
        return f"argument {number}" if generated else f"{own} (argument {number})"

    return _PARAMETER.sub(said, name) if _PARAMETER.search(name) else plain(name)


def element(name: str, elements: Elements | None, offset: int) -> str:
    """A place in an array: an element, if it is known which.

    >>> element("argument 1 (x)", Elements(4, (8, 8)), 112)
    'x[3, 4] (argument 1)'
    >>> element("argument 1 (_Z1fPf_param_1)", Elements(4, (64,)), 113)
    'byte 1 of element 28 of argument 1'
    >>> element("argument 1 (x)", None, 112), element("table", None, 4)
    ('byte 112 of x (argument 1)', 'byte 4 of table')
    """
    said = array(name)
    if elements is None or not 0 <= offset < elements.size * prod(elements.shape):
        return f"byte {offset} of {said}"
    index, byte = elements.at(offset)
    inside = f"byte {byte} of " if byte else ""
    numbers = ", ".join(map(str, index))
    one = re.fullmatch(r"([^()]+) (\(argument \d+\))", said)
    if not index:
        return f"{inside}{said}"
    if one is not None:
        return f"{inside}{one[1]}[{numbers}] {one[2]}"
    whole = numbers if len(index) == 1 else f"[{numbers}]"
    return f"{inside}element {whole} of {said}"


def place(instruction: Instruction) -> str:
    """Where an instruction is: a line of the source, or of the PTX."""
    if instruction.source is not None:
        return instruction.source.words
    return f"PTX line {instruction.line}"


def short(mnemonic: str) -> str:
    """A mnemonic without its types and without modifiers that say little.

    >>> short("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")
    'cp.async.bulk'
    >>> short("st.shared.v4.f32"), short("wgmma.mma_async.sp.sync.aligned.m64n8k32")
    ('st.shared', 'wgmma.mma_async.sp')
    >>> short("bar.sync"), short("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    ('bar.sync', 'ldmatrix.sync')
    >>> short("tcgen05.mma.cta_group::1.kind::f16")
    'tcgen05.mma'
    """
    words = mnemonic.split(".")
    first = words[0]
    if first in ACCESSES and "async" not in words:
        spaces = [w for w in words if w.partition("::")[0] in ("shared", "global")]
        return ".".join([first, *spaces[:1]])
    # The table takes a while to import, and only reports need it.
    from fragmenta.ptx.opcodes import TABLE
    from fragmenta.ptx.opcodes.kinds import computes
    from fragmenta.ptx.opcodes.tensor import TENSOR

    if computes(mnemonic) or first not in (*TABLE.lines, *TENSOR):
        return mnemonic
    taken: list[str] = []
    for each in words:
        if len(taken) > 1 and ("::" in each or each in _ENDS):
            break
        taken.append(each)
    return ".".join(taken)


_ENDS = {
    "shared",
    "global",
    "sync",
    "aligned",
    "b64",
    "parity",
    "release",
    "acquire",
    "1d",
    "2d",
    "3d",
    "4d",
    "5d",
    "tile",
    "im2col",
    "relaxed",
    "ca",
    "cg",
}


def plain(name: str) -> str:
    """A name of C++ without the function that it is in.

    >>> plain("_ZZ11stored_tileE4tile"), plain("global_smem"), plain("_ZN3lib5tableE")
    ('tile', 'global_smem', 'lib::table')
    """
    found = _LOCAL.search(name) if name.startswith("_ZZ") else None
    if found is not None and int(found[1]) <= len(found[2]):
        name = found[2][: int(found[1])]
    name = demangled(name)
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def block_words(index: tuple[int, int, int]) -> str:
    """A block of the grid.

    >>> block_words((3, 0, 0))
    'block (3, 0, 0)'
    """
    return f"block ({', '.join(map(str, index))})"


def counted(number: int, word: str) -> str:
    """A number of things.

    >>> counted(1, "arrival"), counted(1200, "byte")
    ('1 arrival', '1,200 bytes')
    """
    return f"{number:,} {word}{'s' * (number != 1)}"


def illegal_code(
    op: TensorInstruction, words: NDArray[np.uint32], selector: int
) -> str:
    """What is wrong with the words of metadata of all lanes.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="s4", sp="sp")
    >>> illegal_code(op, np.full(32, 0x44440444, np.uint32), 0)
    'lane 0, nibble 3 (row 0, chunk 3): code 0000 names pair 0 twice; 15 more \
are illegal'
    """
    try:
        op.metadata.unpack(words.reshape(-1, 1), selector=selector)
    except BadMetadata as error:
        return str(error)
    return "a code is illegal"
