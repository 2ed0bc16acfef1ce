"""The step budget: who may take how many steps, and when."""

from collections.abc import Callable
from typing import Any

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

    def deal(self, limit: int, values_at: Callable[[int], NDArray[Any]]) -> None:
        """Grant rollouts until ``limit`` steps are granted in all, first to the workers with the least left to do.

        :param limit: at most this many steps are granted in all; one rollout is, whatever the limit
        :param values_at: the hyper-parameters that hold when this many steps are done
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
            granted += steps
            slots.grant(worker, steps, values_at(granted))
            left[worker] += steps

    def reclaim(self, worker: int) -> None:
        """Take back what a worker that died has not done."""
        self._slots.granted[worker] = self._slots.done[worker]
