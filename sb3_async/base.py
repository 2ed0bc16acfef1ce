"""What the asynchronous algorithms have in common: the face of a Stable-Baselines3 algorithm over a group of workers."""

import io
import math
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule, TensorDict
from stable_baselines3.common.utils import safe_mean
from stable_baselines3.common.vec_env import VecEnv
from typing_extensions import Self

from sb3_async.checks import check_action_space, check_arguments, explain_small_images
from sb3_async.clock import CallbackClock, StepLocals
from sb3_async.envs import EnvOptions, make_main_env, split
from sb3_async.envs.split import EnvArgument
from sb3_async.optim import check_element_wise
from sb3_async.training import Training
from sb3_async.worker import Update


class AsyncAlgorithm(BaseAlgorithm):
    """Base of the asynchronous algorithms of Mnih et al. 2016 (arXiv 1602.01783).

    :param policy: policy class or alias
    :param env: an id string, an ``EnvSpec``, a callable that makes an environment, a list of such callables, a
        ``gymnasium.Env`` or a ``VecEnv``; None only for a loaded model that predicts
    :param n_workers: worker processes. None: the usable cores, and no more than there are environments. 0: everything in
        this process, for debugging
    :param n_envs_per_worker: environments that each worker steps together, where ``env`` is an id, a spec or a callable
    :param env_kwargs: keyword arguments for making environments
    :param wrapper_class: wrapper for each environment, outside its ``Monitor``
    :param wrapper_kwargs: keyword arguments of the wrapper
    :param preprocess_atari: give an ALE id the usual Atari preprocessing
    :param monitor_dir: folder for one ``Monitor`` file per environment
    :param start_method: ``"fork"``, ``"forkserver"`` or ``"spawn"``. None: fork server for what is made in the worker, fork
        for objects that it inherits; spawn where there is no fork
    :param max_worker_restarts: killed workers that are replaced in one ``learn``
    :param worker_timeout: seconds after which a silent worker is killed and replaced, None: never
    :param max_lead: steps that the workers may be ahead of the callbacks. None: a quarter of a second, and four rollouts
    :raises ValueError: for an argument that cannot work, before any worker starts

    The other parameters are those of the SB3 algorithm with the same ones.
    """

    #: Hyper-parameters that come with each grant of steps; attributes of the model, or schedules
    hyper_names: ClassVar[tuple[str, ...]] = ("learning_rate", "max_grad_norm", "gamma")
    supported_action_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = ()
    update: Update
    n_steps: int
    target_update_interval: int  # of algorithms with a target network

    def __init__(
        self,
        policy: str | type[BasePolicy],
        env: EnvArgument | None,
        learning_rate: float | Schedule,
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
        use_sde: bool = False,
        sde_sample_freq: int = -1,
    ) -> None:
        self._training: Training | None = None
        options = EnvOptions(n_envs_per_worker, env_kwargs, wrapper_class, wrapper_kwargs, preprocess_atari, monitor_dir)
        check_arguments(n_workers, n_envs_per_worker, start_method, max_worker_restarts, worker_timeout, max_lead)
        super().__init__(
            policy,
            None if env is None else make_main_env(env, options, verbose),
            learning_rate,
            policy_kwargs=dict(policy_kwargs or {}),
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device=device,
            support_multi_env=True,
            seed=seed,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            supported_action_spaces=self.supported_action_spaces,
        )
        self.n_workers = n_workers
        self.n_envs_per_worker = n_envs_per_worker
        self.env_kwargs = env_kwargs
        self.wrapper_class = wrapper_class
        self.wrapper_kwargs = wrapper_kwargs
        self.preprocess_atari = preprocess_atari
        self.monitor_dir = monitor_dir
        self.start_method = start_method
        self.max_worker_restarts = max_worker_restarts
        self.worker_timeout = worker_timeout
        self.max_lead = max_lead
        self._n_learns = 0
        if self.env is not None and n_workers is not None and n_workers > 0:
            split(self.env, n_workers)  # complains now rather than in learn()

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        return BaseAlgorithm._wrap_env(make_main_env(env, EnvOptions(), verbose), verbose, monitor_wrapper)

    @property
    def policy(self) -> Any:
        """The policy of the main process, in private memory; while training, what the workers have learnt so far."""
        if self._training is not None:
            self._training.refresh()
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._policy = policy

    def _setup_model(self) -> None:
        check_action_space(self.action_space)
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        kwargs = {"use_sde": self.use_sde} if self.use_sde else {}
        try:
            policy: Any = self.policy_class(
                self.observation_space, self.action_space, self.lr_schedule, **kwargs, **self.policy_kwargs
            )
        except RuntimeError as error:
            explain_small_images(self.observation_space, self.policy_kwargs, error)
            raise
        self.policy = policy.to(self.device)
        if len(policy.optimizer.param_groups) != 1:
            raise ValueError(
                "A policy whose optimizer has several parameter groups cannot be shared by the workers: use one group"
            )
        check_element_wise(policy.optimizer_class, {**policy.optimizer_kwargs, "lr": 1e-3})

    def hyper_values(self, timesteps: int, worker: int = 0) -> NDArray[np.float64]:
        """The hyper-parameters that hold at a global step, in the order of ``hyper_names``.

        :param timesteps: T; schedules get ``1 - T / total_timesteps``, within [0, 1]
        :param worker: for which worker
        """
        progress = min(max(1.0 - timesteps / max(self._total_timesteps, 1), 0.0), 1.0)
        return np.array([self._hyper_value(name, progress, worker) for name in self.hyper_names], np.float64)

    def _hyper_value(self, name: str, progress_remaining: float, worker: int) -> float:
        if name == "learning_rate":
            return float(self.lr_schedule(progress_remaining))
        value = getattr(self, name)
        return math.inf if value is None else value

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        super()._update_current_progress_remaining(num_timesteps, total_timesteps)
        self._current_progress_remaining = min(max(self._current_progress_remaining, 0.0), 1.0)

    def learn(
        self,
        total_timesteps: float,
        callback: MaybeCallback = None,
        log_interval: int | None = 100,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` steps (rounded up to whole ``get_env().num_envs``), exactly.

        :param total_timesteps: steps of all workers together
        :param callback: called as in SB3, once for ``get_env().num_envs`` steps
        :param log_interval: training iterations (one rollout of every worker) between two dumps of the logs, None: never
        :param tb_log_name: name of the TensorBoard run; the name of the class by default
        :param reset_num_timesteps: count from 0, or go on
        :param progress_bar: show one
        :return: self
        :raises Exception: what a worker raised, with its traceback as ``__cause__``
        :raises WorkerDied: if workers are killed more often than ``max_worker_restarts``
        :raises SharedMemoryError: if ``/dev/shm`` is too small
        """
        if self.env is None:
            raise ValueError("The model has no environment to learn in: load it with env=..., or call set_env() first")
        if self._training is not None:
            raise RuntimeError("learn() is running already")
        tb_log_name = tb_log_name or type(self).__name__
        total, starter = self._setup_learn(
            math.ceil(total_timesteps), callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        starter.on_training_start(
            StepLocals(
                self=self,
                callback=starter,
                total_timesteps=total,
                log_interval=log_interval,
                tb_log_name=tb_log_name,
                reset_num_timesteps=reset_num_timesteps,
                progress_bar=progress_bar,
                iteration=0,
            ),
            globals(),
        )
        missing = max(total - self.num_timesteps, 0)
        training = Training(self, budget=-(-missing // self.env.num_envs) * self.env.num_envs)
        self._n_learns += 1
        self._prepare(training.n_workers)
        rollout = self.n_steps * training.n_envs * training.n_workers
        self._run(training, CallbackClock(self, starter, training.n_envs, rollout, log_interval), total)
        starter.on_training_end()
        return self

    def _prepare(self, n_workers: int) -> None:
        """Called before ``n_workers`` workers start."""

    def _run(self, training: Training, clock: CallbackClock, total: int) -> None:
        """Let the workers train up to ``total`` steps, or until a callback has enough."""
        updates = self._n_updates
        self._training = training
        try:
            training.start()
            running = True
            while running and self.num_timesteps < total:
                done, messages = training.poll()
                self._n_updates = updates + int(training.slots.updates.sum())
                clock.receive(messages)
                running = clock.advance(done, training.newest_observation())
            if running:
                clock.end_rollout()
        finally:
            training.stop()
            self._n_updates = updates + int(training.slots.updates.sum())
            self._training = None

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        # What the workers make themselves need not be made here only to be reset.
        assert self.env is not None
        base: Any = self.env.unwrapped
        asleep = getattr(base, "asleep", None)
        if asleep is None:
            return super()._setup_learn(*args, **kwargs)
        base.asleep = True
        try:
            return super()._setup_learn(*args, **kwargs)
        finally:
            base.asleep = asleep

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the logs.

        :param iteration: number of the training iteration, left out if 0
        """
        assert self.ep_info_buffer is not None and self.ep_success_buffer is not None
        logger = self.logger
        elapsed = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        if iteration > 0:
            logger.record("time/iterations", iteration, exclude="tensorboard")
        if self.ep_info_buffer and self.ep_info_buffer[0]:
            logger.record("rollout/ep_rew_mean", safe_mean([info["r"] for info in self.ep_info_buffer]))
            logger.record("rollout/ep_len_mean", safe_mean([info["l"] for info in self.ep_info_buffer]))
        if self.ep_success_buffer:
            logger.record("rollout/success_rate", safe_mean(self.ep_success_buffer))
        logger.record("time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed))
        logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        logger.record("train/learning_rate", float(self.hyper_values(self.num_timesteps)[0]))
        logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if self._training is not None:
            means, figures = self._training.metrics()
            if means:
                self._record_statistics(means)
            for name, value in figures.items():
                logger.record(f"async/{name}", value)
        logger.dump(step=self.num_timesteps)

    def _record_statistics(self, means: dict[str, float]) -> None:
        """Log the means of the update's statistics since the last time."""
        for name, value in means.items():
            self.logger.record(f"train/{name}", value)

    def set_parameters(
        self, load_path_or_dict: str | TensorDict, exact_match: bool = True, device: torch.device | str = "auto"
    ) -> None:
        """As in SB3; while training the workers go on from the parameters given."""
        super().set_parameters(load_path_or_dict, exact_match=exact_match, device=device)
        if self._training is not None:
            self._training.push()

    @classmethod
    def load(
        cls,
        path: str | pathlib.Path | io.BufferedIOBase,
        env: EnvArgument | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """As in SB3; ``env`` may be all that the constructor takes, made with the options of the saved model."""
        if env is not None and not isinstance(env, VecEnv):
            data, _, _ = load_from_zip_file(path, device="cpu", custom_objects=custom_objects)
            if isinstance(path, io.BufferedIOBase):
                path.seek(0)
            settings = {**(data or {}), **kwargs}
            names = EnvOptions.__dataclass_fields__
            env = make_main_env(env, EnvOptions(**{name: settings[name] for name in names if name in settings}))
        return super().load(path, env, device, custom_objects, print_system_info, force_reset, **kwargs)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_policy", "_training"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []
