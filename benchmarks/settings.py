"""The settings of the benchmarks, all in one place. Whatever is not named is the algorithm's default."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from sb3_async import A3C, AsyncNStepQ, AsyncQ, AsyncSarsa
from sb3_async.policies import SmallCNN

Settings = dict[str, Any]
ALGORITHMS: dict[str, Any] = {"a3c": A3C, "asyncq": AsyncQ, "asyncnstepq": AsyncNStepQ, "asyncsarsa": AsyncSarsa}


class Task(NamedTuple):
    """What is to be reached: a mean score over some evaluation episodes, after some steps."""

    steps: int
    score: float
    episodes: int


TASKS = {("a3c", "CartPole-v1"): Task(500_000, 475.0, 20), ("a3c", "Catch-v0"): Task(300_000, 0.95, 500)}
TASKS |= {(algo, "CartPole-v1"): Task(300_000, 400.0, 20) for algo in ALGORITHMS if algo != "a3c"}
TASKS |= {(algo, "Catch-v0"): Task(300_000, 0.9, 500) for algo in ALGORITHMS if algo != "a3c"}


def linear(start: float) -> Callable[[float], float]:
    """From ``start`` down to 0 over all steps."""
    return lambda progress: start * progress


ADAM = dict(optimizer_class=torch.optim.Adam, optimizer_kwargs=dict(eps=1e-5))

CARTPOLE: Settings = dict(
    policy="MlpPolicy",
    learning_rate=linear(1e-3),
    n_steps=16,
    gamma=0.98,
    gae_lambda=0.95,
    normalize_advantage=True,
    n_envs_per_worker=4,
)

# Adam, since rms_prop_eps=1e-5 is large beside the squared gradients of this network (about 1e-7): RMSProp is slow then.
# Normalised advantages, since points are rare: without them the entropy bonus keeps the policy uniform (400,000 steps).
PONG: Settings = dict(
    policy="CnnPolicy",
    learning_rate=3e-4,
    n_steps=16,
    gae_lambda=0.95,
    ent_coef=0.01,
    normalize_advantage=True,
    n_envs_per_worker=4,
    policy_kwargs=ADAM,
)

Q_PONG: Settings = dict(
    policy="CnnPolicy",
    learning_rate=2e-4,
    target_update_interval=2_000,
    exploration_fraction=0.4,
    exploration_final_eps=(0.1, 0.01),
    exploration_final_probs=(0.5, 0.5),
    n_envs_per_worker=8,
    policy_kwargs=ADAM,
)

CATCH: Settings = dict(
    policy="CnnPolicy",
    learning_rate=linear(6e-4),
    n_steps=23,  # an episode
    gae_lambda=0.95,
    ent_coef=0.01,
    normalize_advantage=True,
    n_envs_per_worker=8,
    policy_kwargs=dict(features_extractor_class=SmallCNN, **ADAM),
)

Q_CARTPOLE: Settings = dict(
    policy="MlpPolicy",
    learning_rate=linear(1e-3),
    n_steps=8,
    gamma=0.99,
    target_update_interval=500,
    exploration_fraction=0.2,
    exploration_final_eps=(0.1, 0.02),
    exploration_final_probs=(0.5, 0.5),
    n_envs_per_worker=4,
    policy_kwargs=ADAM,
)

Q_CATCH: Settings = dict(
    policy="CnnPolicy",
    learning_rate=linear(5e-4),
    n_steps=8,
    target_update_interval=500,
    exploration_fraction=0.3,
    exploration_final_eps=(0.1, 0.01),
    exploration_final_probs=(0.5, 0.5),
    n_envs_per_worker=4,
    policy_kwargs=dict(features_extractor_class=SmallCNN, **ADAM),
)


def settings_of(algo: str, env: str) -> Settings:
    """The settings of an algorithm in ``"CartPole-v1"`` or ``"Catch-v0"``."""
    a3c = algo == "a3c"
    if env == "Catch-v0":
        return CATCH if a3c else Q_CATCH
    return CARTPOLE if a3c else Q_CARTPOLE


def catch_env(n_envs: int) -> VecFrameStack:
    """Catch with the last four screens: one alone does not show which way the ball goes."""
    return VecFrameStack(make_vec_env("Catch-v0", n_envs), 4)


def make_model(algo: str, env: str, workers: int, seed: int, **changes: Any) -> tuple[Any, VecEnv]:
    """A model to train, and an environment to evaluate it in.

    :param algo: one of ``ALGORITHMS``
    :param env: ``"CartPole-v1"`` or ``"Catch-v0"``
    :param workers: ``n_workers``
    :param seed: ``seed``
    :param changes: to the settings
    """
    settings = {**settings_of(algo, env), **changes}
    if env != "Catch-v0":
        return ALGORITHMS[algo](env=env, n_workers=workers, seed=seed, **settings), make_vec_env(env, 4)
    n_envs = settings.pop("n_envs_per_worker") * max(workers, 1)
    return ALGORITHMS[algo](env=catch_env(n_envs), n_workers=workers, seed=seed, **settings), catch_env(8)
