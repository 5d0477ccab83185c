"""Assembles many statements at once, to see which become machine code."""

import fragmenta as fm
from fragmenta.cuda.source import kernel
from fragmenta.cuda.tools import assembler


def kernels(texts, target, version):
    """A kernel for each statement and its declarations."""
    entries = [f".entry k{i}() {{ {' '.join(t)} ret; }}" for i, t in enumerate(texts)]
    return "\n".join([kernel.header(target, version), *entries, ""])


def become_code(texts, target, version):
    """Per statement, whether ptxas makes machine code of it."""
    verdicts = assembler.judge(texts, target, version)
    made = set()
    waiting = [[i for i, why in enumerate(verdicts) if why is None]]
    while waiting:
        some = waiting.pop()
        module = kernels([texts[i] for i in some], target, version)
        try:
            assembler.assemble(module, target)
            made.update(some)
        except fm.Error:  # which of them is refused, is found in halves
            half = len(some) // 2
            waiting += [some[:half], some[half:]] if half else []
    return [i in made for i in range(len(texts))]
