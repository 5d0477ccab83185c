"""A stand-in for a Dask client: pickles what it is given, and runs it here."""

from collections.abc import Callable
from typing import Any

import cloudpickle


class Loopback:
    """Runs each portion at once; what goes to a worker and back is pickled."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.submitted: list[tuple[int, int]] = []

    def submit(
        self, function: Callable[[int, int], Any], first: int, last: int, *, pure: bool
    ) -> bytes:
        """Run a portion, as a worker does."""
        assert not pure
        self.submitted.append((first, last))
        sent = cloudpickle.loads(cloudpickle.dumps(function))
        result: bytes = cloudpickle.dumps(sent(first, last))
        return result

    def gather(self, futures: list[bytes]) -> list[Any]:
        """What came back."""
        return [cloudpickle.loads(each) for each in futures]

    def cancel(self, futures: list[bytes]) -> None:
        """Nothing is under way."""

    def nthreads(self) -> dict[str, int]:
        """One worker with all threads."""
        return {"here": self.threads}
