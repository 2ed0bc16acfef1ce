"""One worker process: how it starts, how it fails, how it ends.

A worker leads a process group of its own, so that it can be killed together with what its environments started, and
Ctrl-C in a terminal reaches the main process alone. It watches the main process's sentinel and kills its group when
that process is gone, however it went: daemon flags and ``PR_SET_PDEATHSIG`` do not cover the fork server.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import cloudpickle
import torch
import torch.multiprocessing  # teaches pickle to send shared tensors to a starting process

from sb3_async.errors import RemoteTraceback, WorkerError
from sb3_async.runtime.link import MakeWorker, WorkerLink
from sb3_async.runtime.memory import SharedBlock, Slots


class Failure(NamedTuple):
    """An exception on its way to the main process."""

    worker: int
    pickled: bytes | None
    summary: str
    text: str

    @staticmethod
    def of(worker: int, error: BaseException) -> "Failure":
        """Pack ``error``, as itself if it survives pickling."""
        text = "".join(traceback.format_exception(error))
        summary = "".join(traceback.format_exception_only(error)).strip()
        pickled = None
        if isinstance(error, Exception):  # SystemExit and the like would end the caller's program
            with contextlib.suppress(Exception):
                candidate = cloudpickle.dumps(error)
                if type(cloudpickle.loads(candidate)) is type(error):
                    pickled = candidate
        return Failure(worker, pickled, summary, text)

    def rebuild(self) -> Exception:
        """The exception to raise in the main process, with the worker's traceback as its cause."""
        error: Exception = WorkerError(f"worker {self.worker} failed with {self.summary}\n\n{self.text}")
        if self.pickled is not None:
            with contextlib.suppress(Exception):
                error = cloudpickle.loads(self.pickled)
        error.__cause__ = RemoteTraceback(self.worker, self.text)
        return error


def start_process(
    context: BaseContext, index: int, block: SharedBlock, make_worker: MakeWorker, taken: int
) -> tuple[BaseProcess, Connection]:
    """Start one worker.

    :param context: multiprocessing context, which fixes the start method
    :param index: the worker's slot
    :param block: shared memory that holds the slots
    :param make_worker: called in the new process; pickled with cloudpickle unless the process is forked
    :param taken: grants that the worker is to leave out, see :class:`WorkerLink`
    :return: the process and the main process's end of its pipe
    """
    ours, theirs = context.Pipe()
    forked = context.get_start_method() == "fork"
    payload: Any = make_worker if forked else cloudpickle.dumps(make_worker)
    # Not a daemon: environments may start processes of their own. The sentinel takes care of orphans.
    process = context.Process(  # type: ignore[attr-defined]
        target=_child, args=(theirs, index, block, payload, taken), name=f"sb3_async-worker-{index}", daemon=False
    )
    with contextlib.nullcontext() if forked else _hidden_main():
        process.start()
    theirs.close()
    return process, ours


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep multiprocessing from importing the user's script in the child.

    Whatever the worker needs of it comes with cloudpickle, by value, so scripts need no ``__main__`` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def kill(process: BaseProcess) -> None:
    """Kill a worker and whatever it has started."""
    pid = process.pid
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if process.is_alive():  # it had no group of its own yet
        process.kill()


def _child(pipe: Connection, index: int, block: SharedBlock, payload: Any, taken: int) -> None:
    # First of all: a forked child of a process that has used several torch threads hangs otherwise.
    torch.set_num_threads(1)
    _settle()
    try:
        link = WorkerLink(index, Slots(block), pipe.send, taken)
        make_worker: MakeWorker = cloudpickle.loads(payload) if isinstance(payload, bytes) else payload
        worker = make_worker(link, block)
        try:
            while (grant := link.wait_for_grant()) is not None:
                worker.iterate(grant)
        finally:
            worker.close()
    except BaseException as error:
        with contextlib.suppress(OSError):  # main is gone
            pipe.send(Failure.of(index, error))
        sys.exit(1)


def _settle() -> None:
    """Become independent of the terminal and dependent on the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgid(0, 0)
    main = parent_process()
    assert main is not None
    threading.Thread(target=_die_with, args=(main.sentinel,), daemon=True, name="die-with-main").start()


def _die_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os.killpg(0, signal.SIGKILL)
