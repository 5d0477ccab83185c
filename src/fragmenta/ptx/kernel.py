"""What can be done with a kernel?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import Error, nearest, one_of
from fragmenta.isa.target import check_target
from fragmenta.ptx import reading
from fragmenta.ptx.arguments import Arguments
from fragmenta.ptx.engine.compiling import Compiled, compiled
from fragmenta.ptx.launching import STACK, Launch, check_shape, run
from fragmenta.ptx.module import Function, Module
from fragmenta.ptx.opcodes.contraction import contract
from fragmenta.ptx.result import Result
from fragmenta.ptx.variables import Variables


class Parameter(NamedTuple):
    """A parameter of a kernel."""

    name: str
    type: str
    size: int
