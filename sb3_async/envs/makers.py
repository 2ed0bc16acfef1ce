"""Recipes of single environments, and a ``VecEnv`` that keeps recipes instead of environments."""

import contextlib
import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from stable_baselines3.common.vec_env.patch_gym import _patch_env

from sb3_async.envs.observations import Observation, placeholder

GymEnv = gym.Env[Any, Any]


@dataclass(frozen=True)
class EnvMaker:
    """Makes environment number ``rank`` as SB3's ``make_vec_env`` does: made, monitored, then wrapped.

    :param source: spec, or callable that returns an environment; it may take ``rank`` as a keyword
    :param env_kwargs: further keyword arguments
    :param wrapper_class: applied outside the ``Monitor``
    :param wrapper_kwargs: its keyword arguments
    :param monitor_dir: folder for ``{rank}.monitor.csv``
    """

    source: EnvSpec | Callable[..., GymEnv]
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    wrapper_class: Callable[..., GymEnv] | None = None
    wrapper_kwargs: dict[str, Any] = field(default_factory=dict)
    monitor_dir: str | None = None

    def __call__(self, rank: int, log: bool = True, render: bool = False) -> GymEnv:
        """Make environment ``rank``.

        :param log: False leaves out the ``Monitor`` file
        :param render: ask for pictures where the environment offers them
        """
        env = self._source(rank, render)
        if not is_wrapped(env, Monitor):
            path = os.path.join(self.monitor_dir, str(rank)) if self.monitor_dir is not None and log else None
            env = Monitor(env, path)
        return env if self.wrapper_class is None else self.wrapper_class(env, **self.wrapper_kwargs)

    def _source(self, rank: int, render: bool) -> GymEnv:
        kwargs = dict(self.env_kwargs)
        if isinstance(self.source, EnvSpec):
            if render and "render_mode" not in kwargs:
                with contextlib.suppress(TypeError), warnings.catch_warnings():  # as in SB3: not every one has a render_mode
                    warnings.filterwarnings("ignore", message=".*not in the possible render_modes.*")
                    return gym.make(self.source, **kwargs, render_mode="rgb_array")
            return gym.make(self.source, **kwargs)
        if "rank" in _parameters(self.source):
            kwargs["rank"] = rank
        env = self.source(**kwargs)
        if isinstance(env, VecEnv):
            raise TypeError(
                f"{self.source} returned a VecEnv; it must return one gymnasium.Env (n_envs_per_worker asks for several)"
            )
        return _patch_env(env)


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # builtins and the like have no signature
        return set()


class AsyncDummyVecEnv(DummyVecEnv):
    """A ``DummyVecEnv`` whose environments are made when first used, and can be put to sleep.

    The main process needs the spaces at once, but an environment only for evaluation after training. While it sleeps
    the workers have the environments to themselves (and their ports, files and memory); ``reset()`` then returns zeros.

    :param makers: one for each environment, or a single one that can make any number of them
    :param num_envs: number of environments here in the main process
    """

    def __init__(self, makers: EnvMaker | Sequence[EnvMaker], num_envs: int = 1) -> None:
        self.makers = makers
        self.asleep = False
        self._envs: list[GymEnv] | None = None
        n = num_envs if isinstance(makers, EnvMaker) else len(makers)
        self._functions: list[Callable[[], GymEnv]] = [
            partial(self.maker(rank), rank, log=False, render=True) for rank in range(n)
        ]
        super().__init__(self._functions[:1])
        self.close()
        VecEnv.__init__(self, n, self.observation_space, self.action_space)
        for key, array in self.buf_obs.items():
            self.buf_obs[key] = np.zeros((n, *array.shape[1:]), array.dtype)
        self.buf_dones, self.buf_rews = np.zeros(n, bool), np.zeros(n, np.float32)
        self.buf_infos = [{} for _ in range(n)]

    def maker(self, rank: int) -> EnvMaker:
        """What makes environment ``rank``."""
        return self.makers if isinstance(self.makers, EnvMaker) else self.makers[rank]

    @property
    def envs(self) -> list[GymEnv]:
        """The environments, made now if they are not there."""
        if self._envs is None:
            self._envs = [function() for function in self._functions]
        return self._envs

    @envs.setter
    def envs(self, envs: list[GymEnv]) -> None:
        self._envs = envs

    def reset(self) -> Observation:
        """Reset all environments; zeros while asleep."""
        if self.asleep:
            return placeholder(self.observation_space, self.num_envs)
        return super().reset()

    def close(self) -> None:
        """Close the environments; they are made again when used again."""
        envs, self._envs = self._envs, None
        for env in envs or []:
            env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """As in ``DummyVecEnv``; the render mode is known without making the environments."""
        if attr_name == "render_mode" and self._envs is None:
            return [self.render_mode] * len(list(self._get_indices(indices)))
        return super().get_attr(attr_name, indices)
