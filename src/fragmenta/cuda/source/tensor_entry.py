"""A PTX kernel that runs one ``tcgen05`` instruction.

All memories are arrays: shared memory is an image in bytes, and tensor memory an image
of 128 lanes x 512 columns, as :meth:`fragmenta.TensorFragment.pack` makes them.  The
kernel fills both, runs the instruction, waits for it, and writes tensor memory
back.  Addresses in tensor memory and descriptors count from the beginning of the
images.  With ``cta_group::2``, a cluster of two blocks has two images of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fragmenta.cuda.source import ptx
from fragmenta.cuda.source.formatting import comment
from fragmenta.cuda.source.kernel import CELLS, WARPGROUP, KernelBuilder, ParameterType
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.registers.tensor_fragment import COLUMNS, LANES

FRAME = 1024
"""Bytes before the image of shared memory: an mbarrier, and what alloc writes."""
_SLOT = 8
"""The offset in the frame that alloc writes to."""
_AT_ONCE = len(CELLS)
"""Columns that a thread moves at once."""
_LEAST = 32
"""The fewest columns that can be allocated."""
_TENSOR = LANES * COLUMNS * 4


def entry(
    op: Instruction, name: str, options: ptx.MmaOptions, given: Mapping[str, int | str]
) -> KernelBuilder:
    """The kernel of one instruction."""
    listed = ptx.operands(op, options=options)
    if op.idesc is not None:
        given = {**given, "idesc": f"{op.idesc:#010x}"}
    if not (op.multiplies or op.moves):
        return _alone(op, name, listed, given)
    made = _Frame(op, name)
    made.declare(each for each in listed if each.name not in given)
    made.begin(image=op.tensor_memory or op.moves == "copy")
    made.move("in")
    if op.loads or op.stores:
        _add_move(made, op, listed, given)
    else:
        for each in listed:
            if each.name not in given:
                _add_operand(made, each)
        made.issue([_statement(op, given, options)])
    if not op.loads:
        made.move("out")
    made.end()
    return made


def launch(op: Instruction, parameters: dict[str, ParameterType]) -> list[str]:
    """How to launch it, as comment lines."""
    pair = " as a cluster" if op.cta_group == 2 else ""
    blocks = f"{op.cta_group or 1} block{'s' * bool(pair)} of {WARPGROUP} threads{pair}"
    memory = ""
    if "image_words" in parameters:
        memory = f", {FRAME} bytes of dynamic shared memory and those of the image"
    if not parameters:
        return comment(f"{blocks}{memory}; no parameters.".capitalize())
    width = max(map(len, parameters))
    lines = comment(f"{blocks}{memory}. Parameters:")
    for name, each in parameters.items():
        lines.append(f"//   {each.kind} {name:<{width}}  {each.what}")
    return lines


class _Frame(KernelBuilder):
    """A kernel that allocates tensor memory, and frees it again."""

    def __init__(self, op: Instruction, name: str, columns: int = COLUMNS) -> None:
        super().__init__(name)
        self.pair = op.cta_group == 2
        self.group = f"cta_group::{op.cta_group or 1}"
        self.columns = columns
        self.exclusive = ".exclusive" if op.values.get("exclusive") else ""
        self.at_most(WARPGROUP)
        if self.pair:
            self.clusters(2)

    # ── before ──────────────────────────────────────────────────────────────

    def begin(self, *, image: bool = False, alloc: Sequence[str] = ()) -> None:
        """Allocate, and fill shared memory."""
        self.image(0 if image else FRAME)
        self.threads()
        self.do("mov.u32 %frame, %shared;", "shr.u32 %group, %thread, 5;")
        if self.pair:
            self.do("mov.u32 %rank, %cluster_ctarank;")
        plain = (
            f"tcgen05.alloc{self.exclusive}.{self.group}.sync.aligned.shared::cta.b32 "
            f"[%frame + {_SLOT}], {self.columns};"
        )
        self.by_first_warp(
            *(alloc or [plain]),
            f"tcgen05.relinquish_alloc_permit.{self.group}.sync.aligned;",
        )
        self.by_first_thread(
            "mbarrier.init.shared::cta.b64 [%frame], 1;",
            "fence.mbarrier_init.release.cluster;",
        )
        if image:
            self._add_image()
        self.synchronise()
        self.do(
            f"ld.shared.u32 %allocated, [%frame + {_SLOT}];",
            "// each warp reaches the lanes of its quarter",
            "shl.b32 %quarter, %group, 21;",
            "add.u32 %quarter, %quarter, %allocated;",
        )

    def _add_image(self) -> None:
        """Copy the image into shared memory, visible to the Tensor Cores."""
        both = " of each block" if self.pair else ""
        self.parameters |= {
            "p_image": ParameterType(".u64", f"where to read the image{both}"),
            "image_words": ParameterType(".u32", f"the 32-bit words of an image{both}"),
        }
        self.do(
            f"add.u32 %shared, %frame, {FRAME};",
            "ld.param.u32 %size, [image_words];",
            "shl.b32 %size, %size, 2;",
        )
        self.point("image", *(("%rank", "%size") if self.pair else ()))
        self.copy("in", "%size", WARPGROUP, unit=4)
        self.units()

    def by_first_warp(self, *lines: str) -> None:
        """Statements of one warp of the block."""
        self.by_first("%group", lines)

    def by_first_thread(self, *lines: str) -> None:
        """Statements of one thread of the block."""
        self.by_first("%thread", lines)

    def by_first(self, number: str, lines: Sequence[str]) -> None:
        """Statements of the threads for which a number is 0."""
        label = f"others_{len(self._lines)}"
        self.do(
            f"setp.ne.u32 %other, {number}, 0;",
            f"@%other bra {label};",
            *lines,
            f"{label}:",
        )

    def synchronise(self) -> None:
        """A barrier of the block, or of the pair, that orders all memories."""
        barrier = ["bar.sync 0;"]
        if self.pair:
            barrier = [
                "barrier.cluster.arrive.release.aligned;",
                "barrier.cluster.wait.acquire.aligned;",
            ]
        self.do(
            "fence.proxy.async;",
            "tcgen05.fence::before_thread_sync;",
            *barrier,
            "tcgen05.fence::after_thread_sync;",
        )

    # ── tensor memory ───────────────────────────────────────────────────────

    def move(self, direction: str) -> None:
        """Copy the image ``in`` to tensor memory, or ``out`` of it."""
        way = {"in": "read", "out": "read and written"}[direction]
        shape = f"{'2 x ' if self.pair else ''}{LANES} x {COLUMNS} .b32"
        what = f"tensor memory, {way}: {shape}"
        self.parameters["p_tensor"] = ParameterType(".u64", what)
        self.point("tensor", *(("%rank", _TENSOR) if self.pair else ()))
        self.step("%from", "%thread", COLUMNS * 4)
        label = f"tensor_{direction}"
        vector = "{" + ", ".join(CELLS) + "}"
        cells = f"32x32b.x{_AT_ONCE}.b32"
        self.do("mov.u32 %column, 0;", f"{label}:", "add.u32 %at, %quarter, %column;")
        if direction == "in":
            self.do(*_words("ld"), f"tcgen05.st.sync.aligned.{cells} [%at], {vector};")
        else:
            self.do(
                f"tcgen05.ld.sync.aligned.{cells} {vector}, [%at];",
                "tcgen05.wait::ld.sync.aligned;",
                *_words("st"),
            )
        self.do(
            f"add.u64 %from, %from, {_AT_ONCE * 4};",
            f"add.u32 %column, %column, {_AT_ONCE};",
            f"setp.lt.u32 %more, %column, {COLUMNS};",
            f"@%more bra {label};",
        )
        if direction == "in":
            self.do("tcgen05.wait::st.sync.aligned;")
            self.synchronise()

    # ── the instruction, and after it ───────────────────────────────────────

    def issue(self, statements: Sequence[str]) -> None:
        """Statements of one thread; all threads wait for their completion."""
        many = ".multicast::cluster" if self.pair else ""
        plain = (
            f"tcgen05.commit.{self.group}.mbarrier::arrive::one.shared::cluster{many}"
            f".b64 [%frame]{', %mask' if self.pair else ''};"
        )
        if self.pair:
            # ptxas 13.0 takes no constant for the mask.
            self.do("or.b32 %word, %thread, %rank;", "mov.b16 %mask, 3;")
        self.by_first("%word" if self.pair else "%thread", (*statements, plain))
        self.wait()

    def wait(self) -> None:
        """Wait for the phase of the mbarrier."""
        self.do(
            "done:",
            "mbarrier.try_wait.parity.shared::cta.b64 %more, [%frame], 0;",
            "@!%more bra done;",
            "tcgen05.fence::after_thread_sync;",
        )

    def end(self, dealloc: Sequence[str] = ()) -> None:
        """Free tensor memory after all threads have finished with it."""
        self.synchronise()
        plain = (
            f"tcgen05.dealloc{self.exclusive}.{self.group}.sync.aligned.b32 "
            f"%allocated, {self.columns};"
        )
        self.by_first_warp(*(dealloc or [plain]))


def _words(direction: str) -> list[str]:
    """Loads from, or stores to, global memory."""
    lines = []
    for i in range(0, _AT_ONCE, 4):
        four, place = "{" + ", ".join(CELLS[i : i + 4]) + "}", f"[%from + {4 * i}]"
        pair = f"{four}, {place}" if direction == "ld" else f"{place}, {four}"
        lines.append(f"{direction}.global.v4.b32 {pair};")
    return lines


def _statement(
    op: Instruction, given: Mapping[str, int | str], options: ptx.MmaOptions = ptx.PLAIN
) -> str:
    return ptx.statement(op, a_registers=False, options=options, **given)


# ── operands ────────────────────────────────────────────────────────────────


def _add_operand(made: KernelBuilder, each: Operand) -> None:
    """One operand of the thread that issues, from a parameter."""
    name = each.name
    if each.ptx == "tensor":
        what = f"address of {name} in tensor memory, from its beginning"
        made.parameters[name] = ParameterType(".u32", what)
        made.do(
            f"ld.param.u32 %{name}, [{name}];", f"add.u32 %{name}, %{name}, %allocated;"
        )
    elif name == "zero_column_mask":
        made.parameters[name] = ParameterType(".u64", "the columns of B that are zeros")
        made.do(f"ld.param.u64 %{name}, [{name}];")
    elif each.ptx == ".b64":
        what = f"descriptor of {name}, from the beginning of the image"
        made.parameters[name] = ParameterType(".u64", what)
        made.do(
            f"ld.param.u64 %{name}, [{name}];",
            f"add.u64 %{name}, %{name}, %image_units;",
        )
    elif each.ptx == ".pred":
        made.parameters[name] = ParameterType(
            ".u32", "0: D = A * B; else D = A * B + D"
        )
        made.do(f"ld.param.u32 %word, [{name}];", f"setp.ne.u32 %{name}, %word, 0;")
    elif each.ptx == "number":
        made.parameters[name] = ParameterType(".u32", "the instruction descriptor")
        made.do(f"ld.param.u32 %{name}, [{name}];")
    elif each.ptx == ".b32":
        what = f"where to read {name}: {each.count} .b32, the same for all"
        made.parameters[f"p_{name}"] = ParameterType(".u64", what)
        made.load(each, place="")
    else:
        assert each.ptx == "immediate", each


def _add_move(
    made: _Frame,
    op: Instruction,
    listed: tuple[Operand, ...],
    given: Mapping[str, int | str],
) -> None:
    """Each warp loads or stores at the same address of its own quarter."""
    loads = op.loads
    held = [each for each in listed if each.ptx == ".b32"]
    for each in held:
        way = "write" if loads else "read"
        what = f"where to {way} {each.name}: {WARPGROUP} threads x {each.count} .b32"
        made.parameters[f"p_{each.name}"] = ParameterType(".u64", what)
    what = "address in tensor memory, with a lane of the first quarter"
    made.parameters["taddr"] = ParameterType(".u32", what)
    made.do("ld.param.u32 %taddr, [taddr];", "add.u32 %taddr, %taddr, %quarter;")
    if not loads:
        for each in held:
            made.load(each, place="%thread")
    wait = f"tcgen05.wait::{'ld' if loads else 'st'}.sync.aligned;"
    made.do(_statement(op, given), wait)
    if loads:
        for each in held:
            made.store(each, place="%thread")


# ── instructions without operands in memory ─────────────────────────────────


def _alone(
    op: Instruction,
    name: str,
    listed: tuple[Operand, ...],
    given: Mapping[str, int | str],
) -> KernelBuilder:
    """Allocate, run the instruction, and free."""
    if op.mnemonic.startswith("tcgen05.shift"):
        made = _Frame(op, name)
        made.declare(listed)
        made.begin()
        made.move("in")
        _add_operand(made, listed[0])
        made.issue([_statement(op, given)])
        made.move("out")
        made.end()
        return made
    made = _Frame(op, name, _LEAST)
    what = op.mnemonic.split(".")[1]
    made.declare(
        each for each in listed if each.ptx == "address" or each.name == "ctaMask"
    )
    text = _stated(op, listed)
    made.begin(alloc=text if what == "alloc" else ())
    if what == "commit":
        _add_commit(made, op, text)
    elif what not in ("alloc", "dealloc", "relinquish_alloc_permit"):
        made.do(*text)
    made.end(dealloc=text if what == "dealloc" else ())
    return made


def _add_commit(made: _Frame, op: Instruction, lines: list[str]) -> None:
    """One thread of each block commits; with a multicast, one thread for all."""
    if made.pair and op.values["multicast"]:
        made.do("or.b32 %word, %thread, %rank;")
        made.by_first("%word", lines)
    else:
        made.by_first_thread(*lines)
    made.wait()


def _stated(op: Instruction, listed: tuple[Operand, ...]) -> list[str]:
    """The statements that compute its addresses in the frame, then the statement."""
    spaces = {"dst": _SLOT, "mbar": 0}
    lines: list[str] = []
    named: dict[str, int | str] = {}
    for each in listed:
        if each.ptx == "columns":
            named[each.name] = _LEAST
        elif each.name == "taddr":
            named[each.name] = "%allocated"
        elif each.name == "ctaMask":
            wide = each.ptx == "number"
            every = (1 << (op.cta_group or 1)) - 1
            lines.append(f"mov.b{32 if wide else 16} %ctaMask, {every};")
        elif op.values.get("space"):
            named[each.name] = f"[%frame + {spaces[each.name]}]"
        else:
            # Without a state space the address is generic.
            lines += [
                f"add.u32 %at, %frame, {spaces[each.name]};",
                "cvt.u64.u32 %offset, %at;",
                f"cvta.shared.u64 %{each.name}, %offset;",
            ]
    return [*lines, _statement(op, named)]
