"""Where the workers' environments come from."""

from sb3_async.envs.atari import AtariVecEnv, make_atari_vec_env
from sb3_async.envs.catch import Catch
from sb3_async.envs.makers import AsyncDummyVecEnv, EnvMaker
from sb3_async.envs.split import (
    EnvOptions,
    MakeEnv,
    base_env,
    fixed_number,
    is_recipe,
    lend,
    make_main_env,
    split,
    usable_cores,
)

__all__ = [
    "AsyncDummyVecEnv",
    "AtariVecEnv",
    "Catch",
    "EnvMaker",
    "EnvOptions",
    "MakeEnv",
    "base_env",
    "fixed_number",
    "is_recipe",
    "lend",
    "make_atari_vec_env",
    "make_main_env",
    "split",
    "usable_cores",
]
