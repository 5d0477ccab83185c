"""What a worker of a pool does: it reads questions, and answers them.

It runs one launch at a time, under limits of the system.  It keeps the modules that it
has read, with their machine code, but never their variables.  After some launches, or
when it has grown, it says so with its answer and ends; the pool starts another.

Machine code is written to the cache on disk only until a kernel runs: then a worker
gives up writing files for good, since later launches trust what is in the cache.
"""

from __future__ import annotations

import gc
import json
import pickle
import socket
from collections import OrderedDict
from dataclasses import replace

import numpy as np

from fragmenta.base.arrays.threads import use_cores
from fragmenta.errors import BadCall, Error, one_of
from fragmenta.frontends.api.kernels import Kernel, Loaded, parse
from fragmenta.frontends.pool.answers import (
    Json,
    error_json,
    problem_json,
    result_json,
    variables_json,
)
from fragmenta.frontends.pool.confining import confine, release, seal
from fragmenta.frontends.pool.frames import Bytes, frame, receive, send
from fragmenta.frontends.pool.orders import HERE, WorkerTerms
from fragmenta.frontends.pool.packing import mark_empty, unpack
from fragmenta.frontends.pool.questions import (
    Check,
    KernelText,
    LaunchQuestion,
    Question,
)
from fragmenta.launch.limits import resident
from fragmenta.ptx.languages import PTX

KEPT = 64
"""Modules that a worker keeps, with their machine code."""
GROWN = 1 << 30
"""Bytes that a worker may have grown by; then it ends."""


def work(pool: socket.socket, terms: WorkerTerms) -> None:
    """Answer questions until the pool has no more, or the worker has to end."""
    use_cores(terms.cores)
    gc.enable()
    worker = _Worker(terms)
    pool.sendall(HERE)
    while not worker.ended:
        asked = receive(pool, _read)
        if asked is None:
            return
        send(pool, worker.answer(*asked))


def _read(head: bytes) -> tuple[Question, list[int]]:
    question: Question = pickle.loads(head)  # from the pool, not from a stranger
    return question, question.arguments.sizes


class _Worker:
    """A worker: the modules that it keeps, and how much it has done."""

    def __init__(self, terms: WorkerTerms) -> None:
        self._left = terms.launches
        self._modules: OrderedDict[tuple[str, str], Loaded] = OrderedDict()
        self._before = resident()
        self.ended = False
        """Whether the last answer was given."""

    def answer(self, question: Question, memory: list[Bytes]) -> list[memoryview]:
        """The answer to a question, as it is sent."""
        head: Json
        try:
            confine(question.limits)
            if isinstance(question, LaunchQuestion):
                head = self._launch(question, memory)
            else:
                head = self._check(question)
        except Error as error:
            head = error_json(error)
        except Exception as error:  # what it left behind is not known
            head, self.ended = error_json(error), True
        finally:
            release()
            seal()
        self._left -= 1
        if self._left <= 0 or resident() - self._before > GROWN:
            self.ended = True
        head["ends"] = self.ended
        returned = [memory[each] for each in question.arguments.returned]
        return frame(question.number, json.dumps(head).encode(), returned)

    def _launch(self, question: LaunchQuestion, memory: list[Bytes]) -> Json:
        kernel = self._kernel(question.text)
        kernel.loaded.before_running = seal
        arguments = unpack(question.arguments, memory)
        marked = mark_empty(question.arguments, memory)
        head: Json
        try:
            result = kernel.run(replace(question.request, arguments=arguments))
            head = {"result": result_json(result)}
            if question.timeline:
                head["timeline"] = str(result.timeline())
        except Error as error:
            head = error_json(error)
        del marked
        head["variables"] = variables_json(kernel.loaded.kept)
        return head

    def _check(self, question: Check) -> Json:
        from fragmenta.ptx.checking.texts import check_text

        text = question.text
        found = check_text(text.text, question.target, text.file)
        return {"problems": [problem_json(each) for each in found]}

    def _kernel(self, text: KernelText) -> Kernel:
        """The kernel that is launched; its variables as they were given."""
        key = (text.text, text.file)
        loaded = self._modules.pop(key, None)
        if loaded is None:
            loaded = parse(*key)
        self._modules[key] = loaded
        if len(self._modules) > KEPT:
            self._modules.popitem(last=False)
        loaded.renew(text.kept)
        kernel = chosen(loaded, text.kernel)
        if text.names or text.language != PTX:
            kernel = replace(kernel, names=text.names, language=text.language)
        return kernel


def chosen(loaded: Loaded, name: str | None) -> Kernel:
    """The kernel of this name; of a module with one kernel, that one."""
    if name is not None:
        return loaded.kernels[name]
    if len(loaded.kernels) != 1:
        have = one_of(loaded.kernels, "and") or "none"
        raise BadCall(f"the PTX has {len(loaded.kernels)} kernels, name one: {have}")
    return next(iter(loaded.kernels.values()))


WARM_UP = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry warm_up(.param .u64 data)
{
    .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    .shared .align 4 .b8 tile[128];
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r3, tile;
    mad.lo.s32 %r3, %r1, 4, %r3;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    st.shared.f32 [%r3], %f1;
    bar.sync 0;
    ld.shared.f32 %f2, [%r3];
    fma.rn.f32 %f3, %f1, %f2, %f1;
    setp.ge.u32 %p1, %r1, 16;
    @%p1 bra done;
    st.global.f32 [%rd3], %f3;
done:
    ret;
}"""
"""A kernel that uses what most kernels use."""


def warm_up() -> None:
    """Load what launches need, so that forked workers have it."""
    # A pool for one launch does not warm up, and may not need them.
    from fragmenta.engine.simt.compiling import make
    from fragmenta.engine.simt.mode import Mode
    from fragmenta.watch.races.probes.instruments import probes

    use_cores(1)  # no thread may be left behind
    loaded = parse(WARM_UP)
    for watch in (False, True):
        arguments = [np.ones(32, np.float32)]
        result = loaded.kernels["warm_up"].launch(1, 32, arguments, watch=watch)
        json.dumps(result_json(result))
        # The launch may have found its code in the cache, and loaded no compiler.
        mode = Mode(watch, False, False, False)
        make(loaded.contracted, "warm_up", "sm_80", mode, probes(mode), _any_length)


def _any_length(lines: int) -> None:
    """Code of the package itself may have any length."""
