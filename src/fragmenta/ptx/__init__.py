"""What does a whole kernel do?"""

from fragmenta.ptx.reading import load, parse

__all__ = ["load", "parse"]
