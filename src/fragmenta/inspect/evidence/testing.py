"""Tests of kernels that run on a GPU, or on the CPU without one.

Tests get a launcher from the fixture ``gpu`` of
:mod:`fragmenta.inspect.evidence.plugin`, or from :func:`launcher`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array
from fragmenta.cuda.tools import device, programs
from fragmenta.cuda.tools.device import GPU, Array
from fragmenta.cuda.tools.raw import RawKernel
from fragmenta.errors import BadCall, NoDevice, nearest, one_of
from fragmenta.inspect.evidence.kernels import PreparedLaunch, anew, assembled
from fragmenta.launch.kernel import Kernel, Loaded, parse
from fragmenta.launch.request import Extent
from fragmenta.launch.result import Result
from fragmenta.reference.isa.target import check_target

if TYPE_CHECKING:
    from fragmenta.inspect.sameness.calls import Call
    from fragmenta.inspect.sameness.deciding import Sameness

# ── the same bits ───────────────────────────────────────────────────────────


def assert_same_bits(got: ArrayLike, want: ArrayLike, most: int = 5) -> None:
    """Fail unless two arrays have the same type, shape and bits.

    The message shows the first elements that differ: place, bits and value of both.
    So -0.0 is not 0.0, and a NaN is equal to a NaN with the same bits only.

    >>> import numpy as np
    >>> assert_same_bits(np.float32([1, np.nan]), np.float32([1, np.nan]))
    >>> assert_same_bits(np.float32([1, 0, 3]), np.float32([1, -0.0, 3.0000002]))
    Traceback (most recent call last):
    ...
    AssertionError: 2 of 3 elements differ (float32, shape (3,)):
      [1]  0x00000000 0.0  is not  0x80000000 -0.0
      [2]  0x40400000 3.0  is not  0x40400001 3.0000002
    """
    __tracebackhide__ = True
    left, right = as_array(got), as_array(want)
    if left.dtype != right.dtype:
        raise AssertionError(f"the type is {left.dtype}, not {right.dtype}")
    if left.shape != right.shape:
        raise AssertionError(f"the shape is {left.shape}, not {right.shape}")
    bits, wanted = _bits(left), _bits(right)
    wrong = np.flatnonzero((bits != wanted).any(axis=1))
    if not wrong.size:
        return
    about = f"{left.dtype}, shape {left.shape}"
    lines = [f"{wrong.size:,} of {left.size:,} elements differ ({about}):"]
    for at in wrong[:most].tolist():
        place = ", ".join(str(int(i)) for i in np.unravel_index(at, left.shape))
        pair = (_shown(bits, left, at), _shown(wanted, right, at))
        lines.append(f"  [{place}]  {'  is not  '.join(pair)}")
    if wrong.size > most:
        lines.append(f"  … and {wrong.size - most:,} more")
    raise AssertionError("\n".join(lines))


def assert_same_bits_for_all_inputs(
    one: Call | Sequence[Call], other: Call | Sequence[Call], **options: Any
) -> Sameness:
    """Fail unless two launches leave the same bits for every input.

    Each is a :class:`fragmenta.ptx.Call`, or several; the options are those of
    :func:`fragmenta.ptx.same`.  The message says where their expressions part.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry k(.param .u64 x)"
    >>> text += "{.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [x]; ld.global.f32 %f,"
    >>> text += "[%a]; add.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }"
    >>> kernel = ptx.parse(text).kernels["k"]
    >>> x = np.ones(4, np.float32)
    >>> one, other = (ptx.Call(kernel, 1, 1, [x]) for _ in range(2))
    >>> print(assert_same_bits_for_all_inputs(one, other).verdict)
    same
    """
    __tracebackhide__ = True
    from fragmenta.inspect.sameness.deciding import same

    found = same(one, other, **options)
    if found.verdict != "same":
        raise AssertionError(str(found))
    return found


def _bits(array: Array) -> NDArray[np.uint8]:
    """The bytes of each element, the highest first."""
    if array.dtype.hasobject:
        raise BadCall("an array of Python objects has no bits to compare")
    data = np.frombuffer(array.tobytes(), np.uint8)
    data = data.reshape(array.size, array.itemsize)
    return data[:, ::-1] if sys.byteorder == "little" else data


def _shown(bits: NDArray[np.uint8], array: Array, at: int) -> str:
    return f"0x{bits[at].tobytes().hex()} {array.flat[at]!s}"


# ── launches ────────────────────────────────────────────────────────────────


class Language(Protocol):
    """Launches kernels of a front end, as Triton or Numba."""

    def takes(self, kernel: object) -> bool:
        """Whether it is a kernel of this front end."""

    def launch_here(
        self,
        target: str,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        **options: object,
    ) -> None:
        """Launch it on the CPU, for a target."""

    def launch_there(
        self,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        **options: object,
    ) -> None:
        """Launch it on a GPU; arrays are changed in place."""


class Launcher(Protocol):
    """Launches kernels, on a GPU or on the CPU."""

    @property
    def name(self) -> str:
        """The driver's name of the GPU, or the target whose bits the CPU computes."""

    @property
    def is_real(self) -> bool:
        """Whether a GPU runs the kernels."""

    @property
    def target(self) -> str:
        """The target of the GPU, such as ``sm_90a``."""

    def launch(
        self,
        code: object,
        name: str | None,
        grid: Extent,
        block: Extent | None = None,
        arguments: Sequence[object] = (),
        shared: int = 0,
        **options: object,
    ) -> None:
        """Launch a kernel and wait for it; arrays are changed in place.

        ``code`` is PTX, or what ``fragmenta.ptx`` makes of it, or a kernel of Triton or
        of Numba: it takes more ``options``, as when it is called (``BLOCK=64``,
        ``num_warps=4``).  ``.global`` variables have their first values in each launch.
        What the kernel prints is printed.
        """


def launcher(
    where: str = "auto", target: str = "sm_90a", languages: Sequence[Language] = ()
) -> Launcher:
    """A launcher on a GPU (``gpu``), on the CPU (``cpu``), or what there is (``auto``).

    ``languages`` are front ends whose kernels it takes.

    >>> cpu = launcher("cpu")
    >>> cpu.name, cpu.is_real
    ('sm_90a on the CPU', False)
    >>> code = '''.version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry seven(.param .u64 x) {
    ...     .reg .b64 %rd<2>;
    ...     ld.param.u64 %rd1, [x];
    ...     st.global.u32 [%rd1], 7;
    ...     ret;
    ... }'''
    >>> x = np.zeros(1, np.int32)
    >>> cpu.launch(code, "seven", 1, 1, [x])
    >>> x
    array([7], dtype=int32)
    """
    choices = ("auto", "gpu", "cpu")
    if where not in choices:
        raise BadCall(
            f"no {where}{nearest(where, choices)}; there are {one_of(choices)}"
        )
    target = check_target(target)
    if where != "cpu":
        try:
            return OnDevice(device.present(), languages)
        except NoDevice:
            if where == "gpu":
                raise
    return OnCPU(target, languages)


def chosen(code: object, name: str | None) -> Kernel:
    """The kernel of this name in PTX or in a module; without a name, the only one.

    >>> chosen(parse(".version 8.0 .target sm_80 .address_size 64"), "f")
    Traceback (most recent call last):
    ...
    fragmenta.errors.Error: no kernel f; there are none
    """
    if isinstance(code, RawKernel):
        code = code.kernel
    if isinstance(code, str):
        code = parse(code)
    if isinstance(code, Kernel):
        if name not in (None, code.name):
            raise BadCall(f"the kernel is {code.name}, not {name}")
        return code
    if not isinstance(code, Loaded):
        raise BadCall(
            "a kernel is given as PTX, by fragmenta.ptx, or as one of Triton or Numba; "
            f"given {type(code).__name__}"
        )
    if name is not None:
        return code.kernels[name]
    if len(code.kernels) != 1:
        raise BadCall(
            f"a name is needed; the kernels are {one_of(code.kernels, 'and') or 'none'}"
        )
    return next(iter(code.kernels.values()))


def _block(block: Extent | None, options: dict[str, object]) -> Extent:
    """The size of a block, which PTX does not say, and no other options."""
    if options:
        raise BadCall(f"a launch of PTX does not take {one_of(options, 'and')}")
    if block is None:
        raise BadCall("a launch of PTX needs block, the threads of a block")
    return block


class OnCPU:
    """A :class:`Launcher` without a GPU."""

    is_real = False

    def __init__(self, target: str, languages: Sequence[Language] = ()) -> None:
        self.target, self._languages = target, languages
        self.last: Result | None = None
        """What the last launch of PTX did; with ``numerics=True``, what it lost."""

    @property
    def name(self) -> str:
        """The GPU whose bits are returned."""
        return f"{self.target} on the CPU"

    def launch(
        self,
        code: object,
        name: str | None,
        grid: Extent,
        block: Extent | None = None,
        arguments: Sequence[object] = (),
        shared: int = 0,
        **options: object,
    ) -> None:
        """See :meth:`Launcher.launch`."""
        for each in self._languages:
            if each.takes(code):
                each.launch_here(self.target, code, grid, block, arguments, **options)
                return
        kernel = anew(chosen(code, name))
        how: dict[str, Any] = {
            name: options.pop(name) for name in ("numerics", "nan") if name in options
        }
        self.last = kernel.launch(
            grid,
            _block(block, options),
            arguments,
            shared=shared,
            target=self.target,
            **how,
        )
        sys.stdout.write(self.last.output)


class OnDevice:
    """A :class:`Launcher` on a GPU."""

    is_real = True

    def __init__(self, gpu: GPU, languages: Sequence[Language] = ()) -> None:
        self._gpu, self._languages = gpu, languages

    @property
    def name(self) -> str:
        """What the driver calls it."""
        return self._gpu.name

    @property
    def target(self) -> str:
        """Its own target."""
        return self._gpu.target

    def launch(
        self,
        code: object,
        name: str | None,
        grid: Extent,
        block: Extent | None = None,
        arguments: Sequence[object] = (),
        shared: int = 0,
        **options: object,
    ) -> None:
        """See :meth:`Launcher.launch`."""
        for each in self._languages:
            if each.takes(code):
                each.launch_there(code, grid, block, arguments, **options)
                return
        kernel = chosen(code, name)
        prepared = PreparedLaunch(kernel, arguments)
        size = _block(block, options)
        program = prepared.program(self._code(kernel), grid, size, shared)
        before = [each.bytes for each in prepared.held]
        done = programs.launch(self._gpu, program, before)
        for mine, its in zip(before, done.buffers, strict=True):
            if mine.flags.writeable:
                mine[...] = its
        sys.stdout.write(done.printed)

    def _code(self, kernel: Kernel) -> bytes:
        return assembled(kernel, self.target)
