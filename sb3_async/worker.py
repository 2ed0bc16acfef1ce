"""The paper's loop, as one worker runs it (Mnih et al. 2016, Algorithms S2 and S3).

:meth:`ActorLearner.iterate` is one pass of the outer loop: synchronise, act, bootstrap, accumulate, update. What differs
between the algorithms is in the :class:`Update` object that each of them gives to its workers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import BaseModel, BasePolicy
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, is_vecenv_wrapped
from torch import Tensor

from sb3_async.envs.observations import RolloutObservations, TensorObservation, write_observation
from sb3_async.optim import OptimizerClass, attach, clip_grad_norm
from sb3_async.runtime import FlatLayout, Grant, SharedBlock, WorkerLink
from sb3_async.runtime.seeding import seed_streams

Hyper = Mapping[str, float]


@dataclass(frozen=True)
class Rollout:
    """Up to ``n_steps`` steps (T) of a worker's environments (N)."""

    observations: TensorObservation  # (T * N, ...), step by step
    actions: Tensor  # (T * N, ...), as the policy gave them
    rewards: NDArray[np.float32]  # (T, N), with gamma times the value of the final observation where truncated
    discounts: NDArray[np.float32]  # (T, N), gamma, or 0 where an episode ended
    values: NDArray[np.float32]  # (T, N), of the observations when acted on
    bootstrap: NDArray[np.float32]  # (N,), value of the observation after the last step


class Update(Protocol):
    """What an algorithm gives to its workers: small, picklable, without state."""

    statistics: tuple[str, ...]

    def act(self, policy: Any, observations: TensorObservation) -> tuple[Tensor, Tensor]:
        """Actions (N, ...) and values (N,) of a batch of N observations."""

    def value(self, policy: Any, observations: TensorObservation) -> Tensor:
        """What to bootstrap from after the last step, (N,)."""

    def loss(self, policy: Any, rollout: Rollout, hyper: Hyper) -> tuple[Tensor, Sequence[float]]:
        """The loss, a scalar to differentiate, and a number for each of ``statistics``."""


@dataclass(frozen=True)
class WorkerConfig:
    """All that a worker is made from."""

    make_env: Callable[[], VecEnv]
    policy_class: type[BasePolicy]
    policy_kwargs: dict[str, Any]
    update: Update
    n_steps: int
    hyper_names: tuple[str, ...]
    optimizer_class: OptimizerClass
    optimizer_options: dict[str, Any]
    optimizer_state: tuple[str, ...]
    seed: np.random.SeedSequence
    use_sde: bool = False
    sde_sample_freq: int = -1


def optimizer_field(name: str) -> str:
    """Name of a part of the optimiser's state in the shared block."""
    return f"optimizer.{name}"


class ActorLearner:
    """One worker: environments, a copy of the network, and the shared vector that it improves.

    :param config: what it is made from
    :param link: its connection to the main process
    :param block: shared memory with "parameters", the optimiser's state and "observation"
    """

    def __init__(self, config: WorkerConfig, link: WorkerLink, block: SharedBlock) -> None:
        self._config, self._link, self._update = config, link, config.update
        streams, env_seed, action_seed = config.seed.spawn(3)
        seed_streams(streams)
        self.env = config.make_env()
        self.env.seed(_seed_word(env_seed))
        self.env.action_space.seed(_seed_word(action_seed))
        self._monitored = is_vecenv_wrapped(self.env, VecMonitor) or self.env.env_is_wrapped(Monitor)[0]
        self._to_env = partial(_env_actions, self.env.action_space)
        space = self.env.observation_space

        policy: Any = config.policy_class(space, self.env.action_space, lambda _: 0.0, **config.policy_kwargs)
        policy.set_training_mode(False)
        self.policy = policy
        trained = list(policy.optimizer.param_groups[0]["params"])
        self.local, self.gradient = FlatLayout(trained).bind(trained)  # θ' and dθ
        self.shared = torch.nn.Parameter(block.tensor("parameters"), requires_grad=False)  # θ
        self.shared.grad = self.gradient
        state = {name: block.tensor(optimizer_field(name)) for name in config.optimizer_state}
        self._optimizer = attach(config.optimizer_class, config.optimizer_options, self.shared, state)

        lean = take_over_scaling(policy)
        self._observations = RolloutObservations(space, config.n_steps + 1, self.env.num_envs, lean)
        self._final = RolloutObservations(space, 1, 1, lean)
        self._newest = block.array("observation")[link.index]
        seed_streams(streams)  # again: how much building draws must not matter
        self._observations[0] = self._obs = self.env.reset()

    def iterate(self, grant: Grant) -> None:
        """One rollout of at most ``n_steps`` steps, and one update of the shared parameters with it."""
        hyper = dict(zip(self._config.hyper_names, grant.values.tolist(), strict=True))
        # Synchronise thread-specific parameters: θ' = θ.
        self.local.copy_(self.shared)
        updates_seen = self._link.all_updates()

        # Act according to π(a|s; θ') until t - t_start == t_max.
        n_steps = grant.steps // self.env.num_envs
        rollout = self._act(n_steps, hyper)
        if rollout is None:
            return

        # Accumulate gradients wrt θ'.
        self.policy.set_training_mode(True)
        loss, statistics = self._update.loss(self.policy, rollout, hyper)
        self.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        self.policy.set_training_mode(False)

        # Perform asynchronous update of θ using dθ.
        if np.isfinite(clip_grad_norm(self.gradient, hyper["max_grad_norm"])):
            self._optimizer.param_groups[0]["lr"] = hyper["learning_rate"]
            self._optimizer.step()
            self._link.report_update(self._link.all_updates() - updates_seen, np.array(statistics))
        else:
            self._link.report_skip()
        self._observations[0] = self._obs
        write_observation(self._obs, self.env.observation_space, self._newest)
        self._link.report_steps(grant.steps)

    def _act(self, n_steps: int, hyper: Hyper) -> Rollout | None:
        """Take ``n_steps`` steps in all environments; None if told to stop meanwhile."""
        env, policy, config, shape = self.env, self.policy, self._config, (n_steps, self.env.num_envs)
        observations = self._observations
        rewards, values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        discounts = np.full(shape, hyper["gamma"], np.float32)
        actions: list[Tensor] = []
        with torch.no_grad():
            for t in range(n_steps):
                if self._link.stopping:
                    self._link.report_steps(t * env.num_envs)
                    return None
                if config.use_sde and (t == 0 or (config.sde_sample_freq > 0 and t % config.sde_sample_freq == 0)):
                    policy.reset_noise(env.num_envs)
                action, value = self._update.act(policy, observations[t])
                self._obs, rewards[t], dones, infos = env.step(self._to_env(policy, action))
                observations[t + 1] = self._obs
                self._link.beat()
                actions.append(action)
                values[t] = value.numpy()
                if dones.any():
                    discounts[t, dones] = 0.0
                    self._end_episodes(dones, infos, rewards[t], hyper["gamma"])
            bootstrap = self._update.value(policy, observations[n_steps]).numpy()
        return Rollout(observations.flat(n_steps), torch.cat(actions), rewards, discounts, values, bootstrap)

    def _end_episodes(
        self, dones: NDArray[np.bool_], infos: list[dict[str, Any]], rewards: NDArray[np.float32], gamma: float
    ) -> None:
        """Tell main of episodes that ended; a truncated one goes on in the value of its final observation."""
        for i in np.flatnonzero(dones):
            final = infos[i].pop("terminal_observation", None)
            if infos[i].get("TimeLimit.truncated", False) and final is not None:
                self._final[0] = {k: v[None] for k, v in final.items()} if isinstance(final, dict) else np.asarray(final)[None]
                rewards[i] += gamma * float(self._update.value(self.policy, self._final[0]))
            # A monitored environment says when an episode is over: a lost life, for one, is not.
            if "episode" in infos[i] or not self._monitored:
                self._link.send(("episode", int(i), infos[i]))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def take_over_scaling(policy: BasePolicy) -> bool:
    """Let the worker scale pictures instead of the policy, if all methods that see observations are SB3's own.

    SB3 looks through the whole observation space for each batch to find that it is one of pictures; here this is
    known from the start. Whoever overrides one of these methods gets the observations that SB3 would give.

    :return: whether the policy now expects scaled pictures
    """
    models = [module for module in policy.modules() if isinstance(module, BaseModel)]
    for model in models:
        for name in ("forward", "evaluate_actions", "predict_values", "extract_features"):
            method = getattr(type(model), name, None)
            if method is not None and not method.__module__.startswith(("stable_baselines3.", "sb3_contrib.")):
                return False
    if not policy.normalize_images:
        return False
    for model in models:
        model.normalize_images = False
    return True


def _seed_word(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0]) % 2**31


def _env_actions(space: spaces.Space[Any], policy: Any, actions: Tensor) -> NDArray[Any]:
    """The policy's actions (N, ...) as the environments take them, as SB3's ``collect_rollouts`` does."""
    raw: NDArray[Any] = actions.numpy()
    if not isinstance(space, spaces.Box):
        return raw
    if policy.squash_output:
        return np.asarray(policy.unscale_action(raw))
    return np.asarray(np.clip(raw, space.low, space.high))
