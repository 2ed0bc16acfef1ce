"""Learning to a score over several seeds: ``python benchmarks/learning.py --env CartPole-v1 --workers 2 --seeds 5``."""

import argparse
import json
import platform
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import stable_baselines3
import torch
from settings import CARTPOLE, CATCH, catch_env
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_async import A3C


class Task(NamedTuple):
    """What is to be reached."""

    steps: int
    score: float
    episodes: int


TASKS = {"CartPole-v1": Task(500_000, 475.0, 20), "Catch-v0": Task(300_000, 0.95, 500)}


def run(env: str, workers: int, seed: int) -> dict[str, Any]:
    """Train with one seed and evaluate."""
    task = TASKS[env]
    if env == "Catch-v0":
        n_envs = CATCH["n_envs_per_worker"] * workers
        settings = {name: value for name, value in CATCH.items() if name != "n_envs_per_worker"}
        model = A3C(env=catch_env(n_envs), n_workers=workers, seed=seed, **settings)
    else:
        model = A3C(env=env, n_workers=workers, seed=seed, **CARTPOLE)
    start = time.monotonic()
    model.learn(task.steps, log_interval=None)
    seconds = time.monotonic() - start
    evaluation: Any = catch_env(8) if env == "Catch-v0" else model.get_env()
    evaluation.seed(10_000 + seed)
    rewards, _ = evaluate_policy(model, evaluation, task.episodes, deterministic=True, return_episode_rewards=True)
    return dict(seed=seed, score=float(np.mean(rewards)), steps=model.num_timesteps, seconds=round(seconds, 1))


def main() -> None:
    """Run all seeds; exit status 1 if one of them misses the score."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", choices=list(TASKS), default="CartPole-v1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    task, rows = TASKS[options.env], []
    for seed in range(options.seeds):
        rows.append(run(options.env, options.workers, seed))
        print(f"{options.env}, {options.workers} workers, {rows[-1]}", flush=True)
    reached = sum(row["score"] >= task.score for row in rows)
    print(
        f"{reached} of {options.seeds} seeds reach {task.score} (mean of {task.episodes} episodes) within {task.steps:,} steps"
    )
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
    (options.output / f"learning_a3c_{options.env}_{options.workers}_workers.json").write_text(
        json.dumps(result, indent=2) + "\n"
    )
    sys.exit(reached < options.seeds)


if __name__ == "__main__":
    main()
