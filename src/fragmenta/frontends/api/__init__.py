"""The classes and functions that users see: ``fm.instruction``, ``op.execute`` …

The rooms below pass records (:class:`fragmenta.reference.isa.instruction.Instruction`,
:class:`fragmenta.reference.registers.fragment.Fragment` …) and have functions that take
them. Here each record has a class that extends it by methods, each of which calls one
of those functions.  A room is loaded when a method that needs it is called.  A function
that returns a record below returns an object of its class here.

Only what users call imports this room: the packages' tables of names (``fragmenta``,
``fragmenta.ptx``, ``fragmenta.wmma``, ``fragmenta.tensor_memory``), front ends such as
``fragmenta.triton``, and the command line.
"""
