"""What does a whole kernel do?

parse(text), load(path)   read PTX
module.kernels            its kernels
kernel.launch(...)        run one on the CPU, with the bits that a GPU returns
pointer(array, offset)    an argument that points into an array
"""

from fragmenta.ptx.arguments import pointer
from fragmenta.ptx.kernel import Kernel, load, parse
from fragmenta.ptx.result import Result

__all__ = ["Kernel", "Result", "load", "parse", "pointer"]
