"""Steps per second on Pong, A3C beside SB3's A2C with the same network: ``python benchmarks/throughput.py``.

The configurations take turns, a few repeats each, in processes of their own; medians are printed. Run it on an idle machine.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym

gym.register_envs(ale_py)  # here, for the processes of SubprocVecEnv too

GAME = "ALE/Pong-v5"


def stopwatch(warm_up: int) -> Any:
    """A callback whose ``rate`` is the steps per second after the first ``warm_up`` steps."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Stopwatch(BaseCallback):
        first: tuple[int, float] | None = None
        last: tuple[int, float] = (0, 0.0)

        def _on_step(self) -> bool:
            self.last = (self.num_timesteps, time.monotonic())
            if self.first is None and self.num_timesteps >= warm_up:
                self.first = self.last
            return True

        @property
        def rate(self) -> float:
            assert self.first is not None
            return (self.last[0] - self.first[0]) / (self.last[1] - self.first[1])

    return Stopwatch()


def a3c(workers: int, envs: int, steps: int) -> float:
    """Steps per second of A3C."""
    from sb3_async import A3C

    rate = stopwatch(steps // 5)
    A3C("CnnPolicy", GAME, n_workers=workers, n_envs_per_worker=envs, seed=0).learn(steps, callback=rate)
    return float(rate.rate)


def a2c(kind: str, threads: int, steps: int) -> float:
    """Steps per second of SB3's A2C with 16 environments."""
    import torch
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    torch.set_num_threads(threads)
    # frameskip 1, since SB3's AtariWrapper skips 4 frames itself: as many frames per step as in A3C.
    base = DummyVecEnv if kind == "dummy" else SubprocVecEnv
    env = VecFrameStack(make_atari_env(GAME, 16, seed=0, env_kwargs=dict(frameskip=1), vec_env_cls=base), 4)
    rate = stopwatch(steps // 5)
    A2C("CnnPolicy", env, seed=0, device="cpu").learn(steps, callback=rate)
    env.close()
    return float(rate.rate)


def split(envs: int, steps: int) -> dict[str, float]:
    """Microseconds per step that one worker, alone on the machine, spends on each part of the loop."""
    from sb3_async import A3C
    from sb3_async.a3c import A3CUpdate
    from sb3_async.envs import AtariVecEnv
    from sb3_async.optim import SharedRMSProp
    from sb3_async.worker import ActorLearner

    times: dict[str, float] = {}

    def timed(owner: Any, name: str, part: str) -> None:
        function = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            times[part] = times.get(part, 0.0) + time.perf_counter() - start
            return result

        setattr(owner, name, wrapper)

    model = A3C("CnnPolicy", GAME, n_workers=0, n_envs_per_worker=envs, seed=0)
    model.learn(steps // 5)
    timed(AtariVecEnv, "step_wait", "environment")
    timed(A3CUpdate, "act", "act")
    timed(A3CUpdate, "value", "act")
    timed(A3CUpdate, "loss", "gradient")
    import torch

    timed(torch.Tensor, "backward", "gradient")
    timed(SharedRMSProp, "step", "optimiser")
    timed(ActorLearner, "iterate", "all")
    model.learn(steps)
    parts = {part: seconds / steps * 1e6 for part, seconds in times.items()}
    parts["rest"] = parts["all"] - sum(parts[p] for p in ("environment", "act", "gradient", "optimiser"))
    return parts


CONFIGURATIONS: dict[str, tuple[Any, ...]] = {
    "A3C, 1 worker x 8 envs": (a3c, 1, 8),
    "A3C, 2 workers x 8 envs": (a3c, 2, 8),
    "A3C, 2 workers x 1 env": (a3c, 2, 1),
    "A2C, 16 envs, dummy, 1 thread": (a2c, "dummy", 1),
    "A2C, 16 envs, dummy, 2 threads": (a2c, "dummy", 2),
    "A2C, 16 envs, subproc, 1 thread": (a2c, "subproc", 1),
    "A2C, 16 envs, subproc, 2 threads": (a2c, "subproc", 2),
}


def measure(name: str, steps: int) -> float:
    """One configuration in a fresh process."""
    run = subprocess.run(
        [sys.executable, __file__, "--only", name, "--steps", str(steps)], capture_output=True, text=True, check=True
    )
    return float(run.stdout.split()[-1])


def main() -> None:
    """Measure all configurations in turns, print a table and write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/throughput.json"))
    options = parser.parse_args()
    if options.only:
        if options.only.startswith("split"):
            print(json.dumps(split(int(options.only.split()[1]), options.steps)))
        else:
            function, *arguments = CONFIGURATIONS[options.only]
            print(function(*arguments, options.steps))
        return
    rates: dict[str, list[float]] = {name: [] for name in CONFIGURATIONS}
    for repeat in range(options.repeats):
        for name in CONFIGURATIONS:
            rates[name].append(measure(name, options.steps))
            print(f"repeat {repeat + 1}: {name:35s} {rates[name][-1]:8.0f} steps/s", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = max(value for name, value in medians.items() if name.startswith("A2C"))
    print(f"\n{'median':35s} {'steps/s':>8s} {'x best A2C':>11s}")
    for name, value in medians.items():
        print(f"{name:35s} {value:8.0f} {value / best:11.2f}")
    workers = [b / a for a, b in zip(rates["A3C, 1 worker x 8 envs"], rates["A3C, 2 workers x 8 envs"], strict=True)]
    print(f"2 workers against 1 (x 8 envs): {statistics.median(workers):.2f} ({', '.join(f'{w:.2f}' for w in workers)})")
    splits = {}
    for envs in (1, 8):
        command = [sys.executable, __file__, "--only", f"split {envs}", "--steps", str(options.steps // 2)]
        splits[envs] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        print(f"us per step of one worker, {envs} envs: " + ", ".join(f"{part} {us:.0f}" for part, us in splits[envs].items()))
    write(options, rates, medians, splits)


def write(options: argparse.Namespace, rates: Any, medians: Any, splits: Any) -> None:
    """The result file: figures, versions, machine, command, date."""
    import stable_baselines3
    import torch

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    result = dict(
        date=date.today().isoformat(),
        command=" ".join(["python", *sys.argv]),
        cpu=cpu,
        cores=len(__import__("os").sched_getaffinity(0)),
        versions=dict(
            python=platform.python_version(),
            torch=torch.__version__,
            stable_baselines3=stable_baselines3.__version__,
            gymnasium=gym.__version__,
        ),
        steps_per_second=rates,
        median=medians,
        us_per_step_of_one_worker=splits,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
