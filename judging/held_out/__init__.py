"""Candidates that no rule of the judge was made for.

They were written before the judge had seen them, for other operations than those of
:mod:`judging.honest` and :mod:`judging.cheats`.  ``docs/judge.md`` has the first verdicts,
from before anything was mended.

tasks     the references
honest    candidates that are right, in Triton and CUDA C++
cheats    candidates that only look right, and the finding that each must lead to
"""
