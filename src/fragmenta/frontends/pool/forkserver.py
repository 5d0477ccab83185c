"""The process that the workers of a pool are forked from.

It imports what launches need, runs one kernel of its own, and then forks a worker
whenever the pool asks for one.  That takes milliseconds, and a worker starts warm.  It
has one thread and runs nothing of users, so a fork is safe.

The pool talks to it over a socket.  If the pool goes, however that happens, the fork
server ends its workers and itself; if the fork server goes, the system ends its
workers.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable

from fragmenta.frontends.pool.confining import die_with_parent
from fragmenta.frontends.pool.orders import (
    END,
    ENDED,
    FORK,
    KILL,
    NEWS,
    ORDER,
    READY,
    WorkerTerms,
    remove_socket,
)
from fragmenta.frontends.pool.worker import warm_up, work


def main(run: Callable[[socket.socket, WorkerTerms], None] = work) -> None:
    """Serve the pool whose socket, process and terms are the words of the command."""
    control, parent, launches, cores, warm = map(int, sys.argv[1:6])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if warm:
        warm_up()
    gc.collect()
    gc.freeze()  # the collector would copy all pages in each worker
    server = _Server(socket.socket(fileno=control), parent, run)
    asked = server.serve(WorkerTerms(launches, cores))
    if sys.argv[6:] and not asked:  # the pool had no time to remove it
        remove_socket(*sys.argv[6:])


class _Server:
    """The fork server: its workers, and what it listens to."""

    def __init__(
        self,
        control: socket.socket,
        parent: int,
        run: Callable[[socket.socket, WorkerTerms], None],
    ) -> None:
        self._control, self._parent, self._run = control, parent, run
        self._workers: dict[int, int] = {}
        """The number of each worker, by process."""
        self._wake, self._woken = os.pipe()
        for each in (self._wake, self._woken):
            os.set_blocking(each, False)
        self._watched = _open_process(parent)
        self._asked_to_end = False

    def serve(self, terms: WorkerTerms) -> bool:
        """Follow orders until the last one, or until there is nobody to give any.

        True if the last order was to end.
        """
        signal.signal(signal.SIGCHLD, lambda *_: None)  # or nothing wakes
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        try:
            self._tell(READY, 0, 0)
            while os.getppid() == self._parent and self._turn(terms):
                pass
        except OSError:  # the pool has gone
            pass
        finally:
            self._end()
        return self._asked_to_end

    def _turn(self, terms: WorkerTerms) -> bool:
        """Wait for something and handle it; False if the pool has no more orders."""
        heard = [self._control.fileno(), self._wake, *self._watched]
        ready, _, _ = select.select(heard, [], [])
        if self._wake in ready:
            os.read(self._wake, 4096)
            self._bury()
        if self._control.fileno() in ready:
            order, sockets, _, _ = socket.recv_fds(self._control, ORDER.size, 1)
            if len(order) < ORDER.size:
                return False
            letter, number = ORDER.unpack(order)
            if letter == FORK:
                self._fork(number, socket.socket(fileno=sockets[0]), terms)
            elif letter == KILL:
                self._kill([p for p, which in self._workers.items() if which == number])
            elif letter == END:
                self._asked_to_end = True
                return False
        return not set(self._watched) & set(ready)

    def _fork(self, number: int, pool: socket.socket, terms: WorkerTerms) -> None:
        parent = os.getpid()
        process = os.fork()
        if not process:
            status = 1
            try:
                self._become_worker(parent, pool)
                self._run(pool, terms)
                status = 0
            except (BrokenPipeError, ConnectionResetError):  # the pool has gone
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        pool.close()
        self._workers[process] = number

    def _become_worker(self, parent: int, pool: socket.socket) -> None:
        """Give up all that is the fork server's."""
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        for each in (self._wake, self._woken, *self._watched):
            os.close(each)

    def _bury(self) -> None:
        """Tell which workers have ended, and how."""
        while self._workers:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            number = self._workers.pop(process)
            self._tell(ENDED, number, os.waitstatus_to_exitcode(status))

    def _tell(self, letter: bytes, number: int, status: int) -> None:
        self._control.sendall(NEWS.pack(letter, number, status))

    def _kill(self, processes: list[int]) -> None:
        for each in processes:  # not reaped yet, so no other process has its number
            os.kill(each, signal.SIGKILL)

    def _end(self) -> None:
        """End all workers, and wait until they are gone."""
        self._kill([*self._workers])
        for each in self._workers:
            os.waitpid(each, 0)


def _open_process(process: int) -> list[int]:
    """What becomes readable when a process ends, if the system has such a thing.

    The socket says it, too, unless another process holds a copy of its other end.
    """
    try:
        return [os.pidfd_open(process)]
    except (AttributeError, OSError):
        return []
