"""The source of an instruction, as CUDA C++ and as PTX.

``to_cuda`` writes CUDA C++ to paste: the instruction as a function, and
functions that load its operands from memory and store its result; of ``tcgen05.mma``
also a whole kernel.  ``header`` collects that of many instructions in one file.
``to_ptx`` writes a complete PTX module whose one entry runs the instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from fragmenta import __version__
from fragmenta.cuda.source import entry, tensor_kernel, tensor_usage
from fragmenta.cuda.source.access import REGISTERS
from fragmenta.cuda.source.formatting import WIDTH, broken, check_identifier, comment
from fragmenta.cuda.source.fragments import (
    fragment_piece,
    function_tag,
    metadata_pieces,
)
from fragmenta.cuda.source.helpers import Snippet, needed
from fragmenta.cuda.source.inline import (
    WrapperFunction,
    function_name,
    instruction_piece,
)
from fragmenta.cuda.source.ptx import PLAIN, MmaOptions, check_options
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import find, instruction, search
from fragmenta.reference.registers.fragment import Fragment

LANGUAGES = ("cuda", "ptx")


def emit(
    texts: Sequence[str],
    *,
    language: str = "cuda",
    as_header: bool = False,
    a_registers: bool = False,
    target: str | None = None,
    kernel: bool = False,
    options: MmaOptions = PLAIN,
) -> str:
    """The source for instructions given by name or abbreviation.

    There is one instruction; in a header there are many, and an abbreviation
    stands for every one that it fits.  ``options`` are those of :func:`to_cuda`.

    >>> print(emit(["movmatrix"], language="ptx").splitlines()[0])
    // movmatrix.sync.aligned.m8n8.trans.b16
    """
    if language not in LANGUAGES:
        raise BadCall(
            f"no language {language}{nearest(language, LANGUAGES)}; "
            f"there are {one_of(LANGUAGES, 'and')}"
        )
    if as_header and language == "ptx":
        raise BadCall("a header is CUDA; PTX comes one module at a time")
    if kernel and (as_header or language == "ptx"):
        raise BadCall(
            "a kernel is CUDA, of one instruction; PTX is always a whole module"
        )
    if as_header and any(options):
        raise BadCall(
            "a header has the plain functions; options are for one instruction"
        )
    if as_header:
        return header(op for text in texts for op in search(text) or [find(text)])
    if len(texts) != 1:
        raise BadCall(f"one instruction at a time, or a header; given {len(texts)}")
    op = find(texts[0])
    if language == "cuda":
        return to_cuda(op, a_registers=a_registers, kernel=kernel, **options._asdict())
    given = check_options(op, options)._asdict()
    if given.pop("scale_input_d"):
        given["scale_input_d"] = 0
    return to_ptx(op, target=target, a_registers=a_registers, **given)


def to_ptx(
    op: Instruction,
    name: str | None = None,
    *,
    target: str | None = None,
    a_registers: bool = False,
    a_tensor: bool = False,
    disable_output_lane: bool = False,
    zero_column_mask: bool = False,
    **immediates: int,
) -> str:
    """A complete PTX module whose one entry runs the instruction.

    ``target`` is by default the first that has it.  Immediates (``selector``,
    ``imm_scale_a``, ``trans_b`` …) may be given; by default they do nothing.  The other
    options are those of :func:`to_cuda`; ``scale_input_d`` is an immediate here.

    >>> import fragmenta as fm
    >>> text = to_ptx(fm.mma("m16n8k64", a="s4", sp="sp"), selector=1)
    >>> print(next(line for line in text.splitlines() if ".entry" in line))
    .visible .entry mma_sp_m16n8k64_s32_s4_s4_s32(
    """
    scaled = "scale_input_d" in immediates
    given = MmaOptions(a_tensor, disable_output_lane, scaled, zero_column_mask)
    options = _check(op, a_registers, name, given)
    return entry.module(
        op,
        name or function_name(op),
        target=target,
        a_registers=a_registers,
        options=options,
        **immediates,
    )


def to_cuda(
    op: Instruction,
    name: str | None = None,
    *,
    a_registers: bool = False,
    fragments: bool = True,
    kernel: bool = False,
    a_tensor: bool = False,
    disable_output_lane: bool = False,
    scale_input_d: bool = False,
    zero_column_mask: bool = False,
) -> str:
    r"""CUDA C++ for one instruction, to paste into a kernel.

    ``name`` renames the function; ``a_registers`` takes wgmma's A from
    registers instead of shared memory; ``fragments=False`` leaves the load
    and store functions out.

    Of ``tcgen05.mma``, ``kernel`` writes a whole kernel that multiplies matrices, and
    ``a_tensor`` takes A from tensor memory.  With ``disable_output_lane``,
    ``scale_input_d`` or ``zero_column_mask`` the function takes this operand, too.

    >>> import fragmenta as fm
    >>> print(to_cuda(fm.find("movmatrix"), "transpose", fragments=False))
    // movmatrix.sync.aligned.m8n8.trans.b16
    // Transpose one 8 x 8 matrix of b16 in registers.
    // Needs PTX 7.8 and sm_75 or later.
    //   A  matrix = 0  row = L2 L3 L4  col = E0 L0 L1
    //   D  matrix = 0  row = E0 L0 L1  col = L2 L3 L4
    // L, R, E: bits of the lane, the register and the element in it, lowest first.
    __device__ __forceinline__ void transpose(unsigned (&d)[1], const unsigned (&a)[1])
    {
        asm volatile(
            "movmatrix.sync.aligned.m8n8.trans.b16\n"
            "  %0,\n"
            "  %1;\n"
            : "=r"(d[0])
            : "r"(a[0]));
    }
    <BLANKLINE>
    """
    given = MmaOptions(a_tensor, disable_output_lane, scale_input_d, zero_column_mask)
    options = _check(op, a_registers, name, given)
    if kernel:
        return _kernel(op, name, given)
    main = instruction_piece(op, name, a_registers=a_registers, options=options)
    others = list(companions(op, a_registers=a_registers)) if fragments else []
    texts = [piece.text for piece in (*needed([main, *others]), main, *others)]
    if others:
        usage = example(op, name, a_registers=a_registers, options=options)
        lines = [line for statement in usage for line in statement.splitlines()]
        shown = "\n".join(f"//     {line}" for line in lines)
        texts.insert(0, f"// For example, with one tile:\n//\n{shown}\n")
    return "\n".join(texts)


def _check(
    op: Instruction, a_registers: bool, name: str | None, options: MmaOptions
) -> MmaOptions:
    if name is not None:
        check_identifier("name", name)
    if a_registers and op.tensor_memory:
        raise BadCall(
            f"A of {op} is in shared memory, or with a_tensor in tensor memory"
        )
    if a_registers and not op.warpgroup:
        raise BadCall(f"only wgmma chooses where A comes from; {op} has no choice")
    return check_options(op, options)


def _kernel(op: Instruction, name: str | None, options: MmaOptions) -> str:
    if any(options[1:]):
        raise BadCall(
            f"a whole kernel takes no {options._replace(a_tensor=False).tag[1:]}; "
            "write one around the function"
        )
    return tensor_kernel.kernel(op, name, a_tensor=options.a_tensor)


# ── what goes with an instruction ───────────────────────────────────────────


def companions(op: Instruction, *, a_registers: bool = False) -> Iterator[Snippet]:
    """The functions that load the operands of an instruction and store its result.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> [piece.name for piece in companions(op)][:2]
    ['load_a_m16k16_f16', 'load_b_k16n8_f16']
    """
    if op.unit == "wmma" and op.multiplies:
        # No manual promises the layouts of wmma, so its own moves do the work.
        yield from (instruction_piece(each) for each in wmma_moves(op))
    if op.unit == "wmma":
        return
    if op.unit == "tcgen05":
        yield from tensor_usage.pieces(op)
        return
    for name, part in op.fragments.items():
        if name == "A" and op.warpgroup and not a_registers:
            continue
        if name == "metadata":
            yield from metadata_pieces(op)
        else:
            yield fragment_piece(op, part, "store" if name == "D" else "load")


def wmma_moves(op: Instruction) -> list[Instruction]:
    """The loads and stores that go with a ``wmma.mma``.

    >>> import fragmenta as fm
    >>> print(wmma_moves(fm.find("wmma.mma.m8n8k32.s4"))[1])
    wmma.load.b.sync.aligned.col.m8n8k32.s4
    """
    shape = op.values["shape"]
    words = [
        ("load.a", op.values["alayout"], op.values["a"]),
        ("load.b", op.values["blayout"], op.values["b"]),
        *(("load.c", layout, op.values["c"]) for layout in ("row", "col")),
        *(("store.d", layout, op.values["d"]) for layout in ("row", "col")),
    ]
    return [
        instruction(f"wmma.{what}.sync.aligned.{layout}.{shape}.{of}")
        for what, layout, of in words
    ]


# ── how to use it ───────────────────────────────────────────────────────────


def example(
    op: Instruction,
    name: str | None = None,
    *,
    a_registers: bool = False,
    options: MmaOptions = PLAIN,
) -> list[str]:
    """Statements that compute one tile, with matrices A, B, C and D in memory.

    >>> import fragmenta as fm
    >>> for line in example(fm.mma("m16n8k16", a="f16", d="f32")):
    ...     print(line)
    float d[4], c[4];
    unsigned a[4], b[2];
    load_a_m16k16_f16_row_major(a, A, lda);
    load_b_k16n8_f16_col_major(b, B, ldb);
    load_c_m16n8_f32_row_major(c, C, ldc);
    mma_m16n8k16_f32_f16_f16_f32(d, a, b, c);
    store_d_m16n8_f32_row_major(d, D, ldd);
    """
    if op.unit == "tcgen05":
        return tensor_usage.example(op, name, options)
    call = WrapperFunction(op, name or function_name(op), a_registers)
    own_moves = op.unit == "wmma" and op.multiplies
    loads, stores = _wmma_calls(op) if own_moves else _calls(op, call)
    before: list[str] = []
    after: list[str] = []
    if op.warpgroup:
        before = ["wgmma_hold(d);", "wgmma_fence();"]
        after = ["wgmma_commit_group();", "wgmma_wait_group<0>();", "wgmma_hold(d);"]
    return [*_declarations(call), *loads, *before, _call(call), *after, *stores]


def _declarations(call: WrapperFunction) -> list[str]:
    """The register arrays, those of a type together."""
    found: dict[str, list[str]] = {}
    for each in call.arguments:
        if each.array:
            kind, _ = REGISTERS[each.operand.ptx]
            found.setdefault(kind, []).append(f"{each.name}[{each.operand.count}]")
    return [f"{kind} {', '.join(names)};" for kind, names in found.items()]


def _call(call: WrapperFunction) -> str:
    """The call of the instruction's function; a first wgmma adds to nothing."""
    listed = [a for a in call.arguments if not (a.operand.values or a.template)]
    flags = [a for a in listed if a.operand.ptx == ".pred"]
    words = [a.name for a in listed if a not in flags] + ["false"] * len(flags)
    line = f"{call.name}({', '.join(words)});"
    return line if len(line) < WIDTH - 7 else line.replace("(", "(\n    ")


def _wmma_calls(op: Instruction) -> tuple[list[str], list[str]]:
    a, b, c, _, d, _ = map(function_name, wmma_moves(op))
    loads = [f"{a}(a, A, lda);", f"{b}(b, B, ldb);", f"{c}(c, C, ldc);"]
    return loads, [f"{d}(D, d, ldd);"]


def _calls(op: Instruction, call: WrapperFunction) -> tuple[list[str], list[str]]:
    """Calls that fill the arguments, and that store the result."""
    loads: list[str] = []
    stores: list[str] = []
    names = {each.name for each in call.arguments}
    if op.unit == "wmma":
        return [], []
    for part in op.fragments.values():
        tag, letter = function_tag(op, part), part.letter
        if part.name == "metadata" or part.name.startswith("scale"):
            loads.append(_word_load(part, tag))
        elif letter in names:
            order = "col" if part.name == "B" else "row"
            where = f"{letter}, {part.name}, ld{letter}"
            if part.layout.sizes.get("matrix", 1) > 1:
                where += f", matrix_{letter}"
            to, verb = (stores, "store") if part.name == "D" else (loads, "load")
            to.append(f"{verb}_{tag}_{order}_major({where});")
    return loads, stores


def _word_load(part: Fragment, tag: str) -> str:
    """Metadata and scales come in one register each."""
    name = part.name.lower()
    suffix = "" if name == "metadata" else "_row_major"
    chosen = f"<{', '.join('0' for _ in part.selectors)}>" if part.selectors else ""
    memory = {"metadata": "E, lde", "scale_a": "SA, ldsa", "scale_b": "SB, ldsb"}[name]
    return f"unsigned {name} = load_{tag}{suffix}{chosen}({memory});"


# ── many instructions ───────────────────────────────────────────────────────


def header(
    ops: Iterable[Instruction], *, namespace: str = "fragmenta", fragments: bool = True
) -> str:
    """One self-contained ``.cuh`` for a set of instructions.

    Functions that several instructions share are written once.  ``wgmma`` is
    written twice under one name: with A in shared memory, with A in registers.

    >>> import fragmenta as fm
    >>> text = header([fm.mma("m16n8k16", a="f16", d=d) for d in ("f16", "f32")])
    >>> text.count("void load_a_m16k16_f16_row_major(")
    1
    """
    for each in str(namespace).split("::"):
        check_identifier("namespace", each)
    chosen = list(dict.fromkeys(ops))
    if not chosen:
        raise BadCall("a header has one instruction or more; given none")
    forms = [(op, source) for op in chosen for source in _sources(op)]
    calls = [instruction_piece(op, a_registers=source) for op, source in forms]
    others: list[Snippet] = []
    for op, source in forms if fragments else ():
        others += companions(op, a_registers=source)
    calls = _once([*calls, *(piece for piece in others if piece.targets)])
    others = _once(piece for piece in others if not piece.targets)
    first = needed([*calls, *others])
    defined = {name for piece in first for name in piece.defines}
    calls = [piece for piece in calls if piece.name not in defined]
    ordered = sorted([*first, *calls], key=lambda piece: piece.targets)
    parts = [
        "\n".join(_title(chosen)) + f"\n#pragma once\n\nnamespace {namespace} {{\n",
        *_guarded(ordered),
        *(piece.text for piece in others),
        f"}}  // namespace {namespace}\n",
    ]
    return "\n".join(parts)


def _sources(op: Instruction) -> tuple[bool, ...]:
    return (False, True) if op.warpgroup else (False,)


def _once(pieces: Iterable[Snippet]) -> list[Snippet]:
    return list({piece.name: piece for piece in pieces}.values())


def _title(ops: Sequence[Instruction]) -> list[str]:
    count = f"{len(ops)} instruction{'s' * (len(ops) > 1)}"
    said = (
        f"{count} as functions, with functions that load and store their operands. "
        f"Written by fragmenta {__version__}."
    )
    lines = [*comment(said), "//"]
    for op in ops:
        first, *more = broken(str(op), WIDTH - 7)
        lines += [f"//   {first}", *(f"//     {line}" for line in more)]
    return lines


def _guarded(pieces: Iterable[Snippet]) -> Iterator[str]:
    """The texts, each group that few targets can compile inside an ``#if``."""
    for targets, group in groupby(pieces, key=lambda piece: piece.targets):
        text = "\n".join(piece.text for piece in group)
        if targets:
            text = f"#if {guard(targets)}\n\n{text}\n#endif  // {targets}\n"
        yield text


def guard(targets: str) -> str:
    """The preprocessor's condition for targets in a table's words.

    The host's pass, which has no target, sees everything.

    >>> print(guard("sm_80+"))
    !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    """
    tests = ["!defined(__CUDA_ARCH__)"]
    tests += [test for word in targets.split() for test in _tests(word)]
    tests = [*dict.fromkeys(tests)]
    return (" || " if len(tests) == 2 else " \\\n    || ").join(tests)


def _tests(word: str) -> list[str]:
    """One word of a table as tests; an undefined macro counts as 0.

    Compilers before 12.9 know only the macro of one target's own features.
    """
    if word.endswith("+"):
        return [f"__CUDA_ARCH__ >= {int(word[3:-1]) * 10}"]
    if word.endswith("a/f"):
        number = int(word[:-3].removeprefix("sm_"))
        test = f"__CUDA_ARCH_FAMILY_SPECIFIC__ / 100 == {number // 10}"
    else:
        number = int(word[3:-1])
        test = f"__CUDA_ARCH_SPECIFIC__ == {number * 10}"
    return [test, f"defined(__CUDA_ARCH_FEAT_SM{number}_ALL)"]
