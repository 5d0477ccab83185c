"""Where launches come from: Python, libraries, whole programs, judged candidates.

api       the classes that users see: instructions, kernels, raw kernels
pool      processes that stay warm and launch kernels
programs  whole programs: the runtime and the driver that they see
triton    Triton kernels
judge     verdicts about kernels that machines write

Of Python's libraries:

numba     numba-cuda: ``with fragmenta.frontends.numba.on_cpu("sm_90a"):``
warp      NVIDIA Warp
tilelang  TileLang
cupy      CuPy's RawKernel and RawModule, for programs that ``import cupy``

Triton, Gluon, Helion and Inductor are in :mod:`fragmenta.triton`.  Programs of
cuda.core, PyCUDA, cuTile and the CuTe DSL run in ``fragmenta run``.  In a block
``with on_cpu(...)``, launches that the program writes for a GPU run here, with the bits
of the target, and are watched.  What a front end has to bring is in
:mod:`fragmenta.frontends.protocol`.
"""
