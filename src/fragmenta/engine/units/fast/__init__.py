"""Fast paths: events of the units that machine code carries out without Python.

The state of the units is in memory (:mod:`fragmenta.engine.units.fast.layout`), where
both halves find it.  A fast path (:mod:`fragmenta.engine.units.fast.handlers`) does the
ordinary case of an instruction.  Whatever it does not expect, it leaves to Python
before it has changed anything.  So Python alone knows what is wrong with an
instruction, and says so.
"""
