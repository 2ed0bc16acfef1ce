"""Groups of workers, seen from the main process.

::

    main process                                   worker i
    ------------                                   --------
    grants, hyper-parameters, command  ---slots--> wait_for_grant(), stopping
    poll(): done, beat, stats          <--slots--- report_*(), beat()
    poll(): episodes, failures         <--pipe i-- send()
    sentinel i                         <---------- death

There is no queue and no lock that a dying worker could leave in a bad state, so a single one can be replaced.
"""

import contextlib
import multiprocessing
import signal
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from sb3_async.errors import WorkerDied
from sb3_async.runtime.link import MakeWorker, Worker, WorkerLink
from sb3_async.runtime.memory import SharedBlock, Slots
from sb3_async.runtime.process import Failure, kill, start_process
from sb3_async.runtime.seeding import PrivateStreams

Messages = list[tuple[int, Any]]

GRACE_STOP, GRACE_ERROR = 10.0, 1.0  # seconds a worker has to stop by itself


class WorkerGroup:
    """Runs one worker in each of several processes.

    :param make_workers: for each slot and generation (0 at first, one more for each replacement) the function that makes
        the worker in its process
    :param n_workers: number of slots
    :param block: shared memory that holds the slots
    :param start_method: ``"fork"``, ``"forkserver"`` or ``"spawn"``
    :param preload: modules that a fork server imports once
    :param max_restarts: how many dead workers are replaced
    :param timeout: a worker silent for this many seconds is killed and replaced, None: never
    :param on_restart: called with the slot before a dead worker is replaced
    """

    def __init__(
        self,
        make_workers: Callable[[int, int], MakeWorker],
        n_workers: int,
        block: SharedBlock,
        start_method: str,
        preload: tuple[str, ...] = (),
        max_restarts: int = 0,
        timeout: float | None = None,
        on_restart: Callable[[int], None] = lambda worker: None,
    ) -> None:
        self.slots = Slots(block)
        self.n_workers = n_workers
        self.restarts = 0
        self._make_workers = make_workers
        self._block = block
        self._max_restarts = max_restarts
        self._timeout = timeout
        self._on_restart = on_restart
        self._context = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            self._context.set_forkserver_preload(list(preload))
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._generations = [0] * n_workers
        self._started = [0.0] * n_workers

    def start(self) -> None:
        """Start all workers. They wait for grants."""
        for worker in range(self.n_workers):
            process, pipe = self._launch(worker)
            self._processes.append(process)
            self._pipes.append(pipe)

    def _launch(self, worker: int) -> tuple[BaseProcess, Connection]:
        make_worker = self._make_workers(worker, self._generations[worker])
        self._started[worker] = time.monotonic()
        taken = int(self.slots.grants[worker]) if self._generations[worker] else 0
        return start_process(self._context, worker, self._block, make_worker, taken)

    def poll(self, wait: float) -> tuple[int, Messages]:
        """Look after the workers.

        :param wait: seconds to wait for a death before looking
        :return: steps done by all workers, and the messages that came: at least those of the steps counted
        :raises WorkerDied: if a worker died that may not be replaced
        :raises Exception: what a worker raised, with its traceback as cause
        """
        dead = connection.wait([p.sentinel for p in self._processes], timeout=wait)
        done = int(self.slots.done.sum())
        messages = self._receive()
        for worker, process in enumerate(self._processes):
            if process.sentinel in dead:
                process.join()
                self._replace(worker, f"died by {_exit_name(process.exitcode)}")
            elif self._stalled(worker):
                self._replace(worker, f"was silent for {self._timeout} s")
        return done, messages

    def _receive(self) -> Messages:
        messages: Messages = []
        numbers = {pipe: worker for worker, pipe in enumerate(self._pipes) if not pipe.closed}
        while ready := connection.wait(list(numbers), timeout=0):
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    message = pipe.recv()
                except (EOFError, OSError):  # it died, maybe in the middle of a message: its sentinel tells
                    del numbers[pipe]
                    continue
                if isinstance(message, Failure):
                    raise message.rebuild()
                messages.append((numbers[pipe], message))
        return messages

    def _stalled(self, worker: int) -> bool:
        if self._timeout is None:
            return False
        last = max(float(self.slots.beat[worker]), self._started[worker])
        return time.monotonic() - last > self._timeout

    def _replace(self, worker: int, what: str) -> None:
        process = self._processes[worker]
        kill(process)
        process.join()
        text = f"worker {worker} (pid {process.pid}) {what} after {int(self.slots.done[worker])} steps"
        if self.restarts >= self._max_restarts:
            hint = " (SIGKILL often means: out of memory)" if "SIGKILL" in what else ""
            raise WorkerDied(
                f"{text}{hint}. Workers replaced before it: {self.restarts}, max_worker_restarts={self._max_restarts}."
            )
        warnings.warn(f"sb3_async: {text}; it is replaced.", RuntimeWarning, stacklevel=2)
        self.restarts += 1
        self._generations[worker] += 1
        self._pipes[worker].close()
        self._on_restart(worker)
        self._processes[worker], self._pipes[worker] = self._launch(worker)

    def stop(self) -> None:
        """Let the workers end by themselves, then kill those that do not; wait for all of them."""
        self.slots.command[0] = Slots.STOP
        # While an exception is on its way to the user, it must not wait for a slow environment.
        deadline = time.monotonic() + (GRACE_STOP if sys.exc_info()[0] is None else GRACE_ERROR)
        try:
            alive = list(self._processes)
            while alive and time.monotonic() < deadline:
                connection.wait([p.sentinel for p in alive], timeout=0.05)
                with contextlib.suppress(Exception):  # a worker blocked in send() must get on; its failure comes too late
                    self._receive()
                alive = [p for p in alive if p.is_alive()]
        finally:
            for process in self._processes:
                kill(process)  # a worker that has ended may have left children in its group
                process.join()
                process.close()
            for pipe in self._pipes:
                pipe.close()
            self._processes, self._pipes = [], []


def _exit_name(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


class InlineGroup:
    """Runs a single worker in this process, between two looks of the main loop: for debugging, and without any child.

    It takes the same steps with the same random streams as one worker in a process of its own.

    :param make_workers: as for :class:`WorkerGroup`
    :param block: private memory that holds the slots
    """

    n_workers = 1
    restarts = 0

    def __init__(self, make_workers: Callable[[int, int], MakeWorker], block: SharedBlock) -> None:
        self.slots = Slots(block)
        self._block = block
        self._make_workers = make_workers
        self._messages: Messages = []
        self._streams = PrivateStreams()
        self._worker: Worker | None = None
        self._link: WorkerLink | None = None

    def start(self) -> None:
        """Make the worker."""
        self._link = WorkerLink(0, self.slots, lambda message: self._messages.append((0, message)))
        with self._streams.active():
            self._worker = self._make_workers(0, 0)(self._link, self._block)

    def poll(self, wait: float) -> tuple[int, Messages]:
        """Use up one grant if there is one; see :meth:`WorkerGroup.poll`."""
        assert self._worker is not None and self._link is not None
        grant = self._link.next_grant()
        if grant is not None:
            with self._streams.active():
                self._worker.iterate(grant)
        messages, self._messages = self._messages, []
        return int(self.slots.done[0]), messages

    def stop(self) -> None:
        """Release the worker."""
        self.slots.command[0] = Slots.STOP
        if self._worker is not None:
            self._worker.close()
            self._worker = None


Group = WorkerGroup | InlineGroup
