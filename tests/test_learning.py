"""A3C learns: to a score, over several seeds. The benchmarks do the same for longer and with more seeds."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_async import A3C

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from settings import CARTPOLE, CATCH, catch_env


class Enough(BaseCallback):
    """Stops when the last ``window`` episodes have a mean of ``score``."""

    def __init__(self, score: float, window: int) -> None:
        super().__init__()
        self.score, self.window, self.scores = score, window, list[float]()

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return len(self.scores) < self.window or float(np.mean(self.scores[-self.window :])) < self.score


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.timeout(300)
def test_cartpole(seed: int) -> None:
    model = A3C(env="CartPole-v1", n_workers=2, seed=seed, **CARTPOLE)
    model.learn(500_000, callback=Enough(480, 40))
    mean, _ = evaluate_policy(model, model.get_env(), 10)  # type: ignore[arg-type]
    model.get_env().close()  # type: ignore[union-attr]
    assert mean > 400


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.timeout(300)
def test_catch(seed: int) -> None:
    settings: dict[str, Any] = {name: value for name, value in CATCH.items() if name != "n_envs_per_worker"}
    model = A3C(env=catch_env(2 * CATCH["n_envs_per_worker"]), n_workers=2, seed=seed, **settings)
    model.learn(300_000, callback=Enough(0.5, 300))
    mean, _ = evaluate_policy(model, catch_env(4), 200)
    assert mean > 0.4, "a random policy catches one ball in ten"
