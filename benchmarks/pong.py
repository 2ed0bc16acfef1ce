"""Learning curve on Pong: ``python benchmarks/pong.py --algo a3c --steps 1000000``.

Writes a row per 10,000 steps and a checkpoint per 100,000, so that an interrupted run goes on with ``--load``.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch
from settings import ALGORITHMS, PONG, Q_PONG
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_async import make_atari_vec_env


class Curve(BaseCallback):
    """Writes mean score over the games that ended since the last row, and the mean Q value of value-based algorithms."""

    def __init__(self, path: Path, every: int = 10_000) -> None:
        super().__init__()
        self.path, self.every = path, every
        self.scores: list[float] = []
        self.start = time.monotonic()
        self.last = 0

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps - self.last >= self.every and self.scores:
            self.last = self.num_timesteps
            row = [
                self.num_timesteps,
                round(time.monotonic() - self.start, 1),
                len(self.scores),
                round(float(np.mean(self.scores)), 3),
                self._q_value(),
            ]
            with self.path.open("a", newline="") as file:
                csv.writer(file).writerow(row)
            self.scores = []
        return True

    def _q_value(self) -> float | str:
        """Mean over the newest observations of the best action's value; nothing for A3C."""
        policy = self.model.policy
        if not hasattr(policy, "q_net"):
            return ""
        with torch.no_grad():
            observations, _ = policy.obs_to_tensor(self.locals["new_obs"])
            return round(float(policy.q_net(observations).max(1).values.mean()), 4)


def main() -> None:
    """Train, and draw the curve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=list(ALGORITHMS), default="a3c")
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load")
    parser.add_argument("--output", type=Path, help="folder, benchmarks/results/pong_<algo> by default")
    options = parser.parse_args()
    options.output = options.output or Path(f"benchmarks/results/pong_{options.algo}")
    algorithm, settings = ALGORITHMS[options.algo], PONG if options.algo == "a3c" else Q_PONG
    options.output.mkdir(parents=True, exist_ok=True)
    table = options.output / "curve.csv"
    if options.load:
        model = algorithm.load(options.load, env=options.game, n_workers=options.workers)
    else:
        table.write_text("steps,seconds,games,mean_score,mean_q\n")
        model = algorithm(env=options.game, n_workers=options.workers, seed=options.seed, **settings)
    n_envs = settings["n_envs_per_worker"]
    checkpoint = CheckpointCallback(100_000 // n_envs, str(options.output / "checkpoints"), "pong")
    model.learn(options.steps, callback=[Curve(table), checkpoint], reset_num_timesteps=not options.load, log_interval=None)
    model.save(options.output / "checkpoints" / "final")
    mean, deviation = evaluate_policy(model, make_atari_vec_env(options.game, 4, seed=1), 20, deterministic=False)
    print(f"evaluation over 20 games: {mean:.2f} +- {deviation:.2f}")
    draw(table, options.output / "curve.png", f"{options.algo} on {options.game}")


def draw(table: Path, picture: Path, title: str) -> None:
    """Draw the curves, raw and smoothed over 5 rows."""
    from matplotlib import pyplot as plt

    rows = np.genfromtxt(table, delimiter=",", names=True)
    names = ["mean_score"] + (["mean_q"] if np.isfinite(rows["mean_q"]).any() else [])
    figure, axes = plt.subplots(len(names), figsize=(7, 4 * len(names)), squeeze=False, sharex=True)
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.plot(rows["steps"], rows[name], alpha=0.3)
        axis.plot(rows["steps"][4:], np.convolve(rows[name], np.ones(5) / 5, "valid"))
        axis.set(ylabel="mean score of training games" if name == "mean_score" else "mean of max Q")
        axis.grid(alpha=0.3)
    axes[0, 0].set(title=title)
    axes[-1, 0].set(xlabel="environment steps (4 frames each)")
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main()
