"""Where are the variables of a module, and what do they hold at first?

They keep their values from one launch to the next, as on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error, nearest, one_of
from fragmenta.ptx.arguments import Segment
from fragmenta.ptx.engine import layout
from fragmenta.ptx.module import Module


class Variables:
    """The memory of the ``.global`` and ``.const`` variables of a module."""

    def __init__(self, module: Module, addresses: dict[str, int]) -> None:
        self.segments: list[Segment] = []
        self._by_name: dict[str, Segment] = {}
        for variable in module.variables.values():
            if variable.space not in ("global", "const"):
                continue
            data = np.zeros(max(variable.size, len(variable.initial or b"")), np.uint8)
            if variable.initial:
                data[: len(variable.initial)] = np.frombuffer(
                    variable.initial, np.uint8
                )
            for place, symbol in variable.references:
                address = addresses[symbol.name] + symbol.offset
                data[place : place + 8] = np.frombuffer(
                    address.to_bytes(8, "little"), np.uint8
                )
            slot = addresses[variable.name] >> layout.SLOT_BITS
            made = Segment(variable.name, data, variable.space == "global", slot)
            self.segments.append(made)
            self._by_name[variable.name] = made

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The bytes of a variable; they may be changed."""
        if name not in self._by_name:
            raise Error(
                f"no variable {name}{nearest(name, self._by_name)}; there are "
                f"{one_of(self._by_name, 'and') or 'none'}"
            )
        return self._by_name[name].data
