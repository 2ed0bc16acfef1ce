"""The settings of the benchmarks, all in one place. Whatever is not named is A3C's default."""

from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

from sb3_async.policies import SmallCNN


def linear(start: float) -> Callable[[float], float]:
    """From ``start`` down to 0 over all steps."""
    return lambda progress: start * progress


ADAM = dict(optimizer_class=torch.optim.Adam, optimizer_kwargs=dict(eps=1e-5))

CARTPOLE: dict[str, Any] = dict(
    policy="MlpPolicy",
    learning_rate=linear(1e-3),
    n_steps=16,
    gamma=0.98,
    gae_lambda=0.95,
    normalize_advantage=True,
    n_envs_per_worker=4,
)

# Adam, since rms_prop_eps=1e-5 is large beside the squared gradients of this network (about 1e-7): RMSProp is slow then.
PONG: dict[str, Any] = dict(
    policy="CnnPolicy",
    learning_rate=2e-4,
    n_steps=8,
    gae_lambda=0.95,
    ent_coef=0.01,
    n_envs_per_worker=4,
    policy_kwargs=ADAM,
)


CATCH: dict[str, Any] = dict(
    policy="CnnPolicy",
    learning_rate=linear(6e-4),
    n_steps=23,  # an episode
    gae_lambda=0.95,
    ent_coef=0.01,
    normalize_advantage=True,
    n_envs_per_worker=8,
    policy_kwargs=dict(features_extractor_class=SmallCNN, **ADAM),
)


def catch_env(n_envs: int) -> VecFrameStack:
    """Catch with the last four screens: one alone does not show which way the ball goes."""
    return VecFrameStack(make_vec_env("Catch-v0", n_envs), 4)
