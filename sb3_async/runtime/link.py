"""A worker's side of the connection to the main process."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from sb3_async.runtime.memory import RING, SharedBlock, Slots

FIRST_NAP, LONGEST_NAP = 0.0002, 0.005  # seconds between looks for a grant


class Grant(NamedTuple):
    """Leave to take ``steps`` more steps, for which the hyper-parameters ``values`` hold."""

    steps: int
    values: NDArray[Any]


class Worker(Protocol):
    """What runs in a worker process."""

    def iterate(self, grant: Grant) -> None:
        """Use up one grant."""

    def close(self) -> None:
        """Release what the worker holds."""


MakeWorker = Callable[["WorkerLink", SharedBlock], Worker]


class WorkerLink:
    """What a worker asks and tells: all it shares with the main process but the parameters.

    :param index: the worker's row in ``slots``
    :param slots: the shared numbers
    :param send: delivers one picklable message to the main process
    :param taken: grants already made to a worker that had this slot before and died; main has taken them back
    """

    def __init__(self, index: int, slots: Slots, send: Callable[[Any], None], taken: int = 0) -> None:
        self.index = index
        self.slots = slots
        self.send = send
        self._taken = taken

    def next_grant(self) -> Grant | None:
        """The next grant if there is one."""
        if self._taken == self.slots.grants[self.index]:
            return None
        place = self._taken % RING
        self._taken += 1
        return Grant(int(self.slots.steps[self.index, place]), self.slots.values[self.index, place].copy())

    def wait_for_grant(self) -> Grant | None:
        """The next grant as soon as there is one; None once the main process says stop."""
        nap = FIRST_NAP
        while not self.stopping:
            grant = self.next_grant()
            if grant is not None:
                return grant
            self.beat()
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)
        return None

    @property
    def stopping(self) -> bool:
        """Whether the main process wants the worker to stop."""
        return bool(self.slots.command[0] == Slots.STOP)

    def beat(self) -> None:
        """Show that the worker is alive."""
        self.slots.beat[self.index] = time.monotonic()

    def all_updates(self) -> int:
        """Updates applied to the shared parameters so far, by all workers."""
        return int(self.slots.updates.sum())

    def report_update(self, lag: int, stats: NDArray[Any]) -> None:
        """Count one update of the shared parameters.

        :param lag: updates of other workers since the parameters were read
        :param stats: to be summed
        """
        self.slots.updates[self.index] += 1
        self.slots.lag[self.index] += lag
        self.slots.stats[self.index] += stats

    def report_skip(self) -> None:
        """Count one update that was not applied."""
        self.slots.skipped[self.index] += 1

    def report_target_updates(self, times: int) -> None:
        """Count updates of the target parameters."""
        self.slots.target_updates[self.index] += times

    def report_steps(self, steps: int) -> None:
        """Count steps taken. What happened in them must have been sent before."""
        self.slots.done[self.index] += steps
