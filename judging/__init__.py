"""Honest candidates and cheats for tasks in the form of KernelBench.

``python -m judging`` judges them all and writes ``docs/judge.json``.

tasks     the references
honest    candidates that are right, in Triton and CUDA C++
cheats    candidates that only look right, and the finding that each must lead to
"""
