"""What of Python and its libraries the judge understands in the host of kernels.

A function that is not here is not understood: then nothing is said of a candidate that
calls it.  Everything here is harmless in the way that its group says.
"""

from __future__ import annotations

FORM = frozenset(
    [
        *("builtins.len", "builtins.isinstance", "builtins.hasattr"),
        *("builtins.callable", "builtins.issubclass", "builtins.type"),
        *("numpy.issubdtype", "numpy.result_type", "numpy.shape", "numpy.ndim"),
        *("numpy.size", "torch.is_tensor", "torch.is_floating_point"),
    ]
)
"""They say the form of what they get, not its contents."""
NUMBERS = frozenset(
    [
        *("builtins.int", "builtins.float", "builtins.bool", "numpy.float32"),
        *("numpy.float64", "numpy.int32", "numpy.int64", "numpy.uint32"),
        *("numpy.uint64", "numpy.intp", "numpy.bool_"),
    ]
)
"""They make a number, perhaps of an element."""
WRAPPING = frozenset(
    [
        *("numpy.float16", "numpy.int16", "numpy.uint16", "numpy.int8", "numpy.uint8"),
        *("numpy.byte", "numpy.ubyte", "numpy.short", "numpy.half", "numpy.ushort"),
    ]
)
"""They make numbers of few bits, which wrap around."""
BOXES = frozenset(
    [
        *("builtins.tuple", "builtins.list", "builtins.dict", "builtins.set"),
        *("builtins.zip", "builtins.enumerate", "builtins.reversed"),
        *("builtins.frozenset", "fragmenta.ptx.struct", "builtins.slice"),
    ]
)
"""What they give holds what they get."""
PURE = frozenset(
    [
        *("builtins.abs", "builtins.min", "builtins.max", "builtins.round"),
        *("builtins.divmod", "builtins.pow", "builtins.str", "builtins.repr"),
        *("builtins.format", "builtins.sum", "builtins.any", "builtins.all"),
        *("builtins.print", "builtins.super", "builtins.range", "builtins.object"),
        *("numpy.dtype", "numpy.finfo", "numpy.iinfo", "numpy.prod", "numpy.ceil"),
        *("numpy.errstate", "warnings.warn", "functools.lru_cache"),
        *("functools.cache", "functools.wraps", "dataclasses.dataclass"),
        *("dataclasses.field", "enum.auto"),
        *("string.Template", "textwrap.dedent", "textwrap.indent"),
        *("logging.getLogger", "logging.debug", "logging.info", "logging.warning"),
        *("logging.error", "logging.basicConfig", "typing.", "triton.cdiv"),
        *("logging.NullHandler", "logging.StreamHandler"),
        *("triton.next_power_of_2", "triton.Config", "triton.autotune"),
        *("triton.heuristics", "triton.language.", "torch.device", "torch.no_grad"),
        *("torch.cuda.current_stream", "torch.cuda.synchronize", "torch.Size"),
        *("torch.cuda.is_available", "torch.cuda.current_device", "torch.finfo"),
        *("torch.cuda.device", "torch.manual_seed", "torch.inference_mode"),
    ]
)
"""They make numbers and texts of numbers and texts.  A name with a dot: all in it."""
OF_SIZES = frozenset(
    [
        *(f"math.{each}" for each in ("ceil", "floor", "sqrt", "isqrt", "log", "log2")),
        *(f"math.{each}" for each in ("prod", "pi", "inf", "nan", "e")),
        *("numpy.sqrt", "numpy.log2", "numpy.log", "numpy.arange", "numpy.tile"),
        *("numpy.repeat", "numpy.inf", "numpy.pi", "numpy.sum"),
    ]
)
"""Of the arithmetic of libraries, what may be done with sizes: it grows with them."""
NEW = frozenset(
    [
        *("numpy.empty", "numpy.zeros", "numpy.ones", "numpy.full", "numpy.arange"),
        *("numpy.empty_like", "numpy.zeros_like", "numpy.ones_like", "numpy.eye"),
        *("numpy.full_like", "numpy.linspace", "numpy.ndarray", "numpy.identity"),
        *("fragmenta.ptx.empty", "torch.empty", "torch.zeros", "torch.ones"),
        *("torch.full", "torch.arange", "torch.empty_like", "torch.zeros_like"),
        *("torch.ones_like", "torch.full_like", "torch.empty_strided", "torch.eye"),
        *("torch.randn", "torch.rand"),
    ]
)
"""New arrays, with numbers that do not come from others."""
COPIES = frozenset(
    [
        *("numpy.ascontiguousarray", "numpy.asarray", "numpy.array", "numpy.pad"),
        *("numpy.asfortranarray", "numpy.reshape", "numpy.ravel", "numpy.transpose"),
        *("numpy.concatenate", "numpy.stack", "numpy.vstack", "numpy.hstack"),
        *("numpy.broadcast_to", "numpy.expand_dims", "numpy.squeeze", "numpy.copy"),
        *("numpy.atleast_1d", "numpy.atleast_2d", "numpy.moveaxis", "numpy.require"),
        *("numpy.swapaxes", "fragmenta.ptx.pointer", "fragmenta.ptx.tensor_map"),
        *("torch.reshape", "torch.transpose", "torch.stack", "torch.cat"),
        *("torch.clone", "torch.as_tensor", "torch.tensor", "torch.permute"),
        *("torch.nn.functional.pad", "torch.nn.Parameter", "torch.flatten"),
        *("torch.squeeze", "torch.unsqueeze"),
    ]
)
"""Arrays with the elements of what they get, moved or in another type."""
TABLES = frozenset(
    f"numpy.{each}"
    for each in (
        *("cos", "sin", "exp", "exp2", "log", "log2", "sqrt", "outer", "power"),
        *("multiply", "add", "subtract", "divide", "tile", "repeat", "meshgrid"),
        *("reciprocal", "cumsum", "arctan", "tan", "pi", "inf", "float_power"),
        *("abs", "negative", "flip", "roll", "triu", "tril", "sum", "mean"),
    )
)
"""Arithmetic, which a host may do with tables, and not with inputs or results."""
TORCH = frozenset(
    f"torch.{each}"
    for each in (
        *("sum", "mean", "add", "mul", "div", "sqrt", "rsqrt", "exp", "log", "abs"),
        *("cos", "sin", "outer", "pow", "sub", "neg", "max", "min", "amax", "amin"),
        *("reciprocal", "square", "cumsum", "triu", "tril", "log2", "exp2", "linspace"),
        *("matmul", "mm", "bmm", "einsum", "softmax", "relu", "sigmoid", "tanh"),
        *("nn.functional.linear", "nn.functional.relu", "nn.functional.softmax"),
        *("nn.functional.conv2d", "nn.functional.layer_norm", "nn.functional.gelu"),
    )
)
"""Operators of PyTorch: what they read is counted."""
KERNELS = frozenset(
    [
        *("fragmenta.ptx.RawKernel", "fragmenta.ptx.RawModule", "fragmenta.ptx.parse"),
        "torch.utils.cpp_extension.load_inline",
    ]
)
"""They make kernels."""
CLASSES = frozenset(
    [
        *("builtins.object", "torch.nn.Module", "typing.NamedTuple", "enum.Enum"),
        *("enum.IntEnum", "builtins.Exception", "builtins.ValueError"),
        *("builtins.RuntimeError", "builtins.TypeError", "typing.Protocol"),
    ]
)
"""Classes that others may extend."""
LAYERS = "torch.nn."
"""Layers of PyTorch; what they compute is counted."""
OF_LAYERS = frozenset(
    [
        *("num_groups", "num_channels", "num_features", "eps", "momentum", "affine"),
        *("in_features", "out_features", "in_channels", "out_channels", "groups"),
        *("kernel_size", "stride", "padding", "dilation", "normalized_shape"),
        *("num_embeddings", "embedding_dim", "padding_idx", "negative_slope", "alpha"),
        *("p", "dim", "training", "inplace", "num_heads", "embed_dim", "head_dim"),
    ]
)
"""Attributes of layers that say how they were made."""
SIZES = frozenset(
    [
        *("shape", "size", "ndim", "dtype", "strides", "itemsize", "nbytes", "flags"),
        *("device", "is_cuda", "layout", "requires_grad", "is_contiguous", "numel"),
        *("dim", "stride", "element_size", "data_ptr", "is_floating_point", "nelement"),
        *("get_device", "storage_offset", "training"),
    ]
)
"""Attributes and methods of arrays that say their form."""
MOVES = frozenset(
    [
        *("T", "mT", "reshape", "view", "astype", "copy", "ravel", "flatten"),
        *("transpose", "squeeze", "swapaxes", "contiguous", "to", "cuda", "detach"),
        *("expand", "unsqueeze", "permute", "t", "float", "half", "int", "long"),
        *("clone", "bfloat16", "data", "type", "view_as", "reshape_as", "expand_as"),
        *("chunk", "split", "unbind", "narrow", "double", "flat", "fill", "zero_"),
        *("fill_", "copy_", "weight", "bias", "real", "type_as"),
    ]
)
"""Those that move elements, or give them another type."""
NEW_OF = frozenset(["new_empty", "new_zeros", "new_ones", "new_full"])
"""Methods that make new arrays."""
COUNTED = frozenset(
    [
        *("sum", "mean", "add_", "mul_", "div_", "sqrt", "abs", "max", "min", "amax"),
        *("mul", "add", "div", "sub", "pow", "exp", "log", "rsqrt", "clamp", "amin"),
        *(
            "cos",
            "sin",
            "outer",
            "neg",
            "reciprocal",
            "square",
            "cumsum",
            "masked_fill",
        ),
    ]
)
"""Methods of tensors: operators, whose elements are counted."""
PLAIN_METHODS = frozenset(
    [
        *("format", "join", "replace", "strip", "lower", "upper", "split", "index"),
        *("splitlines", "substitute", "safe_substitute", "startswith", "endswith"),
        *("encode", "bit_length", "count", "info", "debug", "warning", "error"),
        *("newbyteorder", "is_integer", "wait_stream", "synchronize", "items", "get"),
        *("keys", "values", "rstrip", "lstrip", "removeprefix", "removesuffix"),
    ]
)
"""Methods of numbers, texts, types and logs that change nothing."""
TEXTS = frozenset(
    [
        *("format", "join", "replace", "substitute", "safe_substitute", "encode"),
        *("info", "debug", "warning", "error", "get", "bit_length", "newbyteorder"),
    ]
)
"""Those of them that may get a size: it goes into a text, or into its length."""
OF_BOXES = frozenset(
    [
        *("get", "setdefault", "items", "values", "keys", "copy", "index", "count"),
        *("append", "extend", "add", "insert", "update", "format", "join"),
    ]
)
"""Methods of lists, tuples and dictionaries."""
OF_KERNELS = frozenset(
    [
        *("get_function", "get_global", "kernels", "launch", "compile", "name"),
        "max_dynamic_shared_size_bytes",
    ]
)
"""Attributes of kernels and modules."""
METHODS = frozenset(["__init__", "__call__", "__post_init__", "__repr__", "__str__"])
"""Methods with these names do what they say."""
DECORATORS = frozenset(
    [
        *("functools.lru_cache", "functools.cache", "functools.cached_property"),
        *("builtins.staticmethod", "builtins.classmethod", "builtins.property"),
        *("dataclasses.dataclass", "triton.jit", "triton.autotune", "torch.no_grad"),
        *("triton.heuristics", "torch.inference_mode"),
    ]
)
MODULES = frozenset(
    [
        *("numpy", "fragmenta", "torch", "triton", "math", "functools", "dataclasses"),
        *("typing", "collections", "enum", "logging", "warnings", "textwrap"),
        *("string", "argparse", "__future__"),
    ]
)
"""Modules that may be imported."""


def is_arithmetic(name: str) -> bool:
    """Whether a function computes numbers from numbers, in ways that may choose.

    >>> is_arithmetic("math.isclose"), is_arithmetic("builtins.len")
    (True, False)
    """
    return name.startswith("math.") or name in TABLES


def is_in(name: str, group: frozenset[str]) -> bool:
    """Whether a name, or the module it is in, is in a group.

    >>> is_in("typing.cast", PURE), is_in("numpy.sort", TABLES)
    (True, False)
    """
    return name in group or f"{name.rpartition('.')[0]}." in group
