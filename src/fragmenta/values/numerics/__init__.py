"""Numerics: where every lost bit of a launch was lost.

Beside each float goes a second value: what the same program would have in nearly exact
arithmetic.  Where an instruction computes, both are computed, and the site counts what
the instruction lost.  A result that is NaN or infinite has a node instead, which says
where it was born and which way it came.
"""
