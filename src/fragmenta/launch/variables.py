"""The memory of the variables of a module, and their first values.

They keep their values from one launch to the next, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import as_array
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arguments import Segment
from fragmenta.engine.simt.compiled import aligned
from fragmenta.errors import Error, ShapeError, ValueRangeError, nearest, one_of
from fragmenta.ptx.module import Module, Variable, type_bytes


class Variables:
    """The memory of the ``.global`` and ``.const`` variables of a module.

    >>> from fragmenta import ptx
    >>> module = ptx.parse('''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .const .f32 factor = 0f40000000;
    ... .entry f() { ret; }''')
    >>> module.variables
    Variables(factor: 4 bytes)
    >>> module.variables["factor"] = np.float32(3)
    >>> module.variables["factor"].view(np.float32)
    array([3.], dtype=float32)
    """

    def __init__(
        self,
        module: Module,
        addresses: dict[str, int],
        room: Callable[[int, str], None] = lambda size, what: None,
        memory: Callable[[int], NDArray[np.uint8]] = aligned,
    ) -> None:
        """``room`` refuses if there is no memory for so many bytes.

        ``memory`` makes zeroed memory.
        """
        _check_sizes(module, room)
        self.segments: list[Segment] = []
        self._data: dict[str, NDArray[np.uint8]] = {}
        for variable in module.variables.values():
            if variable.space not in ("global", "const"):
                continue
            data = self._data[variable.name] = _first_bytes(variable, addresses, memory)
            if variable.name in addresses:  # otherwise nothing names it
                slot = addresses[variable.name] >> layout.SLOT_BITS
                writable = variable.space == "global"
                self.segments.append(Segment(variable.name, data, writable, slot))

    def __getitem__(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a variable; they may be changed."""
        if name not in self._data:
            raise Error(
                f"no variable {name}{nearest(name, self._data)}; there are "
                f"{one_of(self._data, 'and') or 'none'}"
            )
        return self._data[name]

    def __setitem__(self, name: str, value: object) -> None:
        """Set all bytes of a variable, to those of an array of the same size."""
        data = self[name]
        given = as_array(
            np.frombuffer(value, np.uint8)
            if isinstance(value, bytes | bytearray | memoryview)
            else value
        )
        if given.nbytes != data.size:
            raise ShapeError(
                f"{name} has {data.size} bytes; given {given.nbytes} bytes, "
                f"{given.dtype} of shape {given.shape}"
            )
        data[:] = np.frombuffer(given.tobytes(), np.uint8)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        sizes = (f"{name}: {data.size} bytes" for name, data in self._data.items())
        return f"Variables({', '.join(sizes)})"


def _check_sizes(module: Module, room: Callable[[int, str], None]) -> None:
    """Refuse variables for which there is no memory, or no addresses."""
    kept = [v for v in module.variables.values() if v.space in ("global", "const")]
    room(sum(each.size for each in kept), "the variables of the module")
    for each in kept:
        if each.size > layout.FIRST_SLOT:
            raise ValueRangeError(
                f"{each.name} has {each.size:,} bytes; a variable has at most "
                f"{layout.FIRST_SLOT:,}"
            )


def _first_bytes(
    variable: Variable,
    addresses: dict[str, int],
    memory: Callable[[int], NDArray[np.uint8]],
) -> NDArray[np.uint8]:
    """The memory of a variable before the first launch."""
    initial = variable.initial or b""
    data = memory(max(variable.size, len(initial)))
    data[: len(initial)] = np.frombuffer(initial, np.uint8)
    size = type_bytes(variable.type)
    size = 8 if size == 1 else size  # the bytes of an address, in a row
    for place, symbol in variable.references:
        address = (addresses[symbol.name] + symbol.offset).to_bytes(8, "little")
        data[place : place + size] = np.frombuffer(address[:size], np.uint8)
    for place, byte, symbol in variable.byte_references:
        address = (addresses[symbol.name] + symbol.offset).to_bytes(8, "little")
        data[place] = address[byte]
    return data
