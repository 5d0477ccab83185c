"""Kernels as users have them: also compared with a GPU, and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fragmenta.api.returning import like
from fragmenta.launch import kernel as records
from fragmenta.launch import result
from fragmenta.launch.limits import Limits

if TYPE_CHECKING:
    from fragmenta.cuda.tools.device import GPU
    from fragmenta.evidence.kernels import Verified
    from fragmenta.view.timeline import Timeline


class Result(result.Result):
    """What a launch did.

    ``counts`` are executed warp instructions by mnemonic; ``fidelity`` counts them by
    how sure their bits are.

    >>> Result({"mma": 2, "ret": 1}, {"h200": 2, "ieee": 1}, target="sm_90a")
    <Result: 3 warp instructions with the arithmetic of sm_90a, no problems>
    """

    def timeline(
        self,
        cluster: int | None = None,
        start: int | None = None,
        stop: int | None = None,
    ) -> Timeline:
        """A picture of what happened in one cluster of the launch, event by event.

        Without ``cluster`` it is the one with the first problem, or else the first one.
        ``start`` and ``stop`` choose events; see :mod:`fragmenta.view.timeline`.
        """
        from fragmenta.view.timeline import timeline

        return timeline(self, cluster, start, stop)


class Kernel(records.Kernel):
    """A kernel of a PTX file, which can be launched on the CPU."""

    results = Result

    @like(records.Kernel.launch, "Result")
    def launch(self, *operands: Any, **options: Any) -> Result:  # noqa: D102
        found = super().launch(*operands, **options)
        assert isinstance(found, Result)  # see results
        return found

    def verify(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Iterable[object] = (),
        *,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        shared: int = 0,
        target: str | None = None,
        contract: bool = True,
        limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
        gpu: GPU | None = None,
    ) -> Verified:
        """Launch it here and on the GPU, and compare every byte of every array.

        See :func:`fragmenta.evidence.kernels.verify`.
        """
        from fragmenta.evidence.kernels import verify

        return verify(
            self,
            grid,
            block,
            arguments,
            cluster=cluster,
            cooperative=cooperative,
            shared=shared,
            target=target,
            contract=contract,
            limits=limits,
            gpu=gpu,
        )


class Loaded(records.Loaded):
    """A PTX file that was read: what it says, and its kernels.

    Use :func:`parse` or :func:`load`.
    """

    kernel_type = Kernel

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by name."""
        return cast(Mapping[str, Kernel], super().kernels)


def parse(text: str | bytes, name: str = "") -> Loaded:
    """Read PTX text.

    >>> parse(".version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }")
    <PTX 8.0 for sm_80: f>
    """
    return Loaded(records.parse(text, name).module)


def load(path: str | Path) -> Loaded:
    """Read a PTX file.

    >>> load(".version 8.0 .target sm_80 .entry f() { ret; }")
    Traceback (most recent call last):
    fragmenta.errors.Error: this is PTX, not the path of a file; ptx.parse reads it
    """
    return Loaded(records.load(path).module)
