"""Random streams of a worker: python, numpy and torch, seeded together."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


def seed_streams(seed: np.random.SeedSequence) -> None:
    """Seed the global generators of python, numpy and torch of this process, each differently."""
    words = seed.generate_state(3, np.uint32)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]))


class PrivateStreams:
    """Lets code run in this process as it would in a worker of its own: same random streams, one torch thread.

    What the main process draws between two uses does not matter, nor does the use change what it draws next.
    """

    def __init__(self) -> None:
        self._states = _states()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Swap the streams in, and out again at the end."""
        mine, threads = _states(), torch.get_num_threads()
        _restore(self._states)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            self._states = _states()
            _restore(mine)
            torch.set_num_threads(threads)


_States = tuple[tuple[object, ...], tuple[object, ...], torch.Tensor]


def _states() -> _States:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()  # type: ignore[return-value]


def _restore(states: _States) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # type: ignore[arg-type]
    torch.set_rng_state(states[2])
