"""Exploration of the value-based methods: epsilon, and each worker's final value of it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def check_final_eps(final_eps: float | Sequence[float], probs: Sequence[float]) -> None:
    """Refuse final values of epsilon that make no distribution.

    :param final_eps: the values, or one for all workers
    :param probs: the probability of each; not looked at if there is one value for all
    :raises ValueError: saying what is wrong
    """
    values = np.atleast_1d(np.asarray(final_eps, np.float64))
    if len(values) == 0 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"exploration_final_eps must be in [0, 1], got {final_eps}")
    if np.ndim(final_eps) == 0:
        return
    weights = np.asarray(probs, np.float64)
    if weights.shape != values.shape or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
        raise ValueError(
            "exploration_final_probs must have one probability for each of exploration_final_eps, which sum to 1: "
            f"got {probs} for {final_eps}"
        )


def draw_quantiles(n_workers: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A number in [0, 1) for each worker, which :func:`final_eps_at` turns into its final epsilon.

    Each is uniform, and together they are spread evenly (a stratified sample): of ten workers and the paper's
    probabilities (0.4, 0.3, 0.3) exactly four, three and three get the three values, and no run has all its workers
    at 0.5, as independent draws may.

    :param n_workers: how many
    :param rng: source of the numbers
    """
    return np.asarray(rng.permutation((np.arange(n_workers) + rng.random()) / n_workers))


def final_eps_at(quantile: float, final_eps: float | Sequence[float], probs: Sequence[float]) -> float:
    """The final epsilon of a worker with ``quantile``, in [0, 1).

    :param quantile: from :func:`draw_quantiles`
    :param final_eps: the values, or one for all workers
    :param probs: the probability of each
    """
    values = np.asarray(final_eps, np.float64)
    if values.ndim == 0:
        return float(values)
    place = int(np.searchsorted(np.cumsum(probs), quantile, side="right"))
    return float(values[min(place, len(values) - 1)])


def linear_eps(progress_remaining: float, initial_eps: float, final_eps: float, fraction: float) -> float:
    """Epsilon on its linear way from ``initial_eps`` to ``final_eps``, as of SB3's DQN.

    :param progress_remaining: from 1 to 0 over the training
    :param initial_eps: at the start
    :param final_eps: after ``fraction`` of the training and from then on
    :param fraction: in [0, 1]
    """
    done = 1.0 - progress_remaining
    if done >= fraction:
        return final_eps
    return initial_eps + done / fraction * (final_eps - initial_eps)


def epsilon_greedy(greedy: Tensor, explore: Tensor, n_actions: int) -> Tensor:
    """``greedy`` actions (N,), replaced by uniformly random ones where ``explore`` (N,) is true."""
    return torch.where(explore, torch.randint(n_actions, greedy.shape), greedy)
