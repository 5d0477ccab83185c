"""Second values: planes of shadow bits beside every register and every memory.

Each register and each memory has P shadows, its *planes*: so each bit of a value has P
bits of a second value.  What moves bits moves those of the planes along: a load, a
store, a shuffle, a copy, a ``prmt``.  Nothing here knows what the second values are.
An *algebra* does: it computes them where the hardware computes, and reads them at the
end.

All zero means that there is no second value: the value itself is meant.  So memory that
nobody has written, constants and whole numbers cost nothing.

- :mod:`fragmenta.engine.planes.code` writes the code: which registers are followed, and
  what is done beside each instruction;
- :mod:`fragmenta.engine.planes.memory` has the planes of memory while a launch runs;
- :mod:`fragmenta.engine.planes.elements` reads and writes second values in arrays;
- :mod:`fragmenta.engine.planes.products` has the products of matrices for algebras;
- :mod:`fragmenta.engine.planes.algebra` is what an algebra is made from.
"""
