"""Every kind of ``env`` argument, in worker processes."""

import os
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize

from sb3_async import A3C, make_atari_vec_env
from sb3_async.envs import AsyncDummyVecEnv, usable_cores
from tests.toys import Probe


class Episodes(BaseCallback):
    """Keeps the infos of all finished episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        self.infos += [info for info, done in zip(self.locals["infos"], self.locals["dones"], strict=True) if done]
        return True


def train(env: Any, steps: int = 400, **kwargs: Any) -> tuple[A3C, list[dict[str, Any]]]:
    kwargs.setdefault("n_workers", 2)
    model = A3C("MlpPolicy", env, policy_kwargs=dict(net_arch=[]), seed=0, **kwargs)
    episodes = Episodes()
    model.learn(steps, callback=episodes)
    assert model.num_timesteps == steps
    return model, episodes.infos


def pids(infos: list[dict[str, Any]]) -> set[int]:
    return {info["pid"] for info in infos}


@pytest.fixture
def registered() -> Any:
    """An id that only this process knows."""
    gym.register("Probe-v0", entry_point=Probe, max_episode_steps=5, kwargs=dict(size=4))
    yield "Probe-v0"
    del gym.registry["Probe-v0"]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_id_registered_in_main_only(registered: str, method: str) -> None:
    model, infos = train(registered, start_method=method)
    assert {info["episode"]["l"] for info in infos} == {5}, "the time limit of the spec"
    assert model.observation_space.shape == (4,)
    assert len(pids(infos)) == 2 and os.getpid() not in pids(infos)


def test_spec_with_env_kwargs() -> None:
    spec = EnvSpec("Other-v0", entry_point="tests.toys:Probe", max_episode_steps=6)
    model, infos = train(spec, env_kwargs=dict(size=2))
    assert model.observation_space.shape == (2,)
    assert {info["episode"]["l"] for info in infos} == {6}


def test_callable_gets_its_rank() -> None:
    _, infos = train(Probe, n_envs_per_worker=2)
    assert {info["rank"] for info in infos} == {0, 1, 2, 3}
    assert len(pids(infos)) == 2


def test_lambda_and_closure() -> None:
    size = 5
    model, infos = train(lambda: Probe(size=size))
    assert model.observation_space.shape == (5,)
    assert len(pids(infos)) == 2


def test_list_of_callables_in_order() -> None:
    _, infos = train([partial(Probe, rank=i) for i in range(4)])
    of_process = {pid: {info["rank"] for info in infos if info["pid"] == pid} for pid in pids(infos)}
    assert sorted(map(sorted, of_process.values())) == [[0, 1], [2, 3]]  # type: ignore[type-var]


class Times10(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 10.0 * float(reward)


@pytest.mark.parametrize("method", [None, "forkserver"])
def test_instance_keeps_its_wrappers(method: str | None) -> None:
    model, infos = train(Monitor(Times10(Probe())), start_method=method)
    assert {info["episode"]["r"] for info in infos} == {70.0}
    assert len(pids(infos)) == 2 and os.getpid() not in pids(infos)


def test_wrapper_class_and_monitor_dir(tmp_path: Path) -> None:
    _, infos = train(Probe, wrapper_class=Times10, monitor_dir=str(tmp_path))
    assert {info["episode"]["r"] for info in infos} == {7.0}, "Monitor is inside the wrapper, as in make_vec_env"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.monitor.csv", "1.monitor.csv"]
    assert sum(load_results(str(tmp_path))["l"]) >= 7 * len(infos)


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_vec_env_is_split(kind: Any) -> None:
    venv = kind([partial(make_monitored, i) for i in range(4)])
    _, infos = train(venv)
    assert {info["rank"] for info in infos} == {0, 1, 2, 3}
    venv.reset()
    assert venv.step(np.zeros(4, int))[1].tolist() == [1.0] * 4, "still usable in the main process"
    venv.close()


def make_monitored(rank: int) -> Monitor[Any, Any]:
    return Monitor(Probe(rank=rank))


def test_vec_env_wrappers_are_rebuilt() -> None:
    venv = VecMonitor(VecFrameStack(DummyVecEnv([partial(Probe, rank=i) for i in range(2)]), n_stack=3))
    model, infos = train(venv)
    assert model.observation_space.shape == (9,)
    assert all(info["episode"]["l"] == 7 for info in infos)


def test_unknown_vec_env_wrapper_is_refused_by_name() -> None:
    venv = VecNormalize(DummyVecEnv([Probe]))
    with pytest.raises(ValueError, match="VecNormalize cannot be split over workers.*n_workers=0"):
        A3C("MlpPolicy", venv, n_workers=1)
    A3C("MlpPolicy", venv, n_workers=0).learn(50)
    assert venv.obs_rms.count > 50


def test_atari_vec_env_is_split() -> None:
    venv = make_atari_vec_env("ALE/Pong-v5", 2, training=True)
    model, _ = train(VecFrameStack(venv, 2), steps=40)
    assert model.observation_space.shape == (8, 84, 84)


def test_inline_uses_the_users_own_object() -> None:
    env = Probe()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    _, infos = train(env, n_workers=0)
    assert pids(infos) == {os.getpid()} and env.steps == 400


def test_main_holds_no_environment_while_training() -> None:
    """A port can be bound once: neither a probe nor the main process's copy may keep it."""
    model, infos = train([partial(Server, 6123 + i) for i in range(2)])
    assert len(infos) > 10
    assert evaluate_policy(model, model.get_env(), 2)[0] == 7.0, "and it is there again afterwards"  # type: ignore[arg-type]
    model.get_env().close()  # type: ignore[union-attr]


class Server(Probe):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", port))

    def close(self) -> None:
        self.socket.close()


def test_main_env_is_lazy_and_complete() -> None:
    from sb3_async.envs import EnvMaker

    venv = AsyncDummyVecEnv(EnvMaker(Probe), 2)
    assert venv._envs is None
    assert venv.reset().shape == (2, 3)  # type: ignore[union-attr]
    assert venv.get_attr("rank") == [0, 1]
    assert venv.env_is_wrapped(Monitor) == [True, True]
    venv.close()
    venv.close()
    assert venv.env_method("observe")[0].shape == (3,)
    venv.close()


# Errors come in the main process, before any worker starts.


def test_unknown_id() -> None:
    with pytest.raises(gym.error.NameNotFound, match="NoSuchGame"):
        A3C("MlpPolicy", "NoSuchGame-v0")


@pytest.mark.parametrize("env", [42, [], [1, 2], object()])
def test_what_is_no_environment(env: Any) -> None:
    with pytest.raises(TypeError, match="env must be an id string"):
        A3C("MlpPolicy", env)


def test_callable_that_returns_a_vec_env() -> None:
    with pytest.raises(TypeError, match="returned a VecEnv"):
        A3C("MlpPolicy", lambda: DummyVecEnv([Probe]))


@pytest.mark.parametrize("n_workers", [3, 5, 8])
def test_workers_that_do_not_fit_the_environments(n_workers: int) -> None:
    with pytest.raises(ValueError, match=f"n_workers={n_workers}, but env has 4 environments.*n_workers=1 or 2 or 4"):
        A3C("MlpPolicy", [Probe] * 4, n_workers=n_workers)


def test_object_that_cannot_be_copied() -> None:
    env = Probe()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cannot be copied to the workers.*lock.*callable"):
        A3C("MlpPolicy", env, n_workers=2)


@pytest.mark.parametrize("options", [dict(n_envs_per_worker=2), dict(env_kwargs=dict(a=1)), dict(wrapper_class=Times10)])
def test_options_that_an_object_cannot_obey(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        A3C("MlpPolicy", Probe(), **options)


def test_usable_cores_count_affinity() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, cores)


# Catch


def test_catch_passes_the_checkers() -> None:
    env = gym.make("Catch-v0").unwrapped
    check_env(env, warn=False)
    gymnasium_check_env(env, skip_render_check=True)


def test_catch_is_the_game_it_should_be() -> None:
    env = gym.make("Catch-v0")
    rng, caught = np.random.default_rng(0), []
    for seed in range(300):
        obs, _ = env.reset(seed=seed)
        assert obs.shape == (24, 24, 1) and set(np.unique(obs)) <= {0, 255}
        assert np.flatnonzero(obs[-1, :, 0]).tolist() == [11, 12]
        assert np.count_nonzero(obs[0]) == 1
        moves, over, total = 0, False, 0.0
        while not over:
            ball = np.argwhere(obs[:-1, :, 0])[0][1] if obs[:-1].any() else 0
            paddle = np.flatnonzero(obs[-1, :, 0])[0]
            follow = 2 if ball > paddle else 1 if ball < paddle else 0
            obs, reward, over, truncated, _ = env.step(follow if seed < 150 else rng.integers(3))
            moves, total = moves + 1, total + float(reward)
            assert not truncated and (over or reward == 0)
        assert moves == 23
        caught.append(total)
    assert np.mean(caught[:150]) > 0.85 and np.mean(caught[150:]) < 0.4


# Atari


def test_atari_preprocessing_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    model = A3C("CnnPolicy", "ALE/Pong-v5", n_workers=0, verbose=1)
    out = capsys.readouterr().out
    assert "sticky actions 0.25" in out and "make_atari_vec_env" in out
    assert model.observation_space.shape == (4, 84, 84)
    assert A3C("CnnPolicy", "PongNoFrameskip-v4", n_workers=0).get_env().spec.kwargs["repeat_action_probability"] == 0  # type: ignore[union-attr]


def test_atari_without_preprocessing() -> None:
    model = A3C("CnnPolicy", "ALE/Pong-v5", n_workers=0, preprocess_atari=False)
    assert model.observation_space.shape == (3, 210, 160)


def test_atari_env_kwargs_reach_the_emulator() -> None:
    model = A3C("CnnPolicy", "ALE/Pong-v5", n_workers=0, env_kwargs=dict(stack_num=2, full_action_space=True))
    assert model.observation_space.shape == (2, 84, 84)
    assert model.action_space.n == 18  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"does not take difficulty .* options full_action_space"):
        A3C("CnnPolicy", "ALE/Pong-v5", env_kwargs=dict(difficulty=1))


def test_atari_wrapper_class_is_refused() -> None:
    with pytest.raises(ValueError, match="takes no wrapper_class.*preprocess_atari=False.*frameskip=1"):
        A3C("CnnPolicy", "ALE/Pong-v5", wrapper_class=Times10)


def play(training: bool, game: str = "ALE/Breakout-v5", steps: int = 400) -> list[tuple[float, bool, dict[str, Any], Any]]:
    env = make_atari_vec_env(game, 1, seed=3, training=training)
    env.reset()
    rng, log = np.random.default_rng(0), []  # type: ignore[var-annotated]
    for _ in range(steps):
        obs, rewards, dones, infos = env.step(rng.integers(4, size=1))
        log.append((float(rewards[0]), bool(dones[0]), infos[0], obs[0]))
    return log


def test_atari_scores_are_of_whole_games() -> None:
    for training in (True, False):
        score, length, games, lives_lost, lives = 0.0, 0, 0, 0, 5
        for reward, done, info, _ in play(training, steps=700):
            score, length = score + reward, length + 1
            assert ("episode" in info) <= done
            if "episode" in info:
                assert info["episode"]["r"] == score and info["episode"]["l"] == length
                games, score, length = games + 1, 0.0, 0
            elif info["lives"] < lives:
                lives_lost += 1
                assert done == training
            lives = info["lives"]
        assert games >= 2 and lives_lost >= 4 * games


def test_atari_terminal_observation() -> None:
    for _, done, info, obs in play(training=True):
        if done:
            assert info["terminal_observation"].shape == (4, 84, 84)
            assert np.array_equal(info["terminal_observation"], obs) == ("episode" not in info), (
                "a lost life goes on, a game does not"
            )
            assert info["TimeLimit.truncated"] is False


def test_atari_time_limit_is_a_truncation() -> None:
    env = make_atari_vec_env("ALE/Breakout-v5", 1, max_num_frames_per_episode=40)
    env.reset()
    ends = [env.step(np.zeros(1, int)) for _ in range(20)]
    assert [bool(end[2][0]) for end in ends] == [i in (9, 19) for i in range(20)], "four frames make one step"
    assert ends[9][3][0]["TimeLimit.truncated"] is True and ends[9][3][0]["episode"]["l"] == 10
    assert A3C("CnnPolicy", "ALE/Pong-v5", n_workers=0).get_env().render_mode is None  # type: ignore[union-attr]


def test_atari_rewards_are_clipped_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = [reward for reward, *_ in play(False, "ALE/SpaceInvaders-v5", 300)]
    clipped = [reward for reward, *_ in play(True, "ALE/SpaceInvaders-v5", 300)]
    assert max(raw) > 1 and set(clipped) == {0.0, 1.0}


def test_atari_seeds() -> None:
    def first(seed: int | None) -> Any:
        env = make_atari_vec_env("ALE/Breakout-v5", 2, seed=seed)
        env.reset()
        return np.stack([env.step(np.full(2, 2 + i % 2))[0] for i in range(20)])

    assert np.array_equal(first(1), first(1))
    assert not np.array_equal(first(1)[:, 0], first(1)[:, 1])
    assert not np.array_equal(first(1), first(2))


def test_atari_in_workers(tmp_path: Path) -> None:
    model = A3C("CnnPolicy", "ALE/Pong-v5", n_workers=2, n_envs_per_worker=2, monitor_dir=str(tmp_path), seed=0)
    model.learn(80)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{i}.monitor.csv" for i in range(4)]
    mean, _ = evaluate_policy(model, make_atari_vec_env("ALE/Pong-v5", 1), 1)
    assert -21 <= mean <= 21
    with pytest.raises(ValueError, match="not an Atari game"):
        make_atari_vec_env("CartPole-v1")
