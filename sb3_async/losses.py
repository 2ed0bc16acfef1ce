"""Losses as pure functions of tensors."""

from typing import NamedTuple

import torch
from torch import Tensor


class A3CLoss(NamedTuple):
    """The loss to differentiate and its three terms, each a scalar tensor."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor


def a3c_loss(
    log_probs: Tensor,
    entropy: Tensor | None,
    values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    ent_coef: float,
    vf_coef: float,
) -> A3CLoss:
    """Advantage actor-critic loss, a mean over the rollout (Mnih et al. 2016, Algorithm S3 and section 4).

    ``L = mean(-A log π(a|s)) + vf_coef mean((R - V(s))²) - ent_coef mean(H(π(·|s)))``.
    No gradient flows through ``advantages`` and ``returns``. The paper sums over the rollout and its authors
    multiply the value gradient by 0.5, which is ``vf_coef=0.25``.

    :param log_probs: (B,), log-probabilities of the actions taken
    :param entropy: (B,), or None where the distribution has no closed form: then ``-log π(a|s)`` stands in, as in SB3
    :param values: (B,)
    :param advantages: (B,)
    :param returns: (B,)
    :param ent_coef: the paper's beta
    :param vf_coef: weight of the squared error
    """
    policy_loss = -(advantages * log_probs).mean()
    value_loss = torch.nn.functional.mse_loss(values, returns)
    entropy_loss = log_probs.mean() if entropy is None else -entropy.mean()
    return A3CLoss(policy_loss + ent_coef * entropy_loss + vf_coef * value_loss, policy_loss, value_loss, entropy_loss)


def q_loss(q_values: Tensor, actions: Tensor, targets: Tensor, squared: bool) -> Tensor:
    """Mean over the batch of ``(y - Q(s, a))²`` (Mnih et al. 2016, Algorithms 1 and S2) or of Huber's loss.

    Huber's loss, as of SB3's DQN, is ``(y - Q)² / 2`` up to an error of 1 and grows linearly beyond, so that its gradient is
    the error clipped to [-1, 1]; of the squared error it is twice the error.

    :param q_values: (B, actions)
    :param actions: (B,), integers
    :param targets: (B,), y; no gradient flows through them
    :param squared: the squared error, not Huber's
    """
    taken = q_values.gather(1, actions.unsqueeze(1)).squeeze(1)
    function = torch.nn.functional.mse_loss if squared else torch.nn.functional.smooth_l1_loss
    return function(taken, targets)
