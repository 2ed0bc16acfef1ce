"""``Catch-v0``: a ball falls, a paddle on the bottom row should be under it. Learnt within a minute on one core.

The game of Mnih et al. 2014 (arXiv 1406.6247) in the form that the Lua environments of Kaixhin/rlenvs gave it at their
default level: sideways speed drawn at each start, and bounces. One thing differs: the ball counts as caught when its
*pixel* is on the paddle. There the unrounded position must be, which the screen does not show: whoever sees the last
four screens could then catch 84 % at best.
"""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Catch(gym.Env[NDArray[np.uint8], np.int64]):
    """A screen of ``size`` x ``size`` pixels, 0 or 255; actions 0 stay, 1 left, 2 right.

    An episode has ``size - 1`` moves. The reward is 1 at its end if the ball was caught, else 0.

    :param size: width and height of the screen
    :param render_mode: None or ``"rgb_array"``
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012  (as in gymnasium)

    def __init__(self, size: int = 24, render_mode: str | None = None) -> None:
        self.size = size
        self.paddle_width = math.ceil(size / 12)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, (size, size, 1), np.uint8)
        self.action_space = spaces.Discrete(3)
        self._paddle = self._row = 0
        self._column = self._slope = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Put the paddle in the middle, and the ball at a random column of the top row with a random slope."""
        super().reset(seed=seed)
        self._paddle = math.ceil(self.size / 2) - 1
        self._row = 0
        self._column = float(self.np_random.integers(self.size))
        self._slope = self.np_random.uniform(-1 / 3, 1 / 3)
        return self._screen(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Move the paddle by one column, the ball by one row."""
        move = (0, -1, 1)[int(action)]
        self._paddle = min(max(self._paddle + move, 0), self.size - self.paddle_width)
        self._row += 1
        self._column += self._slope
        if self._column >= self.size - 1:
            self._column, self._slope = self.size - 1.0, -self._slope
        elif self._column < 1 and self._slope < 0:
            self._column, self._slope = 2 / 3, -self._slope
        terminated = self._row == self.size - 1
        caught = terminated and self._paddle <= int(self._column) < self._paddle + self.paddle_width
        return self._screen(), float(caught), terminated, False, {}

    def render(self) -> NDArray[np.uint8] | None:
        """The screen in grey, (size, size, 3), in mode ``"rgb_array"``."""
        return np.repeat(self._screen(), 3, axis=2) if self.render_mode == "rgb_array" else None

    def _screen(self) -> NDArray[np.uint8]:
        screen = np.zeros((self.size, self.size, 1), np.uint8)
        screen[self._row, int(self._column)] = 255
        screen[-1, self._paddle : self._paddle + self.paddle_width] = 255
        return screen


def register() -> None:
    """Make ``gym.make("Catch-v0")`` work."""
    if "Catch-v0" not in gym.registry:
        gym.register("Catch-v0", entry_point="sb3_async.envs.catch:Catch")
