"""What exists only while ``learn`` runs: shared memory, workers, and the step budget."""

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from sb3_async.envs import base_env, fixed_number, is_recipe, lend, split, usable_cores
from sb3_async.envs.observations import Observation, observation_bytes, read_observation
from sb3_async.optim import initial_state
from sb3_async.runtime import Credits, Crossings, Field, FlatLayout, InlineGroup, SharedBlock, Slots, WorkerGroup
from sb3_async.runtime.link import MakeWorker
from sb3_async.runtime.supervisor import Messages
from sb3_async.worker import ActorLearner, WorkerConfig, optimizer_field

if TYPE_CHECKING:
    from sb3_async.base import AsyncAlgorithm

LEAD_ROLLOUTS = 4  # a worker may be at least this many rollouts ahead of the callbacks,
LEAD_SECONDS = 0.25  # and all of them this much time
FIRST_TICK, LONGEST_TICK = 0.005, 0.05  # seconds between two looks at the workers


def count_workers(model: "AsyncAlgorithm") -> int:
    """The number of worker processes that ``n_workers`` stands for; 0 runs inline."""
    assert model.env is not None
    if model.n_workers is not None:
        return model.n_workers
    cores, total = usable_cores(), fixed_number(model.env)
    return cores if total is None else max(n for n in range(1, min(cores, total) + 1) if total % n == 0)


def choose_start_method(model: "AsyncAlgorithm") -> str:
    """The start method, for live environment objects one that inherits them."""
    assert model.env is not None
    if model.start_method is not None:
        return model.start_method
    if sys.platform != "linux":
        return "spawn"
    return "forkserver" if is_recipe(model.env) else "fork"


class Training:
    """One run of ``learn``.

    :param model: whose parameters are trained
    :param budget: steps to take
    """

    def __init__(self, model: "AsyncAlgorithm", budget: int) -> None:
        assert model.env is not None
        self._model, env = model, model.env
        n_workers = count_workers(model)
        inline = n_workers == 0
        self._make_envs = [lend(env)] if inline else split(env, n_workers)
        self.n_workers = max(1, n_workers)
        total = fixed_number(env)
        self.n_envs = env.num_envs if total is None else total // self.n_workers
        self.budget, self._start_steps = budget, model.num_timesteps
        self._entropy = model.seed if model.seed is not None else int.from_bytes(os.urandom(16), "little")

        self._trained: list[torch.nn.Parameter] = list(model._policy.optimizer.param_groups[0]["params"])
        self._layout = FlatLayout(self._trained)
        options = {**model._policy.optimizer_kwargs, "lr": 0.0}
        self._optimizer = (model._policy.optimizer_class, options)
        state = initial_state(*self._optimizer, self._layout.size)
        self._state_names = tuple(state)
        self._target: list[torch.nn.Parameter] = model.update.target_parameters(model._policy)
        vector = state_field(torch.empty(self._layout.size, dtype=self._layout.dtype))
        fields = {"parameters": vector} | ({"target": vector} if self._target else {})
        fields |= {optimizer_field(name): state_field(value) for name, value in state.items()}
        fields |= {
            "observation": Field((self.n_workers, observation_bytes(env.observation_space, self.n_envs)), np.dtype("u1"))
        }
        fields |= Slots.fields(self.n_workers, len(model.hyper_names) + 1, len(model.update.statistics))
        self._block = SharedBlock(fields, shared=not inline)
        for name, value in state.items():
            self._block.tensor(optimizer_field(name)).copy_(value)
        self.push()

        self.group = (
            InlineGroup(self._make_worker, self._block)
            if inline
            else WorkerGroup(
                self._make_worker,
                n_workers,
                self._block,
                choose_start_method(model),
                preload=("sb3_async.preload",),
                max_restarts=model.max_worker_restarts,
                timeout=model.worker_timeout,
                on_restart=self._reclaim,
            )
        )
        self.slots = self.group.slots
        self._target_updates = Crossings(self.slots.target_updates, self._start_steps)
        self.credits = Credits(self.slots, budget, rollout=model.n_steps * self.n_envs, unit=self.n_envs)
        self.tick = 0.0 if inline else FIRST_TICK
        self._fresh = True
        self._first_step: float | None = None
        self._marks = self._counts()

    def _make_worker(self, worker: int, generation: int) -> MakeWorker:
        model = self._model
        config = WorkerConfig(
            make_env=self._make_envs[worker],
            policy_class=model.policy_class,
            policy_kwargs={**model.policy_kwargs, "use_sde": model.use_sde} if model.use_sde else model.policy_kwargs,
            update=model.update,
            n_steps=model.n_steps,
            hyper_names=(*model.hyper_names, "target_updates"),
            optimizer_class=self._optimizer[0],
            optimizer_options=self._optimizer[1],
            optimizer_state=self._state_names,
            seed=np.random.SeedSequence(self._entropy, spawn_key=(model._n_learns, worker, generation)),
            use_sde=model.use_sde,
            sde_sample_freq=model.sde_sample_freq,
        )
        return partial(ActorLearner, config)

    def start(self) -> None:
        """Start the workers; the first steps are granted before they are up."""
        # The workers have the environments to themselves while they train.
        base: Any = base_env(self._model.env)  # type: ignore[arg-type]
        if is_recipe(base):
            base.close()
            base.asleep = True
        self._deal(0)
        self.group.start()

    def _deal(self, clock: int) -> None:
        least = LEAD_ROLLOUTS * self.n_workers * self._model.n_steps * self.n_envs
        done = int(self.slots.done.sum())
        rate = 0.0
        if done > 0:
            self._first_step = self._first_step or time.monotonic() - self.tick
            rate = done / max(time.monotonic() - self._first_step, 1e-3)
        lead = self._model.max_lead if self._model.max_lead is not None else max(least, int(LEAD_SECONDS * rate))
        self.credits.deal(clock + lead, self._grant_values)

    def _grant_values(self, worker: int, before: int, after: int) -> NDArray[np.float64]:
        model, steps = self._model, self._start_steps + after
        times = self._target_updates.due(worker, steps, model.target_update_interval) if self._target else 0
        return np.append(model.hyper_values(steps, worker), times)

    def _reclaim(self, worker: int) -> None:
        self.credits.reclaim(worker)
        self._target_updates.reclaim(worker)

    def poll(self) -> tuple[int, Messages]:
        """Grant more steps and see what the workers did: steps done so far in this run, and messages.

        :raises Exception: see :meth:`sb3_async.runtime.WorkerGroup.poll`
        """
        self._deal(self._model.num_timesteps - self._start_steps)
        done, messages = self.group.poll(self.tick)
        self.tick = min(1.3 * self.tick, LONGEST_TICK)
        self._fresh = False
        return done, messages

    def stop(self) -> None:
        """End the workers, and leave what they learnt in the model."""
        try:
            self.group.stop()
        finally:
            del self.group  # it refers to this object: without the cycle, shared memory is released at once
            self.pull()
            base: Any = base_env(self._model.env)  # type: ignore[arg-type]
            if is_recipe(base):
                base.asleep = False

    def push(self) -> None:
        """Copy parameters and optimiser state from the model's policy to the workers."""
        self._layout.gather(self._trained, self._block.tensor("parameters"))
        if self._target:
            self._layout.gather(self._target, self._block.tensor("target"))
        states = [self._model._policy.optimizer.state.get(p, {}) for p in self._trained]
        for name in self._state_names:
            values = [state[name] for state in states if name in state]
            if len(values) < len(states):  # no step taken so far
                continue
            shared = self._block.tensor(optimizer_field(name))
            if shared.ndim == 0:
                shared.fill_(float(values[0]))
            else:
                self._layout.gather(values, shared)

    def pull(self) -> None:
        """Copy parameters and optimiser state from the workers to the model's policy, as ordinary torch state."""
        self._layout.scatter(self._block.tensor("parameters"), self._trained)
        if self._target:
            self._layout.scatter(self._block.tensor("target"), self._target)
        state = self._model._policy.optimizer.state
        for name in self._state_names:
            shared = self._block.tensor(optimizer_field(name))
            values = [shared] * len(self._trained) if shared.ndim == 0 else self._layout.views(shared)
            for parameter, value in zip(self._trained, values, strict=True):
                # contiguous: saved files and A2C know nothing of the order in shared memory
                state[parameter][name] = value.to(parameter.device if value.ndim else "cpu").clone(
                    memory_format=torch.contiguous_format
                )
        self._fresh = True

    def refresh(self) -> None:
        """Pull once for each look at the workers: all callbacks in between see the same network."""
        if not self._fresh:
            self.pull()

    def newest_observation(self) -> Observation:
        """The newest observation of as many environments as the main process has."""
        assert self._model.env is not None
        space, memory = self._model.env.observation_space, self._block.array("observation")
        if self._model.env.num_envs == self.n_envs:  # of the worker that is furthest
            return read_observation(space, self.n_envs, memory[int(self.slots.done.argmax())])
        parts = [read_observation(space, self.n_envs, row) for row in memory]
        if isinstance(parts[0], dict):
            return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}  # type: ignore[call-overload]
        return np.concatenate(parts)  # type: ignore[arg-type]

    def _counts(self) -> tuple[float, NDArray[Any], int, int, NDArray[Any]]:
        slots = self.slots
        return time.monotonic(), slots.done.copy(), int(slots.updates.sum()), int(slots.lag.sum()), slots.stats.sum(axis=0)

    def metrics(self) -> tuple[dict[str, float], dict[str, float]]:
        """What happened since the last call.

        :return: means of the update's statistics (empty if there was no update), and the ``async/*`` figures
        """
        before, self._marks = self._marks, self._counts()
        seconds, done, updates, lag, sums = (now - then for now, then in zip(self._marks, before, strict=True))  # type: ignore[operator]
        names = self._model.update.statistics
        means = dict(zip(names, (sums / updates).tolist(), strict=True)) if updates else {}
        rates = done / max(seconds, 1e-9)
        figures = {
            "fps_per_worker": float(rates.mean()),
            "fps_slowest_worker": float(rates.min()),
            "credits": self.credits.outstanding / self.n_workers,
            "skipped_updates": int(self.slots.skipped.sum()),
            "worker_restarts": self.group.restarts,
        }
        if self._target:
            figures["target_updates"] = int(self.slots.target_updates.sum())
        if updates:
            figures["policy_lag"] = lag / updates
        return means, figures


def state_field(value: torch.Tensor) -> Field:
    """The field that holds a tensor like ``value``."""
    return Field(tuple(value.shape), torch.empty(0, dtype=value.dtype).numpy().dtype)
