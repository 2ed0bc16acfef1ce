"""``python -m sb3_async.demo``: train A3C on a game, and see it learn and play.

Ctrl-C ends a training early, with the same results as at its end.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from tqdm import tqdm

from sb3_async import A3C, make_atari_vec_env
from sb3_async.envs import usable_cores
from sb3_async.envs.atari import is_atari
from sb3_async.policies import SmallCNN

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ADAM = dict(optimizer_class=torch.optim.Adam, optimizer_kwargs=dict(eps=1e-5))
ATARI: dict[str, Any] = dict(
    policy="CnnPolicy", n_envs_per_worker=4, n_steps=8, gae_lambda=0.95, ent_coef=0.01, learning_rate=2e-4, policy_kwargs=ADAM
)
CATCH: dict[str, Any] = dict(
    policy="CnnPolicy",
    n_steps=23,  # an episode
    gae_lambda=0.95,
    ent_coef=0.01,
    learning_rate=6e-4,
    normalize_advantage=True,
    policy_kwargs=dict(features_extractor_class=SmallCNN, **ADAM),
)
CATCH_ENVS = 8  # for each worker


class Point(NamedTuple):
    """The mean score of the episodes that ended shortly before."""

    steps: int
    seconds: float
    score: float


class Progress(BaseCallback):
    """A progress bar with score and speed, and the points of the learning curve.

    :param total: steps
    :param window: episodes that a score is the mean of
    """

    def __init__(self, total: int, window: int) -> None:
        super().__init__()
        self.points: list[Point] = []
        self.scores: list[float] = []
        self._window, self._total = window, total
        self._bar: Any = None
        self._start = self._next = 0.0

    def _on_training_start(self) -> None:
        self._start = time.monotonic()
        self._bar = tqdm(total=self._total, unit=" steps", unit_scale=True, dynamic_ncols=True)

    def _on_step(self) -> bool:
        self.scores += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.5
            self._show(now)
        return True

    def _show(self, now: float) -> None:
        self._bar.update(min(self.num_timesteps, self._total) - self._bar.n)
        if self.scores:
            score = float(np.mean(self.scores[-self._window :]))
            self.points.append(Point(self.num_timesteps, now - self._start, score))
            self._bar.set_postfix_str(f"score {score:.2f} over {min(len(self.scores), self._window)} games")

    def close(self) -> None:
        """Finish the bar; also after an interruption, when no callback is called any more."""
        if self._bar is not None:
            self._show(time.monotonic())
            self._bar.close()


class Act(NamedTuple):
    """One training of the demo and what came of it."""

    game: str
    model: A3C
    progress: Progress
    interrupted: bool
    seconds: float


def train(game: str, steps: int, workers: int, envs: int | None, seed: int | None, load: str | None = None) -> Act:
    """Train on one game with a progress bar; Ctrl-C ends it early.

    :param game: id of an Atari game, or "Catch-v0"
    :param steps: environment steps
    :param workers: worker processes
    :param envs: environments per worker, None: a default for the game
    :param seed: of the random streams
    :param load: a saved model to go on with
    """
    catch = not is_atari(gym.spec(game))
    settings = dict(CATCH if catch else ATARI)
    if catch:
        env: Any = VecFrameStack(make_vec_env(game, (envs or CATCH_ENVS) * max(workers, 1)), 4)
    else:
        env = game
        settings["n_envs_per_worker"] = envs or settings["n_envs_per_worker"]
    # From the given rate down to 0; a model that goes on keeps what it was saved with.
    rate = settings["learning_rate"]
    settings["learning_rate"] = lambda progress: rate * progress
    model = A3C.load(load, env=env, n_workers=workers) if load else A3C(env=env, n_workers=workers, seed=seed, **settings)
    progress = Progress(steps, window=200 if catch else 20)
    interrupted, start = False, time.monotonic()
    try:
        model.learn(steps, callback=progress, log_interval=None)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.monotonic() - start
    progress.close()
    return Act(game, model, progress, interrupted, seconds)


def evaluation_env(game: str) -> VecEnv:
    """One game, preprocessed as in training."""
    if is_atari(gym.spec(game)):
        return make_atari_vec_env(game, 1)
    return VecFrameStack(make_vec_env(game, 1), 4)


def play(act: Act, length: int = 400) -> tuple[list[NDArray[np.uint8]], float]:
    """Let the trained policy play.

    :param act: what was trained
    :param length: pictures at most
    :return: what the policy sees, grey pictures (H, W), and the score of the games in it
    """
    env = evaluation_env(act.game)
    frames: list[NDArray[np.uint8]] = []
    obs, score = env.reset(), 0.0
    torch.manual_seed(0)
    while len(frames) < length:
        action, _ = act.model.predict(obs)  # type: ignore[arg-type]
        obs, rewards, _, _ = env.step(action)
        assert isinstance(obs, np.ndarray)
        frames.append(obs[0, -1] if obs.shape[1] < obs.shape[-1] else obs[0, ..., -1])
        score += float(rewards[0])
    env.close()
    return frames, score


def save_gif(frames: list[NDArray[np.uint8]], path: Path, width: int = 336) -> None:
    """Write pictures as an animation of at least ``width`` pixels."""
    factor = math.ceil(width / frames[0].shape[1])
    images = [Image.fromarray(np.kron(frame, np.ones((factor, factor), np.uint8))) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=50, loop=0)


def save_curves(acts: list[Act], path: Path) -> None:
    """Draw the learning curve of each act."""
    figure, axes = plt.subplots(1, len(acts), figsize=(6 * len(acts), 4), squeeze=False)
    for axis, act in zip(axes[0], acts, strict=True):
        axis.plot([p.seconds for p in act.progress.points], [p.score for p in act.progress.points])
        axis.set(
            title=f"A3C on {act.game}",
            xlabel=f"seconds ({act.model.num_timesteps / act.seconds:,.0f} steps per second)",
            ylabel="mean score of the latest games",
        )
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def finish(acts: list[Act], folder: Path, workers: int) -> str:
    """Save what the acts produced.

    :return: the closing words
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for act in acts:
        name = act.game.split("/")[-1]
        act.model.save(folder / name)
        frames, score = play(act)
        save_gif(frames, folder / f"{name}.gif")
        points = act.progress.points
        reached = (
            f"mean score {points[0].score:.2f} at first, {points[-1].score:.2f} at the end" if points else "no game ended yet"
        )
        lines.append(
            f"{act.game}: {act.model.num_timesteps:,} steps in {act.seconds:.0f} s"
            f"{' (interrupted)' if act.interrupted else ''}; {reached}; {score:.0f} points in the recorded play."
        )
    save_curves(acts, folder / "learning_curve.png")
    main = acts[0].game.split("/")[-1]
    lines += [
        f"Saved in {folder}/: learning_curve.png" + "".join(f", {a.game.split('/')[-1]}.zip and .gif" for a in acts) + ".",
        "Go on training: .venv/bin/python -m sb3_async.demo "
        f"--game {acts[0].game} --load {folder}/{main}.zip --steps 1000000 --workers {workers}",
    ]
    return "\n".join(lines)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m sb3_async.demo", description="Train A3C on a game, and see it learn and play."
    )
    parser.add_argument("--game", default="ALE/Pong-v5", help="an Atari id, or Catch-v0 (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=80_000, help="environment steps (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=usable_cores(), help="worker processes (default: the usable cores, %(default)s)"
    )
    parser.add_argument("--envs", type=int, help="environments per worker (default: 4, Catch: 8)")
    parser.add_argument(
        "--second-steps", type=int, default=160_000, help="steps of the second act, Catch-v0 (default: %(default)s, 0: none)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo_output"), help="folder for the results (default: %(default)s)"
    )
    parser.add_argument("--load", help="a saved model to go on with; leaves out the second act")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the demo."""
    options = parse(arguments)
    second = 0 if options.load or options.game == "Catch-v0" else options.second_steps
    print(
        f"Act 1: A3C learns {options.game} with {options.workers} worker processes for {options.steps:,} steps. "
        "Ctrl-C ends it early, with all results."
    )
    if options.game == "ALE/Pong-v5":
        print(
            "What to expect: Pong starts between -21 and -20 points and needs far longer than this to leave them "
            "(a million steps were not enough); this is the beginning."
        )
    acts = [train(options.game, options.steps, options.workers, options.envs, options.seed, options.load)]
    if second and not acts[0].interrupted:
        print(f"\nAct 2: a game that is learnt in a minute. A3C learns Catch-v0 (0 to 1 points) for {second:,} steps.")
        acts.append(train("Catch-v0", second, options.workers, None, options.seed))
    print("\n" + finish(acts, options.output, options.workers))


if __name__ == "__main__":
    main()
