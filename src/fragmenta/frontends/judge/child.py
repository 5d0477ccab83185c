"""The process that runs a candidate, or a reference: it follows an examiner's orders.

It is forked before the examiner knows anything about the task.  It gets a source text
and inputs, and sends outputs back.  Its launches are carried out by the examiner: what
a kernel did, and what was found about it, is never said by this process.
"""

from __future__ import annotations

import gc
import hashlib
import os
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, cast

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.arguments import Pointer, Struct
from fragmenta.errors import Error, MissingPackage
from fragmenta.frontends.judge import loading
from fragmenta.frontends.judge.confine import confine
from fragmenta.frontends.judge.held import free, hold, is_tensor
from fragmenta.frontends.judge.marking import NAME, Seen
from fragmenta.frontends.judge.messages import Gone, receive, send
from fragmenta.frontends.judge.tracer import Tracer
from fragmenta.frontends.judge.watching import Originals, Watcher
from fragmenta.frontends.judge.wire import Tree, arguments_json, dump
from fragmenta.frontends.pool.answers import Json, error_of, result_of
from fragmenta.frontends.pool.packing import pack, unpack
from fragmenta.launch import kernel as kernels
from fragmenta.launch.limits import Limits
from fragmenta.launch.request import LaunchRequest
from fragmenta.launch.result import Result

if TYPE_CHECKING:
    import torch

    from fragmenta.frontends.judge.libraries.torch_standin import OperatorLog

LAUNCH = "fragmenta.launch"
"""The audit event by which a kernel is launched."""
OPTIONS = ("cluster", "cooperative", "shared", "target", "contract")
"""The options of a launch that a candidate chooses; the examiner chooses others."""
MOST_TEXT = 4000
"""Characters of an error that are sent."""
REMEMBERED = 64
"""Outputs of earlier calls that must stay as they are."""
PATIENCE = 2.0
"""Seconds that threads of a candidate get to end after a call."""


def follow(line: socket.socket) -> None:
    """Follow orders until there is nobody to give any."""
    runner: Runner | None = None
    while True:
        try:
            order = cast("dict[str, Tree]", receive(line))
        except Gone:
            return
        try:
            if order["do"] in ("reference", "more"):
                from fragmenta.frontends.judge.reference import cases, more

                _enter(order)
                made = cases if order["do"] == "reference" else more
                answer: Tree = {"cases": made(order)}
            elif order["do"] == "load":
                runner = Runner(line, order)
                answer = {"confined": runner.confined}
            elif order["do"] == "reached":
                assert runner is not None
                answer = runner.reached()
            else:
                assert runner is not None
                answer = runner.call(order)
        except Gone:
            return
        except BaseException as error:
            answer = {**_error(error), "patched": runner.patched if runner else []}
        send(line, answer)


def _error(error: BaseException) -> dict[str, Tree]:
    """What went wrong, with the place in the candidate or the reference."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        each for each in frames if each.filename.endswith(("candidate.py", "nce.py"))
    ]
    where = f"line {own[-1].lineno}: " if own else ""
    said = f"{where}{type(error).__name__}: {error}"
    if isinstance(error, Error):  # its words are enough
        said = str(error)
    kind = "memory" if isinstance(error, MemoryError) else type(error).__name__
    return {"error": kind, "text": said[:MOST_TEXT], "kind": isinstance(error, Error)}


def _enter(order: dict[str, Tree]) -> list[str]:
    """Go to the folder of this process, with the limits of the examiner."""
    folder = Path(str(order["folder"]))
    os.chdir(folder)
    home = folder / "home"  # as for any program, it is not the current folder
    home.mkdir(exist_ok=True)
    os.environ["HOME"], os.environ["TMPDIR"] = str(home), str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    for name in [each for each in os.environ if each.startswith("FRAGMENTA_")]:
        del os.environ[name]
    seconds, memory = cast("float", order["seconds"]), cast("int", order["memory"])
    return confine(folder, Limits(seconds=seconds, memory=memory))


class Runner:
    """A candidate that was loaded, and what it did."""

    def __init__(self, line: socket.socket, order: dict[str, Tree]) -> None:
        self._line, self._convention = line, str(order["convention"])
        self._launches: list[list[tuple[int, int]]] = []
        """Where the regions of each launch of a call were: address and size."""
        self._known: set[str] = set()
        self._launched: set[tuple[str, str]] = set()
        """The kernels that were launched: the texts of their modules, and names."""
        self._models: dict[str, Callable[..., object]] = {}
        self._fitting: dict[str, bytes] = {}
        """The models that have the weights of the reference, and these weights."""
        self._before: dict[str, list[object]] = {}
        self._last: deque[tuple[object, bytes]] = deque(maxlen=REMEMBERED)
        """The outputs of calls, and a digest of what was in them."""
        folder = Path(str(order["folder"]))
        path = folder / "candidate.py"
        path.write_text(str(order["text"]), encoding="utf-8")
        kernels.Kernel.run = _runner()  # type: ignore[method-assign]
        self._record: OperatorLog | None = _libraries(str(order["target"]))
        self.confined = _enter(order)
        self._originals = Originals()
        for name in [
            each for each in sys.modules if each.startswith("fragmenta.judge")
        ]:
            del sys.modules[name]
        vars(sys.modules["fragmenta"]).pop("judge", None)
        code = loading.candidate_code(str(order["text"]), path)
        self._tracer, self._seen = Tracer(code), Seen()
        self._watcher = Watcher(str(path), self._tell, {LAUNCH: self._asked})
        self._watcher.start()
        module = loading.module_of(path, "candidate")
        vars(module)[NAME] = self._seen
        with self._tracer:
            exec(code, module.__dict__)
        self._make = loading.candidate_of(module, self._convention)

    def reached(self) -> Tree:
        """What ran so far, and the kernels that were never launched."""
        said = []
        if self._record is not None:
            from fragmenta.frontends.judge.libraries.load_inline import HOSTS

            said = [each for host in HOSTS for each in host.not_run()]
        idle = self._idle_kernels()
        return {
            "pairs": self._tracer.pairs(),
            "seen": self._seen.told(),
            "said": said,
            "idle": idle,
        }

    def _idle_kernels(self) -> list[list[object]]:
        """Kernels that were never launched, and how the candidate calls them."""
        found: list[list[object]] = []
        names = vars(sys.modules["candidate"])
        for each in gc.get_objects():
            if type(each).__module__ == "fragmenta.frontends.api.raw" and hasattr(
                each, "name"
            ):
                made = vars(each).get("kernel")
                text = made.loaded.module.text if made is not None else ""
                if made is None or (text, made.name) not in self._launched:
                    own = [name for name, value in names.items() if value is each]
                    found.append([each.name, own])
        return found

    def _tell(self, name: str, evidence: str) -> None:
        send(self._line, {"do": "saw", "name": name, "evidence": evidence})

    # ── a call ──────────────────────────────────────────────────────────────

    def call(self, order: dict[str, Tree]) -> Tree:
        """Call the candidate; its outputs, and what it did beside."""
        self._launches.clear()
        function = self._function(order)
        inputs = self._inputs(order)
        before = [_bytes(each) for each in _arrays(inputs)]
        places = [[*_memory(each)] for each in _arrays(inputs)]
        send(self._line, {"do": "begins", "inputs": places})
        threads = threading.active_count()
        if self._record is not None:
            self._record.restart()
            import torch

            with torch.no_grad(), self._tracer:
                made = function(*inputs)
        else:
            with self._tracer:
                made = function(*inputs)
        patched = self.patched  # before anything looks at the outputs
        self._plain_types(made)
        # What the reference changes in place is an output, too.
        written = cast("list[int]", order["written"])
        if written:
            found = _arrays(inputs)
            made = [made, *(found[each] for each in written)]
        outputs = hold(made)
        late = threading.active_count() > threads and self._changes(made)
        after = [_bytes(each) for each in _arrays(inputs)]
        record = self._record
        aliased = _aliased(_arrays(inputs), _arrays(made))
        reused = any(_digest(old) != was for old, was in self._last)
        # The next call gets its inputs where these are.
        last = [] if aliased else _arrays(made)
        self._last.extend((each, _digest(each)) for each in last)
        return {
            "outputs": outputs,
            "late": late,
            "reused": reused,
            "changed": [i for i, b in enumerate(before) if b != after[i]],
            "aliased": [] if written else aliased,
            "places": [self._place(each) for each in _arrays(made)],
            "operators": dict(record.operators) if record else {},
            "fits": _key(order) in self._fitting,
            "weights": self._weights(order),
            "earlier": dict(record.earlier) if record else {},
            "streams": record.waiting if record else 0,
            "patched": patched or self.patched,
        }

    def _plain_types(self, made: object) -> None:
        """Tell of outputs that are tensors of a class of their own."""
        for number, each in enumerate(_arrays(made)):
            kind = type(each)
            if kind not in _plain_kinds():
                said = f"output {number} is a {kind.__name__}, no plain tensor"
                self._tell("wrong-form", said)

    @property
    def patched(self) -> list[str]:
        """Functions of others that are no longer what they were."""
        return self._originals.changed()[:8]

    def _inputs(self, order: dict[str, Tree]) -> list[object]:
        """The inputs; they are where those of an earlier call with such sizes were.

        So a candidate that takes the address of an input for its contents is wrong.
        """
        made = cast("list[object]", free(order["inputs"], str(order["layout"])))
        others = [each for each in made if not _arrays(each)]
        key = str([*(_form(each) for each in _arrays(made)), others])
        before = self._before.setdefault(key, made)
        if before is not made:
            for old, new in zip(_arrays(before), _arrays(made), strict=True):
                _copy(old, new)
        return before

    def _function(self, order: dict[str, Tree]) -> Callable[..., object]:
        """The candidate; a model is made once for the same arguments."""
        if self._convention == loading.PLAIN:
            return self._make
        key = _key(order)
        if key not in self._models:
            import torch

            torch.manual_seed(cast("int", order["seed"]))
            init = cast("list[object]", free(order["init"]))
            if self._record is not None:
                self._record.restart()
            with self._tracer:
                model = cast("torch.nn.Module", self._make(*init))
            if self._record is not None:
                self._record.made()
            self._models[key] = model.eval() if order["evaluates"] else model
        self._give_weights(key, order["state"])
        return self._models[key]

    def _give_weights(self, key: str, given: Tree) -> None:
        """Give a model weights of the reference, in place, unless it has got them."""
        weights = dump(given)
        if self._fitting.get(key) == weights:
            return
        model = cast("torch.nn.Module", self._models[key])
        state = cast("dict[str, torch.Tensor]", free(given))
        own = {name: each.shape for name, each in model.state_dict().items()}
        if own == {name: each.shape for name, each in state.items()}:
            model.load_state_dict(state)
            self._fitting[key] = weights

    def _weights(self, order: dict[str, Tree]) -> int:
        """How many numbers the weights of the candidate's model are."""
        model = cast("torch.nn.Module | None", self._models.get(_key(order)))
        rows = [] if model is None else model.state_dict().values()
        return sum(each.numel() for each in rows)

    def _changes(self, made: object) -> bool:
        """Whether outputs change while threads of the candidate come to their end."""
        before = [_bytes(each) for each in _arrays(made)]
        for each in threading.enumerate():
            if each is not threading.current_thread():
                each.join(PATIENCE)
        return before != [_bytes(each) for each in _arrays(made)]

    def _place(self, value: object) -> Tree:
        """The launch and the region that an output is in; None if it is in none."""
        address, size = _memory(value)
        for number, regions in reversed([*enumerate(self._launches)]):
            for region, (start, length) in enumerate(regions):
                if start <= address and address + size <= start + length:
                    return [number, region, address - start, _strides(value)]
        return None

    # ── launches ────────────────────────────────────────────────────────────

    def _asked(self, answer: list[object], *given: object) -> None:
        """A launch is asked for; nothing of this is in the frames of its error."""
        try:
            answer += [self._launch(*given), None]  # type: ignore[arg-type]
        except Exception as error:
            answer += [None, error.with_traceback(None)]

    def _launch(self, kernel: kernels.Kernel, request: LaunchRequest) -> Result:
        arguments = request.arguments
        packed, memory = pack(arguments)
        text = kernel.loaded.module.text
        self._launched.add((text, kernel.name))
        digest = hashlib.sha256(text.encode()).hexdigest()
        given = _arguments(arguments)
        order = {
            "do": "launch",
            "digest": digest,
            "text": None if digest in self._known else text,
            "file": kernel.loaded.module.name,
            "name": kernel.name,
            "names": list(kernel.names),
            "language": list(kernel.language),
            "grid": _sizes(request.grid),
            "block": _sizes(request.block),
            "options": {name: _option(getattr(request, name)) for name in OPTIONS},
            "kept": dict(kernel.loaded.kept),
            "arguments": arguments_json(packed),
            "memory": memory,
        }
        self._known.add(digest)
        self._launches.append(_regions(given, unpack(packed, memory), memory))
        order["at"] = [start for start, _ in self._launches[-1]]
        if self._record is not None:
            self._record.launched()
        send(self._line, order)
        answer = cast("dict[str, Tree]", receive(self._line))
        if "error" in answer:
            self._launches.pop()  # the examiner does not count it, either
            raise error_of(cast("Json", answer["error"]))
        kernel.loaded.renew(cast("dict[str, bytes]", answer["kept"]))
        new = list(memory)
        for region, data in zip(
            packed.returned, cast("list[Array]", answer["memory"]), strict=True
        ):
            new[region] = data
        for old, made in zip(
            _launch_arrays(given), _launch_arrays(unpack(packed, new)), strict=True
        ):
            if old.flags.writeable:
                old[...] = made
        return result_of(cast("Json", answer["result"]))


def _key(order: dict[str, Tree]) -> str:
    """Which model a call is of: that of its sizes and arguments."""
    return f"{order['model']} {order['init']!r}"


def _runner() -> Callable[..., Result]:
    """What ``Kernel.run`` is in this process: it asks the examiner.

    The function itself leads nowhere: it raises an audit event, and the hook of this
    process, which nobody can get at, carries the launch out.
    """

    def run(kernel: object, request: object) -> Result:
        answer: list[object] = []
        sys.audit("fragmenta.launch", answer, kernel, request)
        made, error = answer
        if error is not None:
            raise error  # type: ignore[misc]
        return made  # type: ignore[return-value]

    names = {"sys": sys, "__builtins__": __builtins__, "__name__": "run"}
    return FunctionType(run.__code__, names, "run")


def _libraries(target: str) -> OperatorLog | None:
    """Let PyTorch have a GPU, if it is here, and record what it does."""
    if "torch" not in sys.modules:
        return None
    if "triton" not in sys.modules:
        raise MissingPackage(
            "candidates with PyTorch need Triton, which brings what seems to be a GPU; "
            "pip install 'fragmenta[triton]'"
        )
    from fragmenta.frontends.judge.libraries import (
        load_inline,
        torch_standin,
        triton_standin,
    )

    triton_standin.install(target)
    torch_standin.install()
    load_inline.install(target)
    return torch_standin.RECORD


def _arguments(arguments: object) -> list[object]:
    return list(cast("Sequence[object]", arguments))


def _launch_arrays(values: Sequence[object]) -> list[Array]:
    """The arrays among the arguments of a launch, in order."""
    from fragmenta.engine.simt.arguments import is_memory, memory_of

    found: list[Array] = []
    for each in values:
        if isinstance(each, Pointer):
            found.append(each.array)
        elif isinstance(each, Struct):
            found += [to.array for _, to in each.pointers]
        elif isinstance(each, np.ndarray):
            found.append(each)
        elif not isinstance(each, bytes | np.generic) and is_memory(each):
            found.append(memory_of(each, "argument"))
    return found


def _regions(
    given: Sequence[object], copies: Sequence[object], memory: Sequence[Array]
) -> list[tuple[int, int]]:
    """The address and size in this process of each region of a launch."""
    places = [(0, 0)] * len(memory)
    starts = [int(each.ctypes.data) for each in memory]
    for own, copy in zip(_launch_arrays(given), _launch_arrays(copies), strict=True):
        at = int(copy.ctypes.data)
        for i, start in enumerate(starts):
            if start <= at < start + max(1, memory[i].size):
                places[i] = (int(own.ctypes.data) - (at - start), memory[i].size)
    return places


def _sizes(given: object) -> Tree:
    """A grid or a block as it is sent."""
    if isinstance(given, list | tuple | np.ndarray):
        return [int(each) for each in given]
    return int(cast("int", given))


def _option(given: object) -> Tree:
    return [*given] if isinstance(given, tuple) else given


# ── arrays and tensors ──────────────────────────────────────────────────────


def _arrays(value: object) -> list[object]:
    """The arrays and tensors of a value, in the order of :func:`held.leaves`."""
    if isinstance(value, list | tuple):
        return [found for each in value for found in _arrays(each)]
    if isinstance(value, dict):
        return _arrays([*value.values()])
    return [value] if isinstance(value, np.ndarray) or is_tensor(value) else []


def _plain_kinds() -> list[type]:
    """The classes of outputs; others may compute when somebody looks at them."""
    if "torch" not in sys.modules:
        return [np.ndarray]
    import torch

    return [np.ndarray, torch.Tensor, torch.nn.Parameter]


def _form(value: object) -> tuple[object, ...]:
    return type(value), getattr(value, "dtype", None), _shape(value), _strides(value)


def _shape(value: object) -> list[int]:
    return [*cast("Array", value).shape]


def _copy(old: object, new: object) -> None:
    """Give an array the elements of another one."""
    if isinstance(old, np.ndarray):
        old[...] = cast("Array", new)
    else:
        cast("torch.Tensor", old).copy_(cast("torch.Tensor", new))


def _bytes(value: object) -> bytes:
    held = hold(value)
    assert isinstance(held, dict)
    return bytes(cast("Array", held["data"]).tobytes())


def _digest(value: object) -> bytes:
    return hashlib.sha256(_bytes(value)).digest()


def _memory(value: object) -> tuple[int, int]:
    """The address of the first element, and the bytes up to the last one."""
    if isinstance(value, np.ndarray):
        axes = [(n, s) for n, s in zip(value.shape, value.strides, strict=True)]
        start, size = int(value.ctypes.data), value.itemsize
    else:
        tensor = cast("torch.Tensor", value)
        size = tensor.element_size()
        axes = [
            (n, s * size) for n, s in zip(tensor.shape, tensor.stride(), strict=True)
        ]
        # The address that a tensor says is the one that a kernel gets.
        first = tensor.storage_offset() * size
        start = tensor.untyped_storage().data_ptr() + first
    return start, size + sum((n - 1) * s for n, s in axes if n and s > 0)


def _strides(value: object) -> list[int]:
    if isinstance(value, np.ndarray):
        return [*value.strides]
    tensor = cast("torch.Tensor", value)
    return [each * tensor.element_size() for each in tensor.stride()]


def _aliased(inputs: list[object], outputs: list[object]) -> list[int]:
    """The outputs that share memory with an input."""
    given = [_memory(each) for each in inputs]
    found = []
    for number, each in enumerate(outputs):
        at, size = _memory(each)
        if size and any(a < at + size and at < a + n for a, n in given):
            found.append(number)
    return found
