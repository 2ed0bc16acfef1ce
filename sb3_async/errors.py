"""Errors raised by sb3_async.

::

    AsyncError (RuntimeError)
     ├── WorkerError         a worker failed with an exception that cannot be rebuilt in the main process
     ├── WorkerDied          a worker process was killed or left without a word
     └── SharedMemoryError   there is too little shared memory for the parameters

An exception that *can* be rebuilt is raised as itself; :class:`RemoteTraceback` is then its ``__cause__``.
Bad arguments are ``ValueError``, ``TypeError`` or ``AssertionError``, as in Stable-Baselines3.
"""


class AsyncError(RuntimeError):
    """Base class of the errors that only an asynchronous algorithm can raise."""


class WorkerError(AsyncError):
    """A worker failed with an exception that could not be sent; the text holds the worker's traceback."""


class WorkerDied(AsyncError):
    """A worker process ended by a signal or an exit that is no exception, more often than it may be replaced."""


class SharedMemoryError(AsyncError):
    """The system has less shared memory free than the parameters and statistics need."""


class RemoteTraceback(Exception):
    """Carries a worker's formatted traceback as the ``__cause__`` of the exception raised in the main process."""

    def __init__(self, worker: int, text: str) -> None:
        super().__init__(worker, text)
        self.worker = worker
        self.text = text

    def __str__(self) -> str:
        return f"in worker {self.worker}:\n\n{self.text}"
