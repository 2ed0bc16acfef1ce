"""Learning to a score over several seeds.

``python benchmarks/learning.py --algo a3c --env CartPole-v1 --workers 2 --seeds 5``. Exit status 1 if a seed misses the score.
"""

import argparse
import json
import platform
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3
import torch
from settings import ALGORITHMS, TASKS, make_model
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy


class FirstReached(BaseCallback):
    """Notes when the mean of the last ``window`` training episodes first reached ``score``."""

    def __init__(self, score: float, window: int = 200) -> None:
        super().__init__()
        self.score, self.window, self.scores = score, window, list[float]()
        self.steps: int | None = None
        self.start = time.monotonic()
        self.seconds: float | None = None

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        del self.scores[: -self.window]
        if self.steps is None and len(self.scores) == self.window and np.mean(self.scores) >= self.score:
            self.steps, self.seconds = self.num_timesteps, round(time.monotonic() - self.start, 1)
        return True


def run(algo: str, env: str, workers: int, seed: int, steps: int | None = None) -> dict[str, Any]:
    """Train with one seed and evaluate."""
    task = TASKS[algo, env]
    model, evaluation = make_model(algo, env, workers, seed)
    watch = FirstReached(task.score * 0.9)
    start = time.monotonic()
    model.learn(steps or task.steps, callback=watch, log_interval=None)
    seconds = time.monotonic() - start
    evaluation.seed(10_000 + seed)
    rewards, _ = evaluate_policy(model, evaluation, task.episodes, deterministic=True, return_episode_rewards=True)
    return dict(
        seed=seed,
        score=round(float(np.mean(rewards)), 4),
        steps=model.num_timesteps,
        seconds=round(seconds, 1),
        steps_to_90_percent_in_training=watch.steps,
        seconds_to_90_percent_in_training=watch.seconds,
    )


def main() -> None:
    """Run all seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=list(ALGORITHMS), default="a3c")
    parser.add_argument("--env", choices=["CartPole-v1", "Catch-v0"], default="CartPole-v1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    task, rows = TASKS[options.algo, options.env], []
    steps = options.steps or task.steps
    for seed in range(options.seeds):
        rows.append(run(options.algo, options.env, options.workers, seed, steps))
        print(f"{options.algo}, {options.env}, {options.workers} workers, {rows[-1]}", flush=True)
    reached = sum(row["score"] >= task.score for row in rows)
    print(f"{reached} of {options.seeds} seeds reach {task.score} (mean of {task.episodes} episodes) within {steps:,} steps")
    result = dict(
        date=date.today().isoformat(),
        command=" ".join(["python", *sys.argv]),
        versions=dict(
            python=platform.python_version(), torch=torch.__version__, stable_baselines3=stable_baselines3.__version__
        ),
        reached=f"{reached} of {options.seeds}",
        rows=rows,
    )
    options.output.mkdir(parents=True, exist_ok=True)
    name = f"learning_{options.algo}_{options.env}_{options.workers}_workers.json"
    (options.output / name).write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(reached < options.seeds)


if __name__ == "__main__":
    main()
