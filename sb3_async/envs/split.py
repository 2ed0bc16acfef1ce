"""From what the user gave as ``env`` to the environments of each worker.

:func:`make_main_env` turns the ``env`` argument into the ``VecEnv`` that the main process keeps, :func:`split` that
``VecEnv`` into one function per worker, which makes the worker's own ``VecEnv`` in the worker's process.
"""

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecTransposeImage,
)
from stable_baselines3.common.vec_env.patch_gym import _patch_env

from sb3_async.envs.atari import AtariVecEnv, is_atari
from sb3_async.envs.makers import AsyncDummyVecEnv, EnvMaker, GymEnv

EnvArgument = str | EnvSpec | Callable[..., GymEnv] | Sequence[Callable[..., GymEnv]] | GymEnv | VecEnv
MakeEnv = Callable[[], VecEnv]

HOW_TO_PASS = (
    "an id string, a gymnasium EnvSpec, a callable that makes an environment, a list of such callables, "
    "a gymnasium.Env or a VecEnv"
)


@dataclass(frozen=True)
class EnvOptions:
    """The constructor arguments that say how environments are made; see :class:`sb3_async.base.AsyncAlgorithm`."""

    n_envs_per_worker: int = 1
    env_kwargs: dict[str, Any] | None = None
    wrapper_class: Callable[..., GymEnv] | None = None
    wrapper_kwargs: dict[str, Any] | None = None
    preprocess_atari: bool = True
    monitor_dir: str | None = None

    def maker(self, source: EnvSpec | Callable[..., GymEnv]) -> EnvMaker:
        """A maker of environments from ``source`` with these options."""
        return EnvMaker(source, self.env_kwargs or {}, self.wrapper_class, self.wrapper_kwargs or {}, self.monitor_dir)

    def reject_for(self, what: str) -> None:
        """Refuse the options that only a recipe can obey.

        :raises ValueError: naming those given
        """
        given = [name for name in ("env_kwargs", "wrapper_class", "wrapper_kwargs", "monitor_dir") if getattr(self, name)]
        given += ["n_envs_per_worker"] if self.n_envs_per_worker != 1 else []
        if given:
            raise ValueError(
                f"{', '.join(given)} cannot be applied to {what}: pass an id or a callable, or build it so yourself"
            )


class CopiedVecEnv(DummyVecEnv):
    """Holds the one environment object that the user gave, of which every worker gets a copy."""


def make_main_env(env: EnvArgument, options: EnvOptions, verbose: int = 0) -> VecEnv:
    """The main process's ``VecEnv`` for an ``env`` argument.

    :raises TypeError: if ``env`` is none of the kinds that are understood
    :raises ValueError: if options were given that this kind of ``env`` cannot obey
    """
    if isinstance(env, VecEnv):
        options.reject_for("a VecEnv")
        return env
    if isinstance(env, gym.Env):
        options.reject_for("an environment object")
        env = _patch_env(env)
        return CopiedVecEnv([partial(_same, env if is_wrapped(env, Monitor) else Monitor(env))])
    source = gym.spec(env) if isinstance(env, str) else env
    if isinstance(source, EnvSpec) and options.preprocess_atari and is_atari(source):
        return _atari(source, options, verbose)
    if isinstance(source, EnvSpec) or callable(source):
        return AsyncDummyVecEnv(options.maker(source), options.n_envs_per_worker)
    if isinstance(source, Sequence) and source and all(callable(function) for function in source):
        if options.n_envs_per_worker != 1:
            raise ValueError("n_envs_per_worker follows from the number of callables and n_workers: leave it out")
        return AsyncDummyVecEnv([options.maker(function) for function in source])
    raise TypeError(f"env must be {HOW_TO_PASS}, got {env!r}")


def _atari(spec: EnvSpec, options: EnvOptions, verbose: int) -> AtariVecEnv:
    if options.wrapper_class is not None:
        raise ValueError(
            f"{spec.id} gets the Atari preprocessing, which runs in C++ and takes no wrapper_class. Leave it out, or "
            "pass preprocess_atari=False (with SB3's AtariWrapper also env_kwargs=dict(frameskip=1), else an action lasts 16 "
            "frames)."
        )
    env = AtariVecEnv(spec, options.n_envs_per_worker, True, options.monitor_dir, **(options.env_kwargs or {}))
    if verbose >= 1:
        print(
            f"{spec.id} is preprocessed as usual for Atari (84x84 grey, 4 frames stacked, 4 frames per step, sticky actions "
            f"{env._settings.get('repeat_action_probability', 0.0)}, clipped rewards, a lost life ends the return); "
            "preprocess_atari=False turns this off, make_atari_vec_env() makes the same for evaluation."
        )
    return env


def base_env(venv: VecEnv) -> VecEnv:
    """The ``VecEnv`` inside all wrappers."""
    while isinstance(venv, VecEnvWrapper):
        venv = venv.venv
    return venv


def is_recipe(venv: VecEnv) -> bool:
    """Whether worker environments are made anew, so that any start method will do."""
    return isinstance(base_env(venv), AsyncDummyVecEnv | AtariVecEnv)


def fixed_number(venv: VecEnv) -> int | None:
    """How many environments there are to be split, None if any number can be made."""
    base = base_env(venv)
    if isinstance(base, AsyncDummyVecEnv):
        return None if isinstance(base.makers, EnvMaker) else base.num_envs
    return None if isinstance(base, AtariVecEnv | CopiedVecEnv) else base.num_envs


def split(venv: VecEnv, n_workers: int) -> list[MakeEnv]:
    """The environments of each worker.

    :param venv: the main process's
    :param n_workers: at least 1
    :return: for each worker, what makes its ``VecEnv``
    :raises ValueError: if they cannot be split evenly, cannot be copied, or have a wrapper that cannot be split
    """
    rewrap = [_rewrapper(wrapper) for wrapper in _wrappers(venv)]
    base, total = base_env(venv), fixed_number(venv)
    if total is not None and (n_workers > total or total % n_workers):
        fitting = [str(n) for n in range(1, total + 1) if total % n == 0]
        raise ValueError(
            f"n_workers={n_workers}, but env has {total} environments, which are split evenly over the workers: "
            f"use n_workers={' or '.join(fitting)}"
        )
    n_envs = base.num_envs if total is None else total // n_workers
    return [partial(_build, _part(base, i, n_envs, n_workers), rewrap) for i in range(n_workers)]


def _build(make_base: MakeEnv, rewrap: list[Callable[[VecEnv], VecEnv]]) -> VecEnv:
    venv = make_base()
    for wrap in reversed(rewrap):
        venv = wrap(venv)
    return venv


def _part(base: VecEnv, worker: int, n_envs: int, n_workers: int) -> MakeEnv:
    first = worker * n_envs
    if isinstance(base, AtariVecEnv):
        return partial(AtariVecEnv, base.spec, n_envs, base.training, base.monitor_dir, first, **base.options)
    if isinstance(base, AsyncDummyVecEnv):
        return partial(_make_dummy, [(base.maker(rank), rank) for rank in range(first, first + n_envs)])
    if isinstance(base, DummyVecEnv) and type(base) in (CopiedVecEnv, DummyVecEnv):
        envs = base.envs if isinstance(base, CopiedVecEnv) else base.envs[first : first + n_envs]
        for env in envs:
            _check_copyable(env)
        return partial(DummyVecEnv, [partial(_same, env) for env in envs])  # a forked worker inherits them
    if type(base) is SubprocVecEnv:
        return partial(_subproc_part, base, first, n_envs)
    if n_workers > 1:
        raise ValueError(
            f"A {type(base).__name__} cannot be split over {n_workers} workers: use n_workers=1 (or 0), or pass {HOW_TO_PASS}"
        )
    return partial(_same_vec_env, base)


def _same_vec_env(venv: VecEnv) -> VecEnv:
    return venv


def _same(env: GymEnv) -> GymEnv:
    return env


def _make_dummy(makers: list[tuple[EnvMaker, int]]) -> VecEnv:
    return DummyVecEnv([partial(maker, rank) for maker, rank in makers])


def _subproc_part(venv: SubprocVecEnv, first: int, n_envs: int) -> VecEnv:
    """Some of the processes of a ``SubprocVecEnv``, stepped by a forked worker through the pipes it inherits."""
    part = copy.copy(venv)
    part.num_envs = n_envs
    for name in ("remotes", "work_remotes", "processes", "reset_infos", "_seeds", "_options"):
        setattr(part, name, list(getattr(venv, name))[first : first + n_envs])
    part.close = lambda: None  # type: ignore[method-assign]  # they belong to the main process
    return part


def _check_copyable(env: GymEnv) -> None:
    """Refuse an environment that holds what only one process can: a socket, a lock, a child.

    :raises ValueError: naming the reason
    """
    monitors = []
    layer: GymEnv = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, Monitor) and layer.results_writer is not None:
            monitors.append((layer, layer.results_writer))
            layer.results_writer = None  # an open file, which a forked process does share
        layer = layer.env
    try:
        cloudpickle.dumps(env)
    except Exception as error:
        raise ValueError(
            f"The environment {env} cannot be copied to the workers: {error}. Pass a callable (or a list of callables) "
            "that makes it, so that every worker makes its own; or use n_workers=0."
        ) from error
    finally:
        for monitor, writer in monitors:
            monitor.results_writer = writer


def _wrappers(venv: VecEnv) -> list[VecEnvWrapper]:
    wrappers = []
    while isinstance(venv, VecEnvWrapper):
        wrappers.append(venv)
        venv = venv.venv
    return wrappers


def _rewrapper(wrapper: VecEnvWrapper) -> Callable[[VecEnv], VecEnv]:
    """What puts a wrapper like ``wrapper`` around a worker's environments.

    :raises ValueError: for a wrapper that is not known
    """
    kind = type(wrapper)
    if isinstance(wrapper, VecTransposeImage) and kind is VecTransposeImage:
        return partial(VecTransposeImage, skip=wrapper.skip)
    if isinstance(wrapper, VecFrameStack) and kind is VecFrameStack:
        return partial(VecFrameStack, n_stack=_n_stack(wrapper), channels_order=_channels_order(wrapper))
    if isinstance(wrapper, VecMonitor) and kind is VecMonitor:
        return partial(_monitor, keywords=wrapper.info_keywords)
    if isinstance(wrapper, VecExtractDictObs) and kind is VecExtractDictObs:
        return partial(VecExtractDictObs, key=wrapper.key)
    if isinstance(wrapper, VecCheckNan) and kind is VecCheckNan:
        options = {name: getattr(wrapper, name) for name in ("raise_exception", "warn_once", "check_inf")}
        return partial(VecCheckNan, **options)
    raise ValueError(
        f"{kind.__name__} cannot be split over workers. Put a gymnasium wrapper around each environment instead "
        "(wrapper_class=, for normalisation gymnasium.wrappers.NormalizeObservation), or use n_workers=0, which steps "
        "your VecEnv as it is."
    )


def _monitor(venv: VecEnv, keywords: tuple[str, ...]) -> VecEnv:
    return VecMonitor(venv, info_keywords=keywords)


def _n_stack(wrapper: VecFrameStack) -> int:
    return int(wrapper.stacked_obs.n_stack)


def _channels_order(wrapper: VecFrameStack) -> Any:
    stacked = wrapper.stacked_obs
    name = {True: "first", False: "last", None: None}
    if isinstance(wrapper.venv.observation_space, gym.spaces.Dict):
        return {key: name[sub.channels_first] for key, sub in stacked.sub_stacked_observations.items()}
    return name[stacked.channels_first]


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return cores


class BorrowedVecEnv(VecEnvWrapper):
    """The main process's own ``VecEnv``, lent to a worker in the same process, which must not close it."""

    def reset(self) -> Any:
        """Reset it."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Step it."""
        return self.venv.step_wait()

    def close(self) -> None:
        """Leave it open."""


def lend(venv: VecEnv) -> MakeEnv:
    """The environments of a worker in the main process: made anew from a recipe, otherwise the user's own objects."""
    return split(venv, 1)[0] if is_recipe(venv) else partial(BorrowedVecEnv, venv)
