"""Judges kernels that machines write.

    judge(reference, candidate)    one verdict
    Batch(workers)                 many of them, in processes that stay warm
    Settings(...)                  what is tried, and what a candidate may take
    Verdict                        one word, and the evidence

A candidate is Python with kernels in Triton, CUDA C++ or PTX.  It runs in a process of
its own, without the reference, and its launches are carried out and watched by another.
"""

from fragmenta.frontends.judge.batch import Batch, judge
from fragmenta.frontends.judge.settings import Settings
from fragmenta.frontends.judge.verdict import Verdict

__all__ = ["Batch", "Settings", "Verdict", "judge"]
