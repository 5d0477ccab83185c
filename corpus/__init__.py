"""Other people's kernels, run without a GPU and compared with references.

    python -m corpus                        # or: make corpus
    python -m corpus --part small           # what continuous integration runs
    python -m corpus --library liger --only rms

The libraries are installed from the package index, in the versions of
``packages.txt``; no code of theirs is here.  ``libraries/`` says how each of their
functions is called and what it ought to return: one case is one function.

A row of the table is a kernel: a ``@triton.jit`` function, or an entry of a PTX module,
that a case launched.  The results are in ``docs/corpus.json``, and the page
``docs/corpus.md`` is made from them.
"""
