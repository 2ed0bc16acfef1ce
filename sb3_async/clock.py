"""The callback clock: SB3's sequence of ``on_step`` calls, replayed over what the workers did.

Callbacks count calls (``eval_freq``, ``save_freq``), so each call stands for exactly ``num_envs`` steps and none is
left out, however the workers' steps arrive.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from sb3_async.runtime.supervisor import Messages

if TYPE_CHECKING:
    from sb3_async.base import AsyncAlgorithm

NOT_SENT = frozenset(
    {"rewards", "actions", "clipped_actions", "values", "log_probs", "obs_tensor", "rollout_buffer", "replay_buffer"}
)


class StepLocals(dict[str, Any]):
    """The ``locals`` of callbacks. What only the workers see is missing, and says so."""

    def __missing__(self, key: str) -> Any:
        hint = (
            " is not sent by the workers at every step: read infos[i]['episode'] for scores, or wrap the environment"
            if key in NOT_SENT
            else " is not among the locals of an asynchronous algorithm"
        )
        raise KeyError(f"{key!r}{hint}. There are: {', '.join(sorted(self))}")


class CallbackClock:
    """Advances ``model.num_timesteps`` and calls the callbacks.

    :param model: the algorithm
    :param callback: what to call
    :param n_envs_per_worker: environments of one worker
    :param rollout: steps after which one rollout (and training iteration) of all workers is complete
    :param log_interval: dump the logs after this many iterations, None: never
    """

    def __init__(
        self, model: "AsyncAlgorithm", callback: BaseCallback, n_envs_per_worker: int, rollout: int, log_interval: int | None
    ) -> None:
        assert model.env is not None
        self._model, self._callback, self._log_interval = model, callback, log_interval
        self._n_envs_per_worker = n_envs_per_worker
        self._n_envs = model.env.num_envs
        self._rows_per_rollout = max(1, rollout // self._n_envs)
        self._rows = self._iteration = 0
        self._in_rollout = False
        self._start = model.num_timesteps
        self._episodes: deque[tuple[int, dict[str, Any]]] = deque()

    def receive(self, messages: Messages) -> None:
        """Keep the episodes among the workers' messages for the calls to come."""
        for worker, (kind, env, info) in messages:
            assert kind == "episode"
            self._episodes.append((worker * self._n_envs_per_worker + env, info))

    def advance(self, done: int, new_obs: Any) -> bool:
        """Call the callbacks for the steps up to ``done`` since the start.

        :param done: steps done by the workers in this run
        :param new_obs: newest observation of some environments
        :return: False if a callback wants to stop
        """
        model, callback = self._model, self._callback
        callback.update_locals({"new_obs": new_obs, "env": model.env})
        while model.num_timesteps - self._start + self._n_envs <= done:
            if not self._in_rollout:
                callback.on_rollout_start()
                self._in_rollout = True
            infos, dones = self._row()
            model.num_timesteps += self._n_envs
            callback.update_locals({"infos": infos, "dones": dones})
            if not callback.on_step():
                return False
            if dones.any():
                model._update_info_buffer(infos, dones)
                model._episode_num += int(dones.sum())
            self._rows += 1
            if self._rows % self._rows_per_rollout == 0:
                self.end_rollout()
        return True

    def _row(self) -> tuple[list[dict[str, Any]], np.ndarray[Any, np.dtype[np.bool_]]]:
        """The infos and dones of one call. Each episode is in exactly one call, at its environment's place if that is free."""
        infos: list[dict[str, Any]] = [{} for _ in range(self._n_envs)]
        dones = np.zeros(self._n_envs, dtype=bool)
        for _ in range(min(len(self._episodes), self._n_envs)):
            env, info = self._episodes.popleft()
            place = env % self._n_envs
            if dones[place]:
                place = int(dones.argmin())
            infos[place], dones[place] = info, True
        return infos, dones

    def end_rollout(self) -> None:
        """Close the rollout that is open, if any."""
        if not self._in_rollout:
            return
        self._in_rollout = False
        model = self._model
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        self._callback.on_rollout_end()
        self._iteration += 1
        self._callback.update_locals({"iteration": self._iteration})
        if self._log_interval is not None and self._iteration % self._log_interval == 0:
            model.dump_logs(self._iteration)
