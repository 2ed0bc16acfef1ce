"""Atari games, preprocessed in C++ by ale-py's ``AtariVectorEnv``, as an SB3 ``VecEnv``.

The preprocessing is the usual one (Mnih et al. 2015; Machado et al. 2018, arXiv 1709.06009, for sticky actions):
84x84 grey pictures, 4 of them stacked, the maximum of the last two frames, up to 30 no-ops at the start of a game,
fire where the game waits for it. Four emulator frames make one step.
"""

import os
import re
import time
from collections.abc import Sequence
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import VecEnv

from sb3_async.envs.observations import placeholder

FRAME_SKIP = 4
# What AtariVectorEnv offers beyond what this module decides itself.
OPTIONS = frozenset(
    {
        "stack_num",
        "noop_max",
        "repeat_action_probability",
        "full_action_space",
        "max_num_frames_per_episode",
        "use_fire_reset",
        "maxpool",
        "img_height",
        "img_width",
        "grayscale",
    }
)

gym.register_envs(ale_py)


def is_atari(spec: EnvSpec) -> bool:
    """Whether a spec is an Atari game that shows pictures."""
    pictures = spec.kwargs.get("obs_type", "rgb") in ("rgb", "grayscale")
    return spec.entry_point == "ale_py.env:AtariEnv" and pictures


class AtariVecEnv(VecEnv):
    """``n_envs`` games in one emulator thread, made when first stepped.

    ``infos[i]["episode"]`` holds score, length and time at the end of a *game*, as of SB3's ``Monitor`` (and
    ``env_is_wrapped(Monitor)`` says yes, so that SB3 uses it). While training a lost life is a ``done`` as well, without
    "episode" and without a reset, and the reward is clipped to [-1, 1].

    :param spec: spec of the game; what it says of sticky actions and of the length of a game is obeyed
    :param n_envs: number of games
    :param training: lost lives and clipped rewards, as above
    :param monitor_dir: folder for one ``Monitor`` file per game
    :param first_rank: number of the first game, in the names of these files
    :param options: for ``AtariVectorEnv``
    :raises TypeError: for an option that it does not have
    """

    def __init__(
        self,
        spec: EnvSpec,
        n_envs: int = 1,
        training: bool = False,
        monitor_dir: str | None = None,
        first_rank: int = 0,
        **options: Any,
    ) -> None:
        unknown = sorted(set(options) - OPTIONS)
        if unknown:
            raise TypeError(
                f"{spec.id} does not take {', '.join(unknown)} with the Atari preprocessing, which has the options "
                f"{', '.join(sorted(OPTIONS))}. With preprocess_atari=False everything goes to gym.make."
            )
        self.spec = spec
        self.training = training
        self.monitor_dir = monitor_dir
        self.first_rank = first_rank
        self.options = options
        self.asleep = False  # as AsyncDummyVecEnv.asleep
        self.render_mode: str | None = None
        settings: dict[str, Any] = {
            key: spec.kwargs[key]
            for key in ("repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
            if key in spec.kwargs
        }
        if spec.max_episode_steps is not None:
            settings["max_num_frames_per_episode"] = spec.max_episode_steps * FRAME_SKIP
        self._settings = {**settings, **options}
        self._game = re.sub(r"(?<!^)(?=[A-Z])", "_", str(spec.kwargs["game"])).lower()
        self._games: AtariVectorEnv | None = None
        probe = self._make(1)
        n_actions: int = probe.single_action_space.n  # type: ignore[attr-defined]
        shape: Any = probe.single_observation_space.shape
        super().__init__(n_envs, probe.single_observation_space, spaces.Discrete(n_actions))
        if not self._settings.get("grayscale", True):  # (stack, height, width, 3): colours become channels of the stack
            stack, height, width, colours = shape
            self.observation_space = spaces.Box(0, 255, (stack * colours, height, width), np.uint8)
        self._scores = np.zeros(n_envs)
        self._lengths = np.zeros(n_envs, np.int64)
        self._lives = np.zeros(n_envs, np.int64)
        self._actions = np.zeros(n_envs, np.int64)
        self._writers: list[ResultsWriter] = []
        self._t_start = time.time()

    def _make(self, n_envs: int) -> AtariVectorEnv:
        return AtariVectorEnv(
            self._game,
            n_envs,
            num_threads=1,
            frameskip=FRAME_SKIP,
            autoreset_mode="SameStep",
            reward_clipping=False,  # the true score is needed as well
            episodic_life=False,
            **self._settings,
        )

    def _observation(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if raw.ndim == 5:  # (N, stack, height, width, colours)
            return np.moveaxis(raw, -1, 2).reshape(len(raw), *self.observation_space.shape)  # type: ignore[misc]
        return raw

    def reset(self) -> NDArray[np.uint8]:
        """Start all games anew; makes them the first time. Zeros while asleep."""
        if self.asleep:
            return placeholder(self.observation_space, self.num_envs)  # type: ignore[return-value]
        if self._games is None:
            self._games = self._make(self.num_envs)
            if self.monitor_dir is not None:
                self._writers = [
                    ResultsWriter(
                        os.path.join(self.monitor_dir, str(self.first_rank + i)),
                        {"t_start": self._t_start, "env_id": self.spec.id},
                    )
                    for i in range(self.num_envs)
                ]
        seeds = (
            np.array([-1 if s is None else s % 2**31 for s in self._seeds])
            if any(s is not None for s in self._seeds)
            else None
        )
        self._reset_seeds()
        self._reset_options()
        raw, info = self._games.reset(seed=seeds)
        self._scores[:], self._lengths[:], self._lives[:] = 0, 0, info["lives"]
        return self._observation(raw)

    def step_async(self, actions: NDArray[np.integer[Any]]) -> None:
        """Keep the actions, (n_envs,), for :meth:`step_wait`."""
        self._actions = np.asarray(actions, np.int64).reshape(self.num_envs)

    def step_wait(self) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Take one step in every game."""
        assert self._games is not None, "call reset() first"
        raw, rewards, terminated, truncated, info = self._games.step(self._actions)
        over = terminated | truncated
        self._scores += rewards
        self._lengths += 1
        dones = over | (info["lives"] < self._lives) if self.training else over
        self._lives[:] = info["lives"]
        obs = self._observation(raw)
        infos: list[dict[str, Any]] = [{"lives": int(lives), "TimeLimit.truncated": False} for lives in info["lives"]]
        if dones.any():
            final = self._observation(info["final_obs"]) if over.any() else obs
            for i in np.flatnonzero(dones):
                infos[i]["terminal_observation"] = final[i] if over[i] else obs[i]
                infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
                if over[i]:
                    infos[i]["episode"] = self._end_game(int(i))
        learnt = np.clip(rewards, -1, 1) if self.training else rewards
        return obs, learnt.astype(np.float32), dones, infos

    def _end_game(self, i: int) -> dict[str, float]:
        episode = {"r": float(self._scores[i]), "l": int(self._lengths[i]), "t": round(time.time() - self._t_start, 6)}
        if self._writers:
            self._writers[i].write_row(episode)
        self._scores[i] = self._lengths[i] = 0
        return episode

    def close(self) -> None:
        """Release the games; :meth:`reset` makes them again."""
        self._games = None
        for writer in self._writers:
            writer.close()
        self._writers = []

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """There are no pictures but the observations."""
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None) -> list[bool]:
        """True for ``Monitor``, whose statistics these games keep themselves."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of this adapter, once per game asked for."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)] if hasattr(self, "num_envs") else [None]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Games in C++ have no attributes to set."""
        raise AttributeError(f"{type(self).__name__} has no settable attribute {attr_name!r}: its games live in C++")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Games in C++ have no methods to call."""
        raise AttributeError(f"{type(self).__name__} has no method {method_name!r} per game: its games live in C++")


def make_atari_vec_env(
    env_id: str | EnvSpec, n_envs: int = 1, seed: int | None = None, training: bool = False, **options: Any
) -> AtariVecEnv:
    """Atari games with the preprocessing that an ALE id string gets in training.

    :param env_id: ``"ALE/Pong-v5"``, ``"PongNoFrameskip-v4"``, or such a spec
    :param n_envs: number of games
    :param seed: of the first reset
    :param training: a lost life is a ``done`` and rewards are clipped; False for evaluation
    :param options: for ``ale_py.AtariVectorEnv``: ``stack_num``, ``noop_max``, ``repeat_action_probability``, ...
    :raises ValueError: if the id is no Atari game
    :raises TypeError: for an unknown option
    """
    spec = gym.spec(env_id) if isinstance(env_id, str) else env_id
    if not is_atari(spec):
        raise ValueError(f"{spec.id} is not an Atari game that shows pictures")
    env = AtariVecEnv(spec, n_envs, training, **options)
    env.seed(seed)
    return env
