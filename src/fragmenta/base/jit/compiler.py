"""Compiles traced functions, keeps their machine code, and calls it.

Machine code depends only on the trace, the processor and the version of LLVM.
These are its key in the user's cache (:mod:`fragmenta.base.jit.cache`).  A function
is always traced again: that is quick, and it shows whether the machine code in the
cache is still the right one.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from llvmlite import __version__, binding, ir
from llvmlite.binding import ffi

from fragmenta.base.arrays.checks import address_of
from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.threads import WORTH_THREADS, share_out
from fragmenta.base.jit.cache import Cache
from fragmenta.base.jit.engines import Closable, Engine, LLVMEngine, closing, compiling
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    Code,
    Memory,
    Trace,
    Value,
)
from fragmenta.base.progress import notice
from fragmenta.errors import one_of


class LlvmModule(Closable, Protocol):
    """A module in LLVM's memory: ``llvmlite.binding.ModuleRef``."""

    triple: str
    data_layout: str


class TargetMachine(Closable, Protocol):
    """LLVM's description of a processor: ``llvmlite.binding.TargetMachine``."""

    triple: str
    target_data: object

    def emit_assembly(self, module: LlvmModule) -> str:
        """The machine code of a module, as text."""


class Pointer(NamedTuple):
    """A parameter that is an array."""

    of: Type


def pointer(of: Type) -> Pointer:
    """The type of a parameter that is an array of numbers."""
    return Pointer(of)


# The NumPy types that an array of each type may have.  A kernel decides itself
# whether its integers are signed.
_KINDS = {
    I8: (np.uint8, np.int8, np.bool_),
    I16: (np.uint16, np.int16),
    I32: (np.uint32, np.int32),
    I64: (np.uint64, np.int64),
    F32: (np.float32,),
    F64: (np.float64,),
}
_Scalar: TypeAlias = "type[ctypes._SimpleCData[int] | ctypes._SimpleCData[float]]"
_ALLOWED = {of: frozenset(map(np.dtype, kinds)) for of, kinds in _KINDS.items()}
_SCALARS: dict[Type, _Scalar] = {
    I32: ctypes.c_int32,
    I64: ctypes.c_int64,
    F64: ctypes.c_double,
}


def type_of(kind: np.dtype[np.generic]) -> Type:
    """The type in a kernel for a NumPy type.

    >>> str(type_of(np.dtype(np.uint16)))
    'i16'
    """
    found: Type = next(of for of, kinds in _ALLOWED.items() if kind in kinds)
    return found


class Traced:
    """A traced function; compiled when it is first called.

    >>> from fragmenta.base.jit.compiler import kernel, pointer
    >>> from fragmenta.base.jit.trace import I64, F64
    >>> @kernel(x=pointer(F64), count=I64)
    ... def double(code, x, count):
    ...     with code.loop(count) as i:
    ...         x[i] = x[i] + x[i]
    >>> x = np.arange(3.0)
    >>> double(x, 3)
    >>> x
    array([0., 2., 4.])
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, Type | Pointer],
        trace: Trace,
        returns: Type | None = None,
        calls: Mapping[str, Traced] | None = None,
    ) -> None:
        """Trace a function; ``calls`` are those that it calls, by name.

        The trace finds the address of one with :func:`address_of_call`.
        """
        self.name = name
        self.parameters = parameters
        self.calls = calls or {}
        self._trace = trace
        self._returns = returns
        self._key = ""
        self._lock = Lock()
        self._call: Callable[..., int] | None = None
        self._engine: Engine | None = None
        self._address = 0
        self._arrays = [
            (place, _ALLOWED[of.of])
            for place, of in enumerate(parameters.values())
            if isinstance(of, Pointer)
        ]

    @property
    def address(self) -> int:
        """Where the machine code begins; valid as long as this object lives."""
        self.compile()
        return self._address

    def __call__(self, *arguments: object) -> int:
        """Run it; the number that it returns, if there is one.

        Arrays must be contiguous and have the declared types.
        """
        words = self._words(arguments)
        call = self._call or self.compile()
        return call(*words)

    def bind(self, *arguments: object) -> Callable[..., int]:
        """The machine code with its first arguments, to be called with the others.

        A call then takes little time: nothing is checked.  Arrays among the others are
        given as addresses.
        """
        words = self._words(arguments)
        call = self._call or self.compile()

        def run(*others: int, kept: object = (self, arguments)) -> int:
            return call(*words, *others)

        return run

    def _words(self, arguments: Iterable[object]) -> list[object]:
        """Arguments as the machine code takes them: arrays by their addresses."""
        words = list(arguments)
        for place, allowed in self._arrays:
            if place >= len(words):
                break
            array = words[place]
            if (
                not isinstance(array, np.ndarray)
                or array.dtype not in allowed
                or not array.flags.c_contiguous
            ):
                name = list(self.parameters)[place]
                raise TypeError(
                    f"{self.name}: {name} must be a contiguous array of "
                    f"{one_of(sorted(map(str, allowed)))}; given {_about(array)}"
                )
            words[place] = address_of(array)
        return words

    def kept(self, rooms: Iterable[str], key: object) -> Traced:
        """The same function, which is not traced if its machine code is in the cache.

        ``rooms`` are those whose modules write its code.  The representation of ``key``
        says all that its code depends on besides.
        """
        self._key = "\0".join(["kept", digest_of(*rooms), self.name, repr(key)])
        return self

    def compile(self) -> Callable[..., int]:
        """The machine code, ready to be called."""
        if self._call is None:
            _compile_all(list(self.calls.values()))  # not locked: others may wait here
        with self._lock:
            if self._call is None:
                self._engine = load([self._object()])
                self._address = self._engine.get_function_address(self.name)
                for name, each in self.calls.items():
                    place = self._engine.get_global_value_address(name)
                    ctypes.c_int64.from_address(place).value = each.address
                kinds = [
                    ctypes.c_void_p if isinstance(of, Pointer) else _SCALARS[of]
                    for of in self.parameters.values()
                ]
                returns = _SCALARS[self._returns] if self._returns else None
                self._call = ctypes.CFUNCTYPE(returns, *kinds)(self._address)
            return self._call

    def _object(self) -> bytes:
        if not self._key:
            return _object(self.name, self.text())
        key = "\0".join([self._key, __version__, *processor()])
        disk = Cache.present()
        found = disk.get(key)
        if found is None:
            found = _object(self.name, self.text())
            disk.put(key, found)
        return found

    def text(self) -> str:
        """The function in LLVM's intermediate language."""
        module = ir.Module(self.name)
        kinds = [
            of.of.as_pointer() if isinstance(of, Pointer) else of
            for of in self.parameters.values()
        ]
        returns = self._returns or ir.VoidType()
        function = ir.Function(module, ir.FunctionType(returns, kinds), self.name)
        code = Code(function)
        given: list[Memory | Value] = []
        for argument, of in zip(function.args, self.parameters.values(), strict=True):
            if isinstance(of, Pointer):
                argument.add_attribute("noalias")
                given.append(Memory(code.builder, argument, of.of))
            else:
                given.append(Value(code.builder, argument))
        code.close(self._trace(code, *given))
        return str(module)

    def optimised(self) -> str:
        """The function in LLVM's intermediate language, after its passes."""
        with _optimized(self.text()) as (_, module):
            return str(module)

    def assembly(self) -> str:
        """The machine code as assembly text, for tuning."""
        with _optimized(self.text()) as (machine, module):
            return machine.emit_assembly(module)


def kernel(**parameters: Type | Pointer) -> Callable[[Trace], Traced]:
    """Make a kernel of a function; ``parameters`` are those after ``code``."""

    def make(trace: Trace) -> Traced:
        return Traced(trace.__name__, parameters, trace)

    return make


def _compile_all(functions: list[Traced]) -> None:
    """Compile functions, on all cores."""

    def compile_some(first: int, last: int) -> None:
        for each in functions[first:last]:
            each.compile()

    if functions:
        share_out(compile_some, len(functions), WORTH_THREADS)


@cache
def digest_of(*rooms: str) -> str:
    """A hash of the texts of all modules of jit and of other rooms."""
    total = hashlib.sha256()
    for room in ("base/jit", *rooms):
        folder = files("fragmenta").joinpath(*room.split("/"))
        for name, item in sorted((item.name, item) for item in folder.iterdir()):
            if name.endswith(".py"):
                total.update(item.read_bytes())
    return total.hexdigest()


def address_of_call(code: Code, name: str) -> Value:
    """The address of a function that a traced function calls.

    Addresses change from process to process, and machine code is kept.  So they are in
    variables beside it, which are set when it is loaded.
    """
    module = code.builder.module
    held = module.globals.get(name)
    if held is None:
        held = ir.GlobalVariable(module, I64, name)
        held.initializer = ir.Constant(I64, 0)
    return Value(code.builder, code.builder.load(held))


def _machine(level: int = 3) -> TargetMachine:
    """LLVM's description of this processor; each engine needs its own."""
    cpu, features = processor()
    target = binding.Target.from_default_triple()
    machine: TargetMachine = target.create_target_machine(
        cpu=cpu,
        features=features,
        opt=level,
        jit=True,
        codemodel=_fast_selection() if level == 0 else "jitdefault",
    )
    return machine


@cache
def _fast_selection() -> str:
    """Let LLVM select instructions in its fast way; the code model that this needs.

    The fast way takes half of the time, and on AArch64 its code is shorter, too.  There
    a global option of LLVM chooses another way; it concerns only code that is not
    optimised.  Calls of other object files are as far as before.

    On x86-64, the fast way has calls only in the small code model.  Its addresses have
    32 bits, also those of tables of jumps, and memory of this process is further away.
    """
    if binding.get_default_triple().split("-")[0] not in ("aarch64", "arm64"):
        return "jitdefault"
    binding.set_option("fragmenta", "-aarch64-enable-global-isel-at-O=-1")
    return "small"


def _about(given: object) -> str:
    if not isinstance(given, np.ndarray):
        return type(given).__name__
    return f"{given.dtype}, contiguous: {given.flags.c_contiguous}"


@cache
def processor() -> tuple[str, str]:
    """The name and the features of this processor."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    _fast_selection()  # an option of LLVM changes before any thread compiles
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


@contextmanager
def _parsed(text: str, machine: TargetMachine) -> Iterator[LlvmModule]:
    """A module in a context of its own, so that threads can compile several."""
    context = binding.create_context()
    with closing(context):
        module: LlvmModule = binding.parse_assembly(text, context)
        with closing(module):
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            yield module


@contextmanager
def _optimized(text: str, level: int = 3) -> Iterator[tuple[TargetMachine, LlvmModule]]:
    """A module after LLVM's passes, and the machine that it was optimised for."""
    machine = _machine(1 if level == 1 else 3)
    with closing(machine), _parsed(text, machine) as module:
        options = binding.create_pipeline_tuning_options(speed_level=level)
        builder = binding.create_pass_builder(machine, options)
        passes = _few_passes() if level == 1 else builder.getModulePassManager()
        with closing(options, builder, passes):
            _without_lock("LLVMPY_RunNewModulePassManager")(passes, module, builder)
        yield machine, module


def _few_passes() -> Any:
    """Passes that clean up what was traced; without those that copy code.

    They take a third of the time of LLVM's own level 1, and half of the machine code is
    left to write.
    """
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    passes.add_jump_threading_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_store_elimination_pass()
    return passes


def _emitted(machine: TargetMachine, module: LlvmModule) -> bytes:
    """The machine code of a module as an object file."""
    with ffi.OutputString() as why:
        emit = _without_lock("LLVMPY_TargetMachineEmitToMemory")
        buffer = emit(machine, module, 1, why)
        if not buffer:
            raise RuntimeError(str(why))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _without_lock(name: str) -> Callable[..., Any]:
    """A function of LLVM that several threads may be in.

    llvmlite lets one thread at a time into LLVM.  The two functions that take long
    use nothing but a module, its context and its machine, and each thread has its own.
    """
    function = getattr(ffi.lib, name)
    found: Callable[..., Any] = getattr(function, "_cfn", function)
    # As a decorator: nothing is freed while a thread is in it.
    return compiling()(found)


def _object(name: str, text: str) -> bytes:
    """The machine code of a module as an object file, from the cache if it is there."""
    kept = Cache.present()
    key = "\0".join(["llvm", __version__, *processor(), text])
    found = kept.get(key)
    if found is None:
        with notice(f"compiling {name}, once"):
            made = object_code(text, optimise=3)
        kept.put(key, made)
        return made
    return found


def object_code(text: str, optimise: int) -> bytes:
    """The machine code of a module as an object file.

    With ``optimise`` 0 nothing is optimised: long code is then compiled quickly.  With
    1, a few passes run, and from 2 on LLVM's own of that level.
    """
    if optimise:
        with _optimized(text, optimise) as (machine, module):
            return _emitted(machine, module)
    machine = _machine(0)
    with closing(machine), _parsed(text, machine) as module:
        return _emitted(machine, module)


def load(objects: Iterable[bytes]) -> Engine:
    """An engine that holds the machine code of object files, linked together."""
    processor()  # LLVM must be ready

    def make() -> LLVMEngine:
        empty = binding.parse_assembly("")
        engine: LLVMEngine = binding.create_mcjit_compiler(empty, _machine())
        try:
            for each in objects:
                engine.add_object_file(binding.ObjectFileRef.from_data(each))
            engine.finalize_object()
        except BaseException:
            engine.close()
            raise
        return engine

    return Engine(make)
