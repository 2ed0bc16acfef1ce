"""Returns and advantages over discounts.

``discounts[t]`` is what the value after step ``t`` counts for: gamma inside an episode, 0 where one ended. A truncated
episode has its ``gamma * V(final observation)`` added to the reward by the caller and then a discount of 0 as well,
so no function here knows about episode ends (the convention of rlax).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def n_step_returns(rewards: Array, discounts: Array, bootstrap: Array) -> Array:
    """The longest possible n-step return of every step of a rollout.

    ``R_t = r_t + γ_t R_{t+1}``, with ``R_T = bootstrap`` (Mnih et al. 2016, Algorithms S2 and S3).

    :param rewards: (T, N)
    :param discounts: (T, N), gamma or 0
    :param bootstrap: (N,), value of the observation after the last step
    :return: (T, N)
    """
    returns = np.empty_like(rewards)
    following = bootstrap
    for t in reversed(range(len(rewards))):
        following = rewards[t] + discounts[t] * following
        returns[t] = following
    return returns


def gae(rewards: Array, discounts: Array, values: Array, bootstrap: Array, gae_lambda: float) -> tuple[Array, Array]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, equation 16) and its λ-returns.

    ``δ_t = r_t + γ_t V_{t+1} - V_t``, ``A_t = δ_t + γ_t λ A_{t+1}``, ``R_t = A_t + V_t``.
    With λ = 1 the returns are those of :func:`n_step_returns`.

    :param rewards: (T, N)
    :param discounts: (T, N), gamma or 0
    :param values: (T, N), values of the observations acted on
    :param bootstrap: (N,), value of the observation after the last step
    :param gae_lambda: λ in [0, 1]
    :return: advantages (T, N) and returns (T, N)
    """
    advantages = np.empty_like(rewards)
    following, next_values = np.zeros_like(bootstrap), bootstrap
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + discounts[t] * next_values - values[t]
        following = delta + discounts[t] * gae_lambda * following
        advantages[t] = following
        next_values = values[t]
    return advantages, advantages + values


def persistent_advantage(targets: Array, gaps: Array, next_gaps: Array, alpha: float) -> Array:
    """Targets of persistent advantage learning (Bellemare et al. 2016, arXiv 1512.04860, section 4).

    ``max(y - α (V(s) - Q(s, a)), y - α (V(s') - Q(s', a)))``, with V the maximum of Q over the actions: actions that are
    not the best are pushed further down, unless the same action is the best in the next state.

    :param targets: (...), y
    :param gaps: (...), V(s) - Q(s, a), not negative
    :param next_gaps: (...), V(s') - Q(s', a) for the same action, 0 where the episode ended
    :param alpha: α in [0, 1), 0 gives back ``targets``
    """
    return targets - alpha * np.minimum(gaps, next_gaps)
