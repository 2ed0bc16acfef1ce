"""Asynchronous advantage actor-critic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    BasePolicy,
    MultiInputActorCriticPolicy,
)
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from sb3_async.base import AsyncAlgorithm
from sb3_async.envs.observations import TensorObservation
from sb3_async.envs.split import EnvArgument
from sb3_async.losses import a3c_loss
from sb3_async.optim import SharedRMSProp
from sb3_async.returns import Array, gae
from sb3_async.worker import Hyper, Rollout


@dataclass(frozen=True)
class A3CUpdate:
    """Acting and loss of A3C.

    :param discrete: whether actions are single integers
    :param normalize_advantage: scale the advantages of each rollout to mean 0 and deviation 1
    """

    discrete: bool
    normalize_advantage: bool = False
    statistics: tuple[str, ...] = (
        "policy_loss",
        "value_loss",
        "entropy_loss",
        "return",
        "return_square",
        "error",
        "error_square",
    )

    live: bool = False
    looks_ahead: bool = False
    ends_with_episode: bool = False

    def target_parameters(self, policy: ActorCriticPolicy) -> list[torch.nn.Parameter]:
        """There is no target network."""
        return []

    def act(self, policy: ActorCriticPolicy, observations: TensorObservation, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """Sample from π(a|s; θ')."""
        actions, values, _ = policy(observations)
        return actions, values.flatten()

    def value(self, policy: ActorCriticPolicy, observations: TensorObservation, hyper: Hyper) -> Tensor:
        """V(s; θ'), what a rollout that does not end in a terminal state is bootstrapped from."""
        return policy.predict_values(observations).flatten()

    def targets(self, policy: ActorCriticPolicy, rollout: Rollout, hyper: Hyper) -> tuple[Array, Array]:
        """Advantages and returns, (T, N) each, see :func:`sb3_async.returns.gae`."""
        bootstrap = self.value(policy, rollout.last, hyper).numpy()
        return gae(rollout.rewards, rollout.discounts, rollout.values, bootstrap, hyper["gae_lambda"])

    def loss(
        self, policy: ActorCriticPolicy, rollout: Rollout, targets: tuple[Array, Array], hyper: Hyper
    ) -> tuple[Tensor, Sequence[float]]:
        """The A3C loss of one rollout, see :func:`sb3_async.losses.a3c_loss`."""
        advantages, returns = targets
        actions = rollout.actions.long().flatten() if self.discrete else rollout.actions
        values, log_probs, entropy = policy.evaluate_actions(rollout.observations, actions)
        advantage = torch.from_numpy(advantages.reshape(-1))
        if self.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        target = torch.from_numpy(returns.reshape(-1))
        loss = a3c_loss(log_probs, entropy, values.flatten(), advantage, target, hyper["ent_coef"], hyper["vf_coef"])
        errors = returns - rollout.values
        moments = [returns.mean(), (returns**2).mean(), errors.mean(), (errors**2).mean()]
        terms = [float(term.detach()) for term in (loss.policy, loss.value, loss.entropy)]
        return loss.total, [*terms, *map(float, moments)]


class A3C(AsyncAlgorithm):
    """Asynchronous Advantage Actor-Critic (A3C).

    Paper: Mnih et al. 2016, Algorithm S3, https://arxiv.org/abs/1602.01783. Worker processes each own environments and a copy
    of the network, and apply their gradients without locks to parameters in shared memory.

    :param policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"`` or a class of that kind
    :param env: see :class:`~sb3_async.base.AsyncAlgorithm`, as for the parameters from ``n_workers`` to ``max_lead``
    :param learning_rate: a number, or a function of the progress remaining (from 1 to 0 over all workers' steps)
    :param n_steps: steps of a rollout (the paper's t_max), in each environment
    :param gamma: discount factor
    :param gae_lambda: λ of generalised advantage estimation; 1 gives the paper's n-step returns
    :param ent_coef: weight of the entropy (the paper's beta)
    :param vf_coef: weight of the squared value error; the paper's authors' is 0.25
    :param max_grad_norm: largest L2 norm of a gradient, longer ones are scaled; None: no limit
    :param rms_prop_eps: epsilon of RMSProp, inside the square root
    :param use_rms_prop: RMSProp with shared statistics unless ``policy_kwargs`` has an ``optimizer_class``; False: SB3's Adam
    :param use_sde: generalised state-dependent exploration, for continuous actions
    :param sde_sample_freq: steps between two samples of its noise matrix, -1: once a rollout
    :param normalize_advantage: normalise the advantages of each rollout
    :param stats_window_size: episodes that the logged means are taken over
    :param tensorboard_log: folder for TensorBoard
    :param policy_kwargs: further arguments of the policy
    :param verbose: 0 nothing, 1 information
    :param seed: of all random streams; results repeat exactly for ``n_workers`` 0 and 1
    :param device: of the main process's policy; workers use the CPU
    :param _init_setup_model: build the network now
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": ActorCriticPolicy,
        "CnnPolicy": ActorCriticCnnPolicy,
        "MultiInputPolicy": MultiInputActorCriticPolicy,
    }
    hyper_names = ("learning_rate", "max_grad_norm", "gamma", "gae_lambda", "ent_coef", "vf_coef")
    supported_action_spaces = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: EnvArgument | None,
        learning_rate: float | Schedule = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        gae_lambda: float = 1.0,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = 0.5,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        normalize_advantage: bool = False,
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
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        super().__init__(
            policy,
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
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
        )
        self.n_steps = n_steps
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.ent_coef = ent_coef
        self.vf_coef = vf_coef
        self.max_grad_norm = max_grad_norm
        self.normalize_advantage = normalize_advantage
        # For A2C.load(), which builds a rollout buffer.
        self.rollout_buffer_class = None
        self.rollout_buffer_kwargs: dict[str, Any] = {}
        if use_rms_prop and "optimizer_class" not in self.policy_kwargs:
            self.policy_kwargs["optimizer_class"] = SharedRMSProp
            self.policy_kwargs["optimizer_kwargs"] = dict(alpha=0.99, eps=rms_prop_eps)
        if _init_setup_model:
            self._setup_model()

    @property
    def update(self) -> A3CUpdate:  # type: ignore[override]
        """What the workers act and learn with."""
        return A3CUpdate(isinstance(self.action_space, spaces.Discrete), self.normalize_advantage)

    def _record_statistics(self, means: dict[str, float]) -> None:
        for name in ("policy_loss", "value_loss", "entropy_loss"):
            self.logger.record(f"train/{name}", means[name])
        variance = means["return_square"] - means["return"] ** 2
        unexplained = means["error_square"] - means["error"] ** 2
        self.logger.record("train/explained_variance", 1 - unexplained / variance if variance > 0 else float("nan"))
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", float(torch.exp(self.policy.log_std).mean()))
