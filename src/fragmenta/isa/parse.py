"""The former home of these names.  Remove it when nothing imports it any more."""

from fragmenta.isa.building import build, mma, wgmma
from fragmenta.isa.families import FAMILIES, FORMS, catalogue
from fragmenta.isa.reading import instruction
from fragmenta.isa.searching import find, search

__all__ = [
    "FAMILIES",
    "FORMS",
    "build",
    "catalogue",
    "find",
    "instruction",
    "mma",
    "search",
    "wgmma",
]
