"""Steps and seconds to a score on Catch against the number of workers (the paper's Table 2 and Figure 3).

``python benchmarks/workers.py --algos asyncq asyncnstepq asyncsarsa a3c --workers 1 2 4 8 16 --seeds 3``. Each worker has one
environment, as in the paper, and each run stops when the mean of the last 200 training games reaches the score. Rows that are
in the table already are not run again, so that an interrupted study goes on.
"""

import argparse
import csv
import statistics
import time
from pathlib import Path

import numpy as np
from settings import ALGORITHMS, make_model
from stable_baselines3.common.callbacks import BaseCallback

COLUMNS = ["algo", "workers", "seed", "steps", "seconds", "reached"]


class StopAt(BaseCallback):
    """Stops when the mean of the last 200 episodes is at least ``score``."""

    def __init__(self, score: float) -> None:
        super().__init__()
        self.score, self.scores, self.reached = score, list[float](), False

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        del self.scores[:-200]
        self.reached = len(self.scores) == 200 and float(np.mean(self.scores)) >= self.score
        return not self.reached


def run(algo: str, workers: int, seed: int, score: float, most: int) -> list[object]:
    """One row of the table."""
    model, _ = make_model(algo, "Catch-v0", workers, seed, n_envs_per_worker=1)
    stop, start = StopAt(score), time.monotonic()
    model.learn(most, callback=stop, log_interval=None)
    return [algo, workers, seed, model.num_timesteps, round(time.monotonic() - start, 1), stop.reached]


def draw(table: Path, picture: Path, score: float) -> None:
    """Median steps to the score against workers, a line per algorithm, and a point per run."""
    from matplotlib import pyplot as plt

    with table.open() as file:
        rows = [row for row in csv.DictReader(file) if row["reached"] == "True"]
    figure, axis = plt.subplots(figsize=(7, 4))
    for algo in sorted({row["algo"] for row in rows}):
        mine = [(int(row["workers"]), int(row["steps"])) for row in rows if row["algo"] == algo]
        numbers = sorted({workers for workers, _ in mine})
        medians = [statistics.median(steps for n, steps in mine if n == workers) for workers in numbers]
        (line,) = axis.plot(numbers, medians, "o-", label=algo)
        axis.plot(*zip(*mine, strict=True), ".", color=line.get_color(), alpha=0.4)
        print(algo, ", ".join(f"{n} workers: {m:,.0f} steps" for n, m in zip(numbers, medians, strict=True)))
    axis.set(
        xscale="log", xlabel="workers", ylabel="steps", title=f"Steps until {score:.0%} of the balls are caught in training"
    )
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


def main() -> None:
    """Fill the table and draw it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--algos", nargs="+", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--score", type=float, default=0.8)
    parser.add_argument("--most", type=int, default=600_000)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/workers"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table = options.output / "steps_to_score.csv"
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")
    with table.open() as file:
        done = {(row["algo"], row["workers"], row["seed"]) for row in csv.DictReader(file)}
    for algo in options.algos:
        for workers in options.workers:
            for seed in range(options.seeds):
                if (algo, str(workers), str(seed)) in done:
                    continue
                row = run(algo, workers, seed, options.score, options.most)
                print(*row, flush=True)
                with table.open("a", newline="") as file:
                    csv.writer(file).writerow(row)
    draw(table, options.output / "steps_to_score.png", options.score)


if __name__ == "__main__":
    main()
