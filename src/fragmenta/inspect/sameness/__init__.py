"""Proves that launches leave the same bits, or finds a counterexample.

- :mod:`.calls`       launches as values, and programs of several
- :mod:`.naming`      which inputs have the same names
- :mod:`.following`   a program with the expressions of its results
- :mod:`.witness`     inputs for which results differ
- :mod:`.deciding`    the verdict
- :mod:`.invariance`  classes of programs: batch sizes, configurations, targets
- :mod:`.telling`     expressions in words
- :mod:`.drawing`     expressions as pictures
- :mod:`.tree`        the expression of one element
- :mod:`.trees`       how it is rebuilt: from the log of a second run
"""
