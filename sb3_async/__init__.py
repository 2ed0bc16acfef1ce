"""Asynchronous reinforcement learning on CPUs, as algorithms of Stable-Baselines3."""

from sb3_async.a3c import A3C
from sb3_async.async_q import AsyncNStepQ, AsyncQ, AsyncSarsa
from sb3_async.envs import make_atari_vec_env
from sb3_async.envs.catch import register as _register_catch
from sb3_async.errors import AsyncError, SharedMemoryError, WorkerDied, WorkerError
from sb3_async.version import __version__

__all__ = [
    "A3C",
    "AsyncError",
    "AsyncNStepQ",
    "AsyncQ",
    "AsyncSarsa",
    "SharedMemoryError",
    "WorkerDied",
    "WorkerError",
    "__version__",
    "make_atari_vec_env",
]

_register_catch()
