"""The paper's loop, as one worker runs it (Mnih et al. 2016, Algorithms S2 and S3).

:meth:`ActorLearner.iterate` is one pass of the outer loop: synchronise, act, bootstrap, accumulate, update. What differs
between the algorithms is in the :class:`Update` object that each of them gives to its workers.
"""

import copy
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

#: Packages whose policies see observations through SB3's own preprocessing alone
SCALED_BY_SB3 = ("stable_baselines3.", "sb3_contrib.", "sb3_async.")


@dataclass(frozen=True)
class Rollout:
    """Up to ``n_steps`` steps (T) of a worker's environments (N), step by step: row ``t * N + i`` is of environment i."""

    states: TensorObservation  # ((T + 1) * N, ...), the last N of them after the last step
    actions: Tensor  # (T * N, ...), as the policy gave them
    next_actions: Tensor | None  # (T * N, ...), what was done in the states that followed, for algorithms that look ahead
    rewards: NDArray[np.float32]  # (T, N), with gamma times the value of the final observation where truncated
    discounts: NDArray[np.float32]  # (T, N), gamma, or 0 where an episode ended
    values: NDArray[np.float32]  # (T, N), of the observations when acted on

    @property
    def observations(self) -> TensorObservation:
        """(T * N, ...), what the actions were chosen for."""
        return self._rows(slice(0, self.rewards.size))

    @property
    def following(self) -> TensorObservation:
        """(T * N, ...), what came after each action: where the episode ended (discount 0), the first of the next one."""
        return self._rows(slice(self.rewards.shape[1], None))

    @property
    def last(self) -> TensorObservation:
        """(N, ...), what came after the last step."""
        return self._rows(slice(self.rewards.size, None))

    def _rows(self, rows: slice) -> TensorObservation:
        states = self.states
        return {key: part[rows] for key, part in states.items()} if isinstance(states, dict) else states[rows]


class Update(Protocol):
    """What an algorithm gives to its workers: small, picklable, without state."""

    statistics: tuple[str, ...]
    #: act on the shared parameters as they are at each step, and not on a copy made before the rollout
    live: bool
    #: choose the action that follows the rollout within it, and take it first in the next
    looks_ahead: bool
    #: end the rollout where the episode ends, if the worker has one environment
    ends_with_episode: bool

    def target_parameters(self, policy: Any) -> list[torch.nn.Parameter]:
        """The parameters of the target network, in the order of those trained; none without one."""

    def act(self, policy: Any, observations: TensorObservation, hyper: Hyper) -> tuple[Tensor, Tensor]:
        """Actions (N, ...) and values (N,) of a batch of N observations."""

    def value(self, policy: Any, observations: TensorObservation, hyper: Hyper) -> Tensor:
        """What a truncated episode goes on with from its final observation, (N,)."""

    def targets(self, policy: Any, rollout: Rollout, hyper: Hyper) -> Any:
        """What the loss pulls towards: bootstrapped returns."""

    def loss(self, policy: Any, rollout: Rollout, targets: Any, hyper: Hyper) -> tuple[Tensor, Sequence[float]]:
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
        lean = take_over_scaling(policy)
        self.policy = policy
        trained = list(policy.optimizer.param_groups[0]["params"])
        layout = FlatLayout(trained)
        self.shared = torch.nn.Parameter(block.tensor("parameters"), requires_grad=False)  # θ
        self._target = block.tensor("target") if "target" in block.fields else None  # θ⁻
        if self._target is not None:
            layout.place(self._update.target_parameters(policy), self._target)
        self._actor = policy
        if self._update.live:
            self._actor = copy.deepcopy(policy)
            layout.place(self._actor.optimizer.param_groups[0]["params"], self.shared)
            if self._target is not None:
                layout.place(self._update.target_parameters(self._actor), self._target)
        self.local, self.gradient = layout.bind(trained)  # θ' and dθ
        self.shared.grad = self.gradient
        state = {name: block.tensor(optimizer_field(name)) for name in config.optimizer_state}
        self._optimizer = attach(config.optimizer_class, config.optimizer_options, self.shared, state)

        self._observations = RolloutObservations(space, config.n_steps + 1, self.env.num_envs, lean)
        self._final = RolloutObservations(space, 1, 1, lean)
        self._newest = block.array("observation")[link.index]
        self._next_action: tuple[Tensor, Tensor] | None = None
        seed_streams(streams)  # again: how much building draws must not matter
        self._observations[0] = self._obs = self.env.reset()

    def iterate(self, grant: Grant) -> None:
        """Use up one grant: a rollout, or several short ones, and one update of the shared parameters with each."""
        hyper = dict(zip(self._config.hyper_names, grant.values.tolist(), strict=True))
        left = grant.steps // self.env.num_envs
        while left > 0:
            # Synchronise thread-specific parameters: θ' = θ.
            if not self._update.live:
                self._synchronise()

            # Act until t - t_start == t_max.
            rollout = self._act(left, hyper)
            if rollout is None:
                return

            # Bootstrap from the state after the last step, or from a target network.
            if self._update.live:
                self._synchronise()
            with torch.no_grad():
                targets = self._update.targets(self.policy, rollout, hyper)

            # Accumulate gradients wrt θ'.
            self.policy.set_training_mode(True)
            loss, statistics = self._update.loss(self.policy, rollout, targets, hyper)
            self.gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            self.policy.set_training_mode(False)

            # Perform asynchronous update of θ using dθ.
            self._apply_gradient(hyper, statistics)
            left -= len(rollout.rewards)
            if left == 0:
                self._update_target(hyper)
            self._observations[0] = self._obs
            write_observation(self._obs, self.env.observation_space, self._newest)
            self._link.report_steps(rollout.rewards.size)

    def _synchronise(self) -> None:
        self.local.copy_(self.shared)
        self._updates_seen = self._link.all_updates()

    def _apply_gradient(self, hyper: Hyper, statistics: Sequence[float]) -> None:
        if np.isfinite(clip_grad_norm(self.gradient, hyper["max_grad_norm"])):
            self._optimizer.param_groups[0]["lr"] = hyper["learning_rate"]
            self._optimizer.step()
            self._link.report_update(self._link.all_updates() - self._updates_seen, np.array(statistics))
        else:
            self._link.report_skip()

    def _update_target(self, hyper: Hyper) -> None:
        """Move θ⁻ if T passes a multiple of its interval within this grant: main counts, and one worker does it."""
        times = int(hyper.get("target_updates", 0))
        if self._target is None or times == 0:
            return
        # In memory of this process, so that the others see the old target network or the new one.
        kept = (1.0 - hyper["tau"]) ** times
        self._target.copy_(torch.lerp(self.shared.detach(), self._target, kept) if kept > 0 else self.shared.detach())
        self._link.report_target_updates(times)

    def _act(self, most: int, hyper: Hyper) -> Rollout | None:
        """Take ``n_steps`` steps in all environments, ``most`` at most; None if told to stop meanwhile."""
        env, policy, config, update = self.env, self._actor, self._config, self._update
        n_steps = min(config.n_steps, most)
        observations = self._observations
        rewards, values = np.zeros((n_steps, env.num_envs), np.float32), np.zeros((n_steps, env.num_envs), np.float32)
        discounts = np.full(rewards.shape, hyper["gamma"], np.float32)
        actions: list[Tensor] = []
        t = 0
        with torch.no_grad():
            while t < n_steps:
                if self._link.stopping:
                    self._link.report_steps(t * env.num_envs)
                    return None
                if config.use_sde and (t == 0 or (config.sde_sample_freq > 0 and t % config.sde_sample_freq == 0)):
                    policy.reset_noise(env.num_envs)
                action, value = self._next_action or update.act(policy, observations[t], hyper)
                self._obs, rewards[t], dones, infos = env.step(self._to_env(policy, action))
                observations[t + 1] = self._obs
                self._link.beat()
                actions.append(action)
                values[t] = value.numpy()
                if dones.any():
                    discounts[t, dones] = 0.0
                    self._end_episodes(dones, infos, rewards[t], hyper)
                if update.looks_ahead:
                    self._next_action = update.act(policy, observations[t + 1], hyper)
                t += 1
                if update.ends_with_episode and env.num_envs == 1 and dones[0]:
                    break
        return Rollout(
            observations.flat(t + 1),
            torch.cat(actions),
            torch.cat([*actions[1:], self._next_action[0]]) if self._next_action is not None else None,
            rewards[:t],
            discounts[:t],
            values[:t],
        )

    def _end_episodes(
        self, dones: NDArray[np.bool_], infos: list[dict[str, Any]], rewards: NDArray[np.float32], hyper: Hyper
    ) -> None:
        """Tell main of episodes that ended; a truncated one goes on in the value of its final observation."""
        for i in np.flatnonzero(dones):
            final = infos[i].pop("terminal_observation", None)
            if infos[i].get("TimeLimit.truncated", False) and final is not None:
                self._final[0] = {k: v[None] for k, v in final.items()} if isinstance(final, dict) else np.asarray(final)[None]
                rewards[i] += hyper["gamma"] * float(self._update.value(self._actor, self._final[0], hyper))
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
            if method is not None and not method.__module__.startswith(SCALED_BY_SB3):
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
