"""Acting and learning of the value-based methods, one beneath the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from stable_baselines3.dqn.policies import DQNPolicy
from torch import Tensor

from sb3_async.envs.observations import TensorObservation
from sb3_async.exploration import epsilon_greedy
from sb3_async.losses import q_loss
from sb3_async.returns import Array, n_step_returns, persistent_advantage
from sb3_async.worker import Hyper, Rollout


@dataclass(frozen=True)
class QUpdate:
    """Acting and learning of one-step Q-learning (the paper's Algorithm 1), and what the others share with it.

    :param double: double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461): the best action of the next state is the
        learning network's, its value the target network's
    :param squared: squared error, not Huber's
    :param persistent: targets of persistent advantage learning
    """

    double: bool = False
    squared: bool = False
    persistent: bool = False
    live: bool = True
    looks_ahead: bool = False
    ends_with_episode: bool = True
    statistics: tuple[str, ...] = ("loss", "q_value")

    def target_parameters(self, policy: DQNPolicy) -> list[torch.nn.Parameter]:
        """θ⁻."""
        return list(policy.q_net_target.parameters())

    def act(self, policy: DQNPolicy, observations: TensorObservation, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """ε-greedy with respect to Q(s, ·; θ), in each environment by itself."""
        n_envs = _batch_size(observations)
        explore = torch.rand(n_envs) < hyper["exploration_rate"]
        # No forward pass where all actions are random: most are at first.
        greedy = torch.zeros(n_envs, dtype=torch.long) if explore.all() else policy.q_net(observations).argmax(1)
        actions = epsilon_greedy(greedy, explore, int(policy.q_net.action_space.n))
        return actions, torch.zeros(n_envs)

    def value(self, policy: DQNPolicy, observations: TensorObservation, hyper: Hyper) -> Tensor:
        """max Q(s, ·; θ⁻), or with double Q-learning Q(s, argmax Q(s, ·; θ); θ⁻)."""
        q_values = policy.q_net_target(observations)
        if self.double:
            return _taken(q_values, policy.q_net(observations).argmax(1))
        best: Tensor = q_values.max(1).values
        return best

    def targets(self, policy: DQNPolicy, rollout: Rollout, hyper: Hyper) -> Array:
        """What Q(s, a) is pulled towards at each step, (T, N)."""
        returns = self.returns(policy, rollout, hyper)
        if not self.persistent:
            return returns
        shape, discounts = returns.shape, rollout.discounts
        q_values = policy.q_net_target(rollout.observations)
        q_next = policy.q_net_target(rollout.following)
        gaps = (q_values.max(1).values - _taken(q_values, rollout.actions)).numpy().reshape(shape)
        next_gaps = (q_next.max(1).values - _taken(q_next, rollout.actions)).numpy().reshape(shape)
        return persistent_advantage(returns, gaps, np.where(discounts > 0, next_gaps, 0), hyper["pal_alpha"])

    def returns(self, policy: DQNPolicy, rollout: Rollout, hyper: Hyper) -> Array:
        """``r + γ max Q(s', ·; θ⁻)``."""
        return one_step_returns(rollout, self.value(policy, rollout.following, hyper))

    def loss(self, policy: DQNPolicy, rollout: Rollout, targets: Array, hyper: Hyper) -> tuple[Tensor, Sequence[float]]:
        """See :func:`sb3_async.losses.q_loss`."""
        q_values = policy.q_net(rollout.observations)
        loss = q_loss(q_values, rollout.actions, torch.from_numpy(targets.reshape(-1)), self.squared)
        return loss, (float(loss.detach()), float(_taken(q_values.detach(), rollout.actions).mean()))


@dataclass(frozen=True)
class NStepQUpdate(QUpdate):
    """n-step Q-learning (Algorithm S2): the rollout is made with θ', its returns bootstrap from its last state alone."""

    live: bool = False

    def returns(self, policy: DQNPolicy, rollout: Rollout, hyper: Hyper) -> Array:
        """``r_t + γ r_{t+1} + ... + γ^k max Q(s_{t+k}, ·; θ⁻)``, to the end of the rollout or of the episode."""
        bootstrap = self.value(policy, rollout.last, hyper).numpy()
        return n_step_returns(rollout.rewards, rollout.discounts, bootstrap)


@dataclass(frozen=True)
class SarsaUpdate(QUpdate):
    """One-step Sarsa: as one-step Q-learning, with the value of the action a' that is taken in the next state.

    a' is the learning network's choice and its value the target network's, so that ``double`` has nothing to add.
    """

    looks_ahead: bool = True

    def value(self, policy: DQNPolicy, observations: TensorObservation, hyper: Hyper) -> Tensor:
        """Q(s, a'; θ⁻) with an a' that would be taken, of final observations where nothing is taken any more."""
        actions, _ = self.act(policy, observations, hyper)
        return _taken(policy.q_net_target(observations), actions)

    def returns(self, policy: DQNPolicy, rollout: Rollout, hyper: Hyper) -> Array:
        """``r + γ Q(s', a'; θ⁻)``."""
        assert rollout.next_actions is not None
        return one_step_returns(rollout, _taken(policy.q_net_target(rollout.following), rollout.next_actions))


def one_step_returns(rollout: Rollout, following: Tensor) -> Array:
    """``r + γ v``, (T, N), with the values v (T * N,) of the states that followed."""
    returns: Array = rollout.rewards + rollout.discounts * following.numpy().reshape(rollout.rewards.shape)
    return returns


def _taken(q_values: Tensor, actions: Tensor) -> Tensor:
    return q_values.gather(1, actions.unsqueeze(1)).squeeze(1)


def _batch_size(observations: TensorObservation) -> int:
    return len(next(iter(observations.values())) if isinstance(observations, dict) else observations)
