"""Observations in arrays: of a rollout, and in shared memory. An observation is an array or a dict of arrays."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs

# SB3's VecEnvObs; tuples are in it for no space that a policy takes.
Observation = VecEnvObs
TensorObservation = torch.Tensor | dict[str, torch.Tensor]
_Parts = dict[str | None, spaces.Space[Any]]


def _parts(space: spaces.Space[Any]) -> _Parts:
    return dict(space.spaces.items()) if isinstance(space, spaces.Dict) else {None: space}


def part_of(observation: Observation, key: str | None) -> NDArray[Any]:
    """The array of ``key`` in a dict, or the observation itself for None."""
    part: NDArray[Any] = observation if key is None else observation[key]  # type: ignore[assignment,call-overload]
    return part


def _shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    assert space.shape is not None
    return space.shape


class RolloutObservations:
    """The observations of up to ``length`` steps of ``n_envs`` environments, in memory used again for every rollout.

    :param space: observation space of one environment
    :param length: steps
    :param n_envs: environments
    :param scale_images: give pictures as SB3's ``preprocess_obs`` would make them, floats in [0, 1], and in channels-last
        memory order, which convolutions on the CPU are faster with
    """

    def __init__(self, space: spaces.Space[Any], length: int, n_envs: int, scale_images: bool = False) -> None:
        self._arrays: dict[str | None, NDArray[Any]] = {}
        self._tensors: dict[str | None, torch.Tensor] = {}
        self._pictures: set[str | None] = set()
        for key, part in _parts(space).items():
            shape = _shape(part)
            if scale_images and is_image_space(part, check_channels=False):
                self._pictures.add(key)
                channels, height, width = shape
                array = np.zeros((length, n_envs, height, width, channels), part.dtype).transpose(0, 1, 4, 2, 3)
            else:
                array = np.zeros((length, n_envs, *shape), part.dtype)
            self._arrays[key], self._tensors[key] = array, torch.from_numpy(array)

    def __setitem__(self, step: int, observation: Observation) -> None:
        for key, array in self._arrays.items():
            value = part_of(observation, key)
            if key in self._pictures:  # one plane at a time: numpy takes four times as long for all of them
                for channel in range(array.shape[2]):
                    array[step, :, channel] = value[:, channel]
            else:
                array[step] = value

    def __getitem__(self, step: int) -> TensorObservation:
        """The batch of step ``step``, (n_envs, ...). Not a copy."""
        return self._prepared({key: tensor[step] for key, tensor in self._tensors.items()})

    def flat(self, length: int) -> TensorObservation:
        """The first ``length`` steps as one batch, (length * n_envs, ...), step by step. Not a copy."""
        return self._prepared({key: tensor[:length].flatten(0, 1) for key, tensor in self._tensors.items()})

    def _prepared(self, tensors: dict[str | None, torch.Tensor]) -> TensorObservation:
        for key in self._pictures:
            tensors[key] = torch.div(tensors[key], 255.0)  # in one pass, unlike .float() / 255
        return tensors.get(None, tensors)  # type: ignore[arg-type]


def observation_bytes(space: spaces.Space[Any], n_envs: int) -> int:
    """Bytes that the observations of ``n_envs`` environments take."""
    return sum(n_envs * int(np.prod(_shape(part))) * np.dtype(part.dtype).itemsize for part in _parts(space).values())


def write_observation(observation: Observation, space: spaces.Space[Any], memory: NDArray[np.uint8]) -> None:
    """Copy an observation of some environments into ``memory``, (observation_bytes,)."""
    start = 0
    for key, part in _parts(space).items():
        value = part_of(observation, key)
        raw = np.ascontiguousarray(value, dtype=part.dtype).reshape(-1).view(np.uint8)
        memory[start : start + raw.size] = raw
        start += raw.size


def read_observation(space: spaces.Space[Any], n_envs: int, memory: NDArray[np.uint8]) -> Observation:
    """The observation that :func:`write_observation` left in ``memory``, copied."""
    values: dict[str | None, NDArray[Any]] = {}
    start = 0
    for key, part in _parts(space).items():
        size = observation_bytes(part, n_envs)
        values[key] = memory[start : start + size].copy().view(part.dtype).reshape(n_envs, *_shape(part))
        start += size
    return values.get(None, values)  # type: ignore[arg-type]


def placeholder(space: spaces.Space[Any], n_envs: int) -> Observation:
    """An observation of zeros for ``n_envs`` environments."""
    return read_observation(space, n_envs, np.zeros(observation_bytes(space, n_envs), np.uint8))
