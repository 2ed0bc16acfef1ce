"""The step budget: who may take how many steps, and when."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_async.runtime.memory import RING, Slots


class Credits:
    """Deals a budget of steps out to the workers, a rollout at a time.

    Workers that are faster get more. What a worker that died leaves undone is dealt again, so that the steps done in
    the end are exactly the budget.

    :param slots: the shared numbers
    :param budget: steps to take in all
    :param rollout: steps of one full grant; the last grants may be shorter
    :param unit: every grant is a multiple of this (a worker steps all its environments at once); it divides ``budget``
    """

    def __init__(self, slots: Slots, budget: int, rollout: int, unit: int) -> None:
        assert budget % unit == 0 and rollout % unit == 0
        self._slots = slots
        self._budget = budget
        self._rollout = rollout
        self._unit = unit

    @property
    def granted(self) -> int:
        """Steps granted so far."""
        return int(self._slots.granted.sum())

    @property
    def outstanding(self) -> int:
        """Steps granted and not yet done."""
        return self.granted - int(self._slots.done.sum())

    def deal(self, limit: int, values_for: Callable[[int, int, int], NDArray[Any]]) -> None:
        """Grant rollouts until ``limit`` steps are granted in all, first to the workers with the least left to do.

        :param limit: at most this many steps are granted in all; one rollout is, whatever the limit
        :param values_for: the hyper-parameters that go with a grant: called with the worker and with the steps granted in all
            before and after it
        """
        slots, granted = self._slots, self.granted
        room = min(limit, self._budget)
        left = slots.granted - slots.done
        # The ring keeps RING grants, of which the oldest may be being read.
        most = (RING - 2) * self._unit
        while granted < room or (granted < self._budget and not left.any()):
            worker = int(left.argmin())
            steps = min(self._rollout, self._budget - granted)
            if left[worker] + steps > most:
                break
            slots.grant(worker, steps, values_for(worker, granted, granted + steps))
            granted += steps
            left[worker] += steps

    def reclaim(self, worker: int) -> None:
        """Take back what a worker that died has not done."""
        self._slots.granted[worker] = self._slots.done[worker]


class Crossings:
    """Sees to it that each multiple of an interval that the steps pass is acted on by exactly one worker.

    Main knows which grant contains a multiple, and says so with that grant. What a worker that died has not acted on goes
    with the next grant.

    :param acted: (workers,), how often each worker has acted, written by the workers
    :param start: steps taken before
    """

    def __init__(self, acted: NDArray[np.int64], start: int) -> None:
        self._acted = acted
        self._told = np.zeros_like(acted)
        self._reached = start
        self._owed = 0

    def due(self, worker: int, steps: int, interval: int) -> int:
        """How often ``worker`` has to act at the end of a grant.

        :param worker: who gets the grant
        :param steps: steps taken in all when it is used up
        :param interval: in steps
        """
        times = self._owed + max(steps // interval - self._reached // interval, 0)
        self._reached, self._owed = max(self._reached, steps), 0
        self._told[worker] += times
        return times

    def reclaim(self, worker: int) -> None:
        """Take back what a worker that died has not acted on."""
        self._owed += int(self._told[worker] - self._acted[worker])
        self._told[worker] = self._acted[worker]
