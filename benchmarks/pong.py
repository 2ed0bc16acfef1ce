"""Learning curve of A3C on Pong: ``python benchmarks/pong.py --steps 1000000``.

Writes a row per 10,000 steps and a checkpoint per 100,000, so that an interrupted run goes on with ``--load``.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from settings import PONG
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_async import A3C, make_atari_vec_env


class Curve(BaseCallback):
    """Writes mean score over the games that ended since the last row."""

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
            ]
            with self.path.open("a", newline="") as file:
                csv.writer(file).writerow(row)
            self.scores = []
        return True


def main() -> None:
    """Train, and draw the curve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--game", default="ALE/Pong-v5")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/pong"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table = options.output / "curve.csv"
    if options.load:
        model = A3C.load(options.load, env=options.game, n_workers=options.workers)
    else:
        table.write_text("steps,seconds,games,mean_score\n")
        model = A3C(env=options.game, n_workers=options.workers, seed=options.seed, **PONG)
    n_envs = PONG["n_envs_per_worker"]
    checkpoint = CheckpointCallback(100_000 // n_envs, str(options.output / "checkpoints"), "pong")
    model.learn(options.steps, callback=[Curve(table), checkpoint], reset_num_timesteps=not options.load, log_interval=None)
    model.save(options.output / "checkpoints" / "final")
    mean, deviation = evaluate_policy(model, make_atari_vec_env(options.game, 4, seed=1), 20, deterministic=False)
    print(f"evaluation over 20 games: {mean:.2f} +- {deviation:.2f}")
    draw(table, options.output / "curve.png", options.game)


def draw(table: Path, picture: Path, game: str) -> None:
    """Draw the curve, raw and smoothed over 5 rows."""
    from matplotlib import pyplot as plt

    rows = np.genfromtxt(table, delimiter=",", names=True)
    smooth = np.convolve(rows["mean_score"], np.ones(5) / 5, "valid")
    figure, axis = plt.subplots(figsize=(7, 4))
    axis.plot(rows["steps"], rows["mean_score"], alpha=0.3)
    axis.plot(rows["steps"][4:], smooth)
    axis.set(title=f"A3C on {game}", xlabel="environment steps (4 frames each)", ylabel="mean score of training games")
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main()
