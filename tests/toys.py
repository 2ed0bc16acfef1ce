"""Workers and environments for tests, importable by worker processes of every start method."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_async.runtime import Grant, SharedBlock, WorkerLink


@dataclass(frozen=True)
class Toy:
    """Adds one to its own element of "parameters" for each step granted, and does ``what`` at step ``at``."""

    what: str = ""
    at: int = 20
    who: int = 0
    generation: int = 0

    def __call__(self, link: WorkerLink, block: SharedBlock) -> "ToyWorker":
        return ToyWorker(self, link, block)


class ToyWorker:
    def __init__(self, toy: Toy, link: WorkerLink, block: SharedBlock) -> None:
        self.toy, self.link, self.parameters = toy, link, block.array("parameters")
        if toy.what == "start" and link.index == toy.who:
            raise ValueError("cannot start")

    def iterate(self, grant: Grant) -> None:
        for _ in range(grant.steps):
            self.parameters[self.link.index] += 1
        index = self.link.index
        self.link.send(("counted", index, grant.steps, grant.values.tolist()))
        self.link.report_update(0, np.array([1.0]))
        self.link.report_steps(grant.steps)
        if index == self.toy.who and self.toy.generation == 0 and self.link.slots.done[index] >= self.toy.at:
            misbehave(self.toy.what)

    def close(self) -> None:
        pass


class NeedsTwo(Exception):
    """Cannot be rebuilt from its message alone."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def misbehave(what: str) -> None:
    if what == "raise":
        raise ValueError("sensor offline")
    if what == "raise odd":
        raise NeedsTwo(1, 2)
    if what == "raise unpicklable":
        error = ValueError("holds a lock")
        error.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
        raise error
    if what == "sys.exit":
        raise SystemExit(0)
    if what == "os._exit":
        os._exit(0)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)


class ConstantReward(gym.Env[Any, Any]):
    """Reward 1 at each step, one state. Truncated, or terminated, after ``length`` steps."""

    def __init__(self, end: str, length: int) -> None:
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.end, self.length, self.t = end, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == self.length
        return np.ones(1, np.float32), 1.0, over and self.end == "terminated", over and self.end == "truncated", {}


class Chain(gym.Env[Any, Any]):
    """Three states in a row, one-hot; the reward of 1 comes when the last one is left: 0.25, 0.5, 1 at gamma 0.5."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.state = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = 0
        return np.eye(3, dtype=np.float32)[0], {}

    def step(self, action: Any) -> Any:
        self.state += 1
        over = self.state == 3
        return np.eye(3, dtype=np.float32)[min(self.state, 2)], float(over), over, False, {}


class Probe(gym.Env[Any, Any]):
    """Says in ``info["episode_of"]`` where it runs and what it was made from; seven steps an episode."""

    def __init__(self, rank: int = -1, fault: str = "", at: int = 30, size: int = 3, shape: tuple[int, ...] = ()) -> None:
        self.observation_space = spaces.Box(-10, 10, (size,), np.float32) if not shape else spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(3)
        self.rank, self.fault, self.at, self.steps, self.t = rank, fault, at, 0, 0
        self.seeds: list[int | None] = []
        if fault == "make" and os.environ.get("MAIN_PID") != str(os.getpid()):
            raise ValueError("cannot be made here")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if self.fault == "reset" and os.environ.get("MAIN_PID") != str(os.getpid()):
            raise ValueError("cannot be reset here")
        self.seeds.append(seed)
        self.t = 0
        return self.observe(), {}

    def observe(self) -> Any:
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)
        return self.np_random.normal(size=self.observation_space.shape).astype(np.float32)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        self.t += 1
        if self.fault and self.steps == self.at and self.rank <= 0:
            misbehave(self.fault)
        info = {"rank": self.rank, "pid": os.getpid(), "seeds": list(self.seeds), "draw": float(self.np_random.random())}
        return self.observe(), 1.0, self.t == 7, False, info
