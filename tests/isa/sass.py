"""Record the machine instructions that ptxas writes, as nvdisasm reads them.

    python -m tests.isa.sass                  # rewrite src/fragmenta/reference/isa/tables/sass.txt
    python -m tests.isa.sass --check          # only compare
    python -m tests.isa.sass --older FOLDER   # with sm_70 and sm_72

Each instruction stands alone in a kernel, which loads its registers from memory and
stores all of them afterwards.  Loads and stores are volatile, so that nothing is left
out.  The same kernel without the instruction is assembled, too; what the first has more
of is what the assembler wrote for the instruction.  Of that, the instructions that do
the work are kept by name and number; of the others only the number is kept.

Toolkit 13 writes no code for sm_70 and sm_72.  FOLDER has ptxas and nvdisasm of toolkit
12.  Without it, what is recorded for these two stays as it is.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import fragmenta as fm
from fragmenta.cuda.source import kernel, ptx
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa.sass_records import FILE, Code, Row, recorded, written
from fragmenta.reference.isa.target import ARCHITECTURES, TARGETS, number

OLD = ("sm_70", "sm_72")
BATCH = 400
"""Kernels of one module."""

# What does the work: it multiplies, moves matrices, or orders such instructions.
WORK = re.compile(
    r"[HIBDQO]MMA|[HIBQ]GMMA|UTC\w+|LDSM|STSM|MOVM|LDTM|STTM|UVIRTCOUNT|FENCE|MEMBAR|"
    r"WARPGROUP|UNNAMED"
)
#: What nvdisasm leaves out of a listing, or gives no name of its own.
UNNAMED = "UNNAMED"
# A wmma.load or .store may be ordinary loads and stores.
MEMORY = re.compile(r"LD[GS]?|ST[GS]?")
# An expansion without Tensor Cores is arithmetic.
ARITHMETIC = re.compile(r"FADD|FMUL|FFMA")
# What a compiler adds anywhere: moves, constants, the uniform registers, control.
FRAME = re.compile(
    r"NOP|U\w+|MOV|IMAD\.MOV.*|IMAD\.U32|HFMA2|HFMA2\.MMA|CS2R|S2U?R|LDCU?|R2UR|PLOP3|"
    r"ELECT|BRA|BSSY|BSYNC|WARPSYNC|CALL|RET|EXIT"
)
_LINE = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z_][\w.]*)", re.MULTILINE
)
STEP = 16
"""Bytes of a machine instruction."""


def listed(text: str) -> Iterator[str]:
    """The names in a listing; one for each place that nvdisasm leaves out, too."""
    after = 0
    for place, name in _LINE.findall(text):
        at = int(place, 16)
        yield from [UNNAMED] * ((at - after) // STEP)
        yield UNNAMED if name.startswith("_") else name
        after = at + STEP


# ── kernels ─────────────────────────────────────────────────────────────────


def entry(op: fm.Instruction, name: str, *, there: bool = True) -> str:
    """A kernel with the instruction, or the same without it."""
    made = kernel.KernelBuilder(name, {"p_all": kernel.ParameterType(".u64")})
    listed = [each for each in ptx.operands(op) if each.ptx not in ptx.CONSTANTS]
    made.declare(listed)
    made.threads()
    made.point("all", "%thread", 4096)
    stores = []
    for each in listed:
        kind = ptx.DECLARED.get(each.ptx, each.ptx)
        if each.vector:
            names = ptx.names(each)
            first = len(stores)
            made.do(
                *(
                    f"ld.volatile.global{kind} {register}, [%base + {8 * place}];"
                    for place, register in enumerate(names, first)
                )
            )
        else:
            names = [] if kind == ".pred" else [f"%{each.name}"]
            _take(made, each.name, kind)
        stores += [(kind, register) for register in names]
    made.do(*_body(op, there))
    for place, (kind, register) in enumerate(stores):
        made.do(f"st.volatile.global{kind} [%base + {8 * place}], {register};")
    return made.text()


def _take(made: kernel.KernelBuilder, name: str, kind: str) -> None:
    """One number from a parameter, so that all threads have the same."""
    made.parameters[f"p_{name}"] = kernel.ParameterType(
        ".u32" if kind == ".pred" else kind
    )
    if kind == ".pred":
        made.do(f"ld.param.u32 %word, [p_{name}];", f"setp.ne.u32 %{name}, %word, 0;")
    else:
        made.do(f"ld.param{kind} %{name}, [p_{name}];")


def _body(op: fm.Instruction, there: bool) -> list[str]:
    if op.warpgroup:
        return kernel.group([ptx.statement(op)]) if there else []
    if op.mnemonic.startswith("wgmma.commit_group"):
        # Alone it would close an empty group, which ptxas fills with a wgmma.
        return []
    return [ptx.statement(op)] if there else []


# ── machine code ────────────────────────────────────────────────────────────


class Tools:
    """ptxas and nvdisasm: those that are installed, or those of a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def versions(self) -> tuple[str, str]:
        """The versions of both."""
        said = [self._call(name, "--version") for name in ("ptxas", "nvdisasm")]
        ptxas, nvdisasm = (re.search(r"V(\d+\.\d+\.\d+)", text)[1] for text in said)  # type: ignore[index]
        return ptxas, nvdisasm

    def names(
        self, kernels: Sequence[str], target: str, version: object
    ) -> dict[str, Counter[str]]:
        """For each kernel, how often its machine code has each name."""
        text = kernel.module(kernels, target, version)
        with tempfile.TemporaryDirectory() as folder:
            source, cubin = Path(folder, "in.ptx"), Path(folder, "out.cubin")
            source.write_text(text)
            self._call("ptxas", f"-arch={target}", str(source), "-o", str(cubin))
            listing = self._call("nvdisasm", "-c", str(cubin))
        parts = re.split(r"\.section\s+\.text\.", listing)[1:]
        return {part[: part.index(",")]: Counter(listed(part)) for part in parts}

    def _call(self, name: str, *arguments: str) -> str:
        program = self.folder / name if self.folder else assembler.tool(name)
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout


def codes(
    ops: Sequence[fm.Instruction], target: str, tools: Tools
) -> list[tuple[Code, int]]:
    """What the assembler writes for instructions on one target."""
    found: list[tuple[Code, int]] = []
    for start in range(0, len(ops), BATCH):
        some = ops[start : start + BATCH]
        version = max(op.requires.ptx_on(target) for op in some)
        kernels = {op: entry(op, f"with{i}") for i, op in enumerate(some)}
        scalar = [kernels.pop(op) for op in some if op.expanded_to(target) == "fma"]
        frames = [entry(op, "NAME", there=False) for op in some]
        without = {text: f"without{i}" for i, text in enumerate(dict.fromkeys(frames))}
        more = [text.replace("NAME", name) for text, name in without.items()]
        names = tools.names([*kernels.values(), *more], target, version)
        if scalar:  # their code depends on what else is in the module
            names |= tools.names(scalar, target, version)
        found += [
            sorted_out(op, names[f"with{i}"] - names[without[frame]])
            for i, (op, frame) in enumerate(zip(some, frames, strict=True))
        ]
    return found


def sorted_out(op: fm.Instruction, more: Counter[str]) -> tuple[Code, int]:
    """What does the work, and how many others there are."""
    works = _named(more, WORK)
    if op.family in ("wmma.load", "wmma.store"):
        works = {**works, **_named(more, MEMORY)}
    if op.warpgroup:  # its group has instructions of its own
        works = {name: n for name, n in works.items() if "GMMA" in name}
    works = works or _named(more, ARITHMETIC)
    if op.warpgroup or not works:
        return tuple(works.items()), 0
    others = [n for name, n in more.items() if name not in works and not _framing(name)]
    return tuple(sorted(works.items())), sum(others)


def _named(more: Counter[str], kind: re.Pattern[str]) -> dict[str, int]:
    return {name: n for name, n in more.items() if kind.fullmatch(name.split(".")[0])}


def _framing(name: str) -> bool:
    return any(FRAME.fullmatch(each) for each in (name, name.split(".", maxsplit=1)[0]))


# ── the table ───────────────────────────────────────────────────────────────


def record(older: Tools | None) -> str:
    """The whole table as text; sm_70 and sm_72 as they are if no tool writes them."""
    newest, before = Tools(), recorded() if FILE.exists() else None
    tools: dict[int, tuple[str, str]] = {}
    found: dict[str, dict[int, tuple[Code, int]]] = {}
    ops = list(fm.catalogue())
    for target in TARGETS:
        print(f"{target} …", file=sys.stderr)
        arch, some = number(target), [op for op in ops if op.supported_on(target)]
        if target not in OLD or older:
            used = older if target in OLD and older else newest
            tools[arch] = used.versions()
            each = codes(some, target, used)
        else:
            assert before is not None
            tools[arch] = before.tools[arch]
            each = [before.on(op.mnemonic, arch) for op in some]
        for op, code in zip(some, each, strict=True):
            same = found.setdefault(op.mnemonic, {}).setdefault(arch, code)
            assert same == code, f"{op}: the suffix of {target} matters"
    return written(tools, {op.mnemonic: _row(found[op.mnemonic]) for op in ops})


def _row(found: dict[int, tuple[Code, int]]) -> Row:
    """Architectures with the same code together."""
    alike: dict[tuple[Code, int], list[int]] = {}
    for arch in ARCHITECTURES:
        if arch in found:
            alike.setdefault(found[arch], []).append(arch)
    return tuple((tuple(archs), *code) for code, archs in alike.items())


def main() -> int:
    """Record or compare."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    reader.add_argument("--check", action="store_true")
    reader.add_argument("--older", type=Path)
    asked = reader.parse_args()
    text = record(Tools(asked.older) if asked.older else None)
    if not asked.check:
        FILE.write_text(text, encoding="utf-8")
        print(f"wrote {FILE.name}")
        return 0
    same = text == FILE.read_text(encoding="utf-8")
    print(
        "the table is what the tools say"
        if same
        else "the table is not what the tools say"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
