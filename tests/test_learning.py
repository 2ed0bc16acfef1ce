"""The algorithms learn: to a score, over several seeds. The benchmarks do the same for longer and with more seeds."""

import sys
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from settings import make_model

VALUE_BASED = ["asyncq", "asyncnstepq", "asyncsarsa"]


class Enough(BaseCallback):
    """Stops when the last ``window`` episodes have a mean of ``score``."""

    def __init__(self, score: float, window: int) -> None:
        super().__init__()
        self.score, self.window, self.scores = score, window, list[float]()

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return len(self.scores) < self.window or float(np.mean(self.scores[-self.window :])) < self.score


def learnt(algo: str, env: str, seed: int, steps: int, enough: Enough) -> float:
    """The mean score of a model that was trained until it had enough."""
    model, evaluation = make_model(algo, env, workers=2, seed=seed)
    model.learn(steps, callback=enough)
    mean, _ = evaluate_policy(model, evaluation, 100 if env == "Catch-v0" else 10)
    evaluation.close()
    return float(mean)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.timeout(300)
def test_a3c_on_cartpole(seed: int) -> None:
    assert learnt("a3c", "CartPole-v1", seed, 500_000, Enough(480, 40)) > 400


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.timeout(300)
def test_a3c_on_catch(seed: int) -> None:
    """A random policy catches one ball in ten."""
    assert learnt("a3c", "Catch-v0", seed, 300_000, Enough(0.5, 300)) > 0.4


@pytest.mark.parametrize("algo", VALUE_BASED)
@pytest.mark.timeout(300)
def test_value_based_on_catch(algo: str) -> None:
    assert learnt(algo, "Catch-v0", 0, 300_000, Enough(0.6, 300)) > 0.5


@pytest.mark.timeout(300)
def test_n_step_q_on_cartpole() -> None:
    assert learnt("asyncnstepq", "CartPole-v1", 0, 300_000, Enough(150, 20)) > 100
