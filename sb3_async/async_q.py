"""The paper's value-based methods: asynchronous one-step Q-learning, n-step Q-learning and one-step Sarsa."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy, MlpPolicy, MultiInputPolicy, QNetwork

from sb3_async.base import AsyncAlgorithm
from sb3_async.checks import check_q_arguments
from sb3_async.envs.split import EnvArgument
from sb3_async.exploration import draw_quantiles, final_eps_at, linear_eps
from sb3_async.optim import SharedRMSProp
from sb3_async.policies import DuelingCnnPolicy, DuelingMlpPolicy, DuelingMultiInputPolicy
from sb3_async.q_updates import NStepQUpdate, QUpdate, SarsaUpdate


class AsyncQ(AsyncAlgorithm):
    """Asynchronous one-step Q-learning.

    Paper: Mnih et al. 2016, Algorithm 1, https://arxiv.org/abs/1602.01783. Each worker acts ε-greedily on the shared
    parameters as they are at each step, and adds up its gradients over ``n_steps`` steps or to the end of an episode.

    :param policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"`` or a class of that kind
    :param env: see :class:`~sb3_async.base.AsyncAlgorithm`, as for the parameters from ``n_workers`` to ``max_lead``
    :param learning_rate: a number, or a function of the progress remaining (from 1 to 0 over all workers' steps)
    :param n_steps: steps in each environment between two updates (the paper's t_max and I_AsyncUpdate)
    :param gamma: discount factor
    :param target_update_interval: steps of all workers together between two updates of the target network
    :param tau: share of the new network in an update of the target network, 1 copies it
    :param exploration_fraction: share of the training over which ε goes from its initial to its final value
    :param exploration_initial_eps: ε at the start
    :param exploration_final_eps: final values of ε, of which each worker draws one, or one value for all
    :param exploration_final_probs: their probabilities
    :param double_q: double Q-learning
    :param pal_alpha: α of persistent advantage learning, 0: none
    :param max_grad_norm: largest L2 norm of a gradient, longer ones are scaled; None: no limit
    :param huber_loss: Huber's loss as in SB3's DQN; False: the squared error, as in the paper
    :param rms_prop_eps: epsilon of RMSProp, inside the square root
    :param use_rms_prop: RMSProp with shared statistics unless ``policy_kwargs`` has an ``optimizer_class``; False: SB3's Adam
    :param stats_window_size: episodes that the logged means are taken over
    :param tensorboard_log: folder for TensorBoard
    :param policy_kwargs: further arguments of the policy; ``dueling=True`` for dueling heads
    :param verbose: 0 nothing, 1 information
    :param seed: of all random streams; results repeat exactly for ``n_workers`` 0 and 1
    :param device: of the main process's policy; workers use the CPU
    :param _init_setup_model: build the network now
    :raises ValueError: for an argument that cannot work, before any worker starts
    :raises AssertionError: for actions that are not ``Discrete``, as SB3 does
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    _dueling_policies: ClassVar[dict[type[BasePolicy], type[BasePolicy]]] = {
        MlpPolicy: DuelingMlpPolicy,
        CnnPolicy: DuelingCnnPolicy,
        MultiInputPolicy: DuelingMultiInputPolicy,
    }
    hyper_names = ("learning_rate", "max_grad_norm", "gamma", "tau", "exploration_rate", "pal_alpha")
    supported_action_spaces = (spaces.Discrete,)
    update_class: ClassVar[type[QUpdate]] = QUpdate

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: EnvArgument | None,
        learning_rate: float | Schedule = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        target_update_interval: int = 10_000,
        tau: float = 1.0,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float | Sequence[float] = (0.1, 0.01, 0.5),
        exploration_final_probs: Sequence[float] = (0.4, 0.3, 0.3),
        double_q: bool = False,
        pal_alpha: float = 0.0,
        max_grad_norm: float | None = 10.0,
        huber_loss: bool = True,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        n_workers: int | None = None,
        n_envs_per_worker: int = 1,
        env_kwargs: dict[str, Any] | None = None,
        wrapper_class: Callable[..., Any] | None = None,
        wrapper_kwargs: dict[str, Any] | None = None,
        preprocess_atari: bool = True,
        monitor_dir: str | None = None,
        start_method: str | None = None,
        max_worker_restarts: int = 3,
        worker_timeout: float | None = 300.0,
        max_lead: int | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        self.n_steps = n_steps
        self.gamma = gamma
        self.target_update_interval = target_update_interval
        self.tau = tau
        self.exploration_fraction = exploration_fraction
        self.exploration_initial_eps = exploration_initial_eps
        self.exploration_final_eps = exploration_final_eps
        self.exploration_final_probs = exploration_final_probs
        self.double_q = double_q
        self.pal_alpha = pal_alpha
        self.max_grad_norm = max_grad_norm
        self.huber_loss = huber_loss
        self.exploration_rate = 0.0
        self._final_eps_quantiles: NDArray[np.float64] | None = None
        check_q_arguments(self)
        policy_kwargs = dict(policy_kwargs or {})
        super().__init__(
            self._dueling_policy(policy) if policy_kwargs.pop("dueling", False) else policy,
            env,
            learning_rate,
            n_workers=n_workers,
            n_envs_per_worker=n_envs_per_worker,
            env_kwargs=env_kwargs,
            wrapper_class=wrapper_class,
            wrapper_kwargs=wrapper_kwargs,
            preprocess_atari=preprocess_atari,
            monitor_dir=monitor_dir,
            start_method=start_method,
            max_worker_restarts=max_worker_restarts,
            worker_timeout=worker_timeout,
            max_lead=max_lead,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
        )
        if use_rms_prop and "optimizer_class" not in self.policy_kwargs:
            self.policy_kwargs["optimizer_class"] = SharedRMSProp
            self.policy_kwargs["optimizer_kwargs"] = dict(alpha=0.99, eps=rms_prop_eps)
        if _init_setup_model:
            self._setup_model()

    def _dueling_policy(self, policy: str | type[DQNPolicy]) -> type[BasePolicy]:
        found = self.policy_aliases.get(policy) if isinstance(policy, str) else policy
        if found not in self._dueling_policies:
            raise ValueError(f"dueling=True goes with {', '.join(self.policy_aliases)}, not with {policy}")
        return self._dueling_policies[found]

    @property
    def update(self) -> QUpdate:  # type: ignore[override]
        """What the workers act and learn with."""
        return self.update_class(self.double_q, not self.huber_loss, self.pal_alpha > 0)

    @property
    def q_net(self) -> QNetwork:
        """Q(s, ·; θ)."""
        network: QNetwork = self.policy.q_net
        return network

    @property
    def q_net_target(self) -> QNetwork:
        """Q(s, ·; θ⁻)."""
        network: QNetwork = self.policy.q_net_target
        return network

    def _prepare(self, n_workers: int) -> None:
        # Once: a worker keeps its final epsilon when training goes on.
        if self._final_eps_quantiles is None or len(self._final_eps_quantiles) != n_workers:
            self._final_eps_quantiles = draw_quantiles(n_workers, np.random.default_rng(self.seed))
        self.exploration_rate = self._mean_eps(self._current_progress_remaining)

    def _final_eps(self, worker: int) -> float:
        assert self._final_eps_quantiles is not None
        quantile = self._final_eps_quantiles[worker]
        return final_eps_at(quantile, self.exploration_final_eps, self.exploration_final_probs)

    def _eps(self, progress_remaining: float, worker: int) -> float:
        return linear_eps(progress_remaining, self.exploration_initial_eps, self._final_eps(worker), self.exploration_fraction)

    def _mean_eps(self, progress_remaining: float) -> float:
        assert self._final_eps_quantiles is not None
        return float(np.mean([self._eps(progress_remaining, worker) for worker in range(len(self._final_eps_quantiles))]))

    def _hyper_value(self, name: str, progress_remaining: float, worker: int) -> float:
        if name == "exploration_rate":
            return self._eps(progress_remaining, worker)
        return super()._hyper_value(name, progress_remaining, worker)

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        super()._update_current_progress_remaining(num_timesteps, total_timesteps)
        if self._final_eps_quantiles is not None:
            self.exploration_rate = self._mean_eps(self._current_progress_remaining)

    def _record_statistics(self, means: dict[str, float]) -> None:
        super()._record_statistics(means)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)
        assert self._final_eps_quantiles is not None
        for worker in range(len(self._final_eps_quantiles)):
            self.logger.record(f"exploration_final_eps/worker_{worker}", self._final_eps(worker), exclude="stdout")

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...] | None]:
        """As in SB3's DQN: random actions with probability ``exploration_rate`` unless ``deterministic``."""
        if deterministic or np.random.rand() >= self.exploration_rate:
            return super().predict(observation, state, episode_start, deterministic)
        if not self.policy.is_vectorized_observation(observation):
            return np.array(self.action_space.sample()), state
        batch = len(next(iter(observation.values())) if isinstance(observation, dict) else observation)
        return np.array([self.action_space.sample() for _ in range(batch)]), state


class AsyncNStepQ(AsyncQ):
    """Asynchronous n-step Q-learning.

    Paper: Mnih et al. 2016, Algorithm S2, https://arxiv.org/abs/1602.01783. Each worker makes a rollout with a copy of the
    parameters and learns from the longest possible n-step return of each of its steps. The parameters are
    :class:`AsyncQ`'s.
    """

    update_class = NStepQUpdate


class AsyncSarsa(AsyncQ):
    """Asynchronous one-step Sarsa.

    Paper: Mnih et al. 2016, section 4, https://arxiv.org/abs/1602.01783. As one-step Q-learning, with the value of the
    action that is taken next instead of the best one's. The parameters are :class:`AsyncQ`'s.
    """

    update_class = SarsaUpdate
