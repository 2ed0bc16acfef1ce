"""A3C as a Stable-Baselines3 algorithm, over real worker processes."""

import copy
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from sb3_async import A3C, WorkerDied
from sb3_async.errors import RemoteTraceback
from tests.conftest import workers
from tests.toys import Chain, ConstantReward, Probe

TABULAR = dict(net_arch=[])
REPOSITORY = Path(__file__).parents[1]


def parameters(model: A3C) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.policy.parameters()])


# Values: exact fixed points.


@pytest.mark.parametrize("n_steps", [1, 5])
@pytest.mark.parametrize(("end", "length", "value", "tolerance"), [("truncated", 10, 10.0, 0.5), ("terminated", 1, 1.0, 0.05)])
def test_truncation_bootstraps_and_termination_does_not(
    end: str, length: int, value: float, tolerance: float, n_steps: int
) -> None:
    """Reward 1 for ever is worth 1 / (1 - 0.9) = 10; taking truncation for an end would give 4.16 or 5.26."""
    model = A3C(
        "MlpPolicy",
        ConstantReward,
        env_kwargs=dict(end=end, length=length),
        gamma=0.9,
        n_steps=n_steps,
        n_workers=2,
        learning_rate=lambda progress: 0.02 * progress,
        max_grad_norm=None,
        policy_kwargs=TABULAR,
        seed=0,
    )
    model.learn(8_000 if n_steps == 5 else 4_000)
    assert float(model.policy.predict_values(torch.ones(1, 1)).detach()) == pytest.approx(value, abs=tolerance)


def test_values_of_a_chain() -> None:
    model = A3C(
        "MlpPolicy",
        Chain,
        gamma=0.5,
        n_workers=2,
        learning_rate=lambda p: 0.02 * p,
        policy_kwargs=TABULAR,
        max_grad_norm=None,
        seed=0,
    )
    model.learn(8_000)
    values = model.policy.predict_values(torch.eye(3)).detach().flatten()
    np.testing.assert_allclose(values, [0.25, 0.5, 1.0], atol=0.05)


def test_updates_of_all_workers_arrive() -> None:
    """Each worker sees a feature of its own, so it alone moves that feature's weights in the shared vector."""
    model = A3C(
        "MlpPolicy", OneHot, n_workers=4, seed=0, policy_kwargs=dict(net_arch=[], ortho_init=False), learning_rate=1e-2
    )
    before = model.policy.value_net.weight.detach().clone()
    model.learn(2_000)
    assert ((model.policy.value_net.weight.detach() - before).abs() > 0.05).all()


class OneHot(ConstantReward):
    def __init__(self, rank: int = 0) -> None:
        super().__init__("terminated", 1)
        import gymnasium.spaces as spaces

        self.observation_space = spaces.Box(0, 1, (4,), np.float32)
        self.rank = rank

    def reset(self, **kwargs: Any) -> Any:
        return np.eye(4, dtype=np.float32)[self.rank], super().reset(**kwargs)[1]

    def step(self, action: Any) -> Any:
        return np.eye(4, dtype=np.float32)[self.rank], *super().step(action)[1:]


# Determinism


@pytest.mark.parametrize(
    ("policy", "env", "steps", "kwargs"),
    [
        ("MlpPolicy", "CartPole-v1", 1_000, dict(learning_rate=lambda progress: 1e-3 * progress)),
        ("MlpPolicy", "CartPole-v1", 1_000, dict(n_envs_per_worker=3, n_steps=7)),
        ("CnnPolicy", "ALE/Pong-v5", 80, dict(n_envs_per_worker=2)),
    ],
)
def test_inline_and_one_worker_are_bit_equal(policy: str, env: str, steps: int, kwargs: dict[str, Any]) -> None:
    def run(n_workers: int, seed: int = 7) -> torch.Tensor:
        model = A3C(policy, env, n_workers=n_workers, seed=seed, **kwargs)
        model.learn(steps)
        np.random.rand(), torch.rand(1)
        model.learn(steps // 2, reset_num_timesteps=False)
        return parameters(model)

    first = run(0)
    assert torch.equal(first, run(0)) and torch.equal(first, run(1)) and torch.equal(first, run(1))
    assert not torch.equal(first, run(0, seed=8))


def test_callbacks_do_not_disturb_the_streams() -> None:
    class Draws(BaseCallback):
        def _on_step(self) -> bool:
            np.random.rand(), torch.rand(1)
            return True

    def run(n_workers: int, callback: Any) -> torch.Tensor:
        model = A3C("MlpPolicy", "CartPole-v1", n_workers=n_workers, seed=1)
        return parameters(model.learn(300, callback=callback))

    expected = run(0, None)
    for n_workers in (0, 1):
        assert torch.equal(expected, run(n_workers, [Draws(), EvalCallback(Monitor(Cart()), eval_freq=100, verbose=0)]))


def Cart() -> Any:
    import gymnasium

    return gymnasium.make("CartPole-v1")


class Infos(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        self.seen += [info for info in self.locals["infos"] if "pid" in info]
        return True


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_and_runs_draw_different_streams(seed: int | None, method: str) -> None:
    model, draws = A3C("MlpPolicy", Probe, n_workers=3, seed=seed, start_method=method), []
    for _ in range(2):
        infos = Infos()
        model.learn(400, callback=infos)
        firsts: dict[int, dict[str, Any]] = {}
        for info in infos.seen:
            firsts.setdefault(info["pid"], info)
        assert len(firsts) == 3
        draws += [info["draw"] for info in firsts.values()]
        seeds = [info["seeds"] for info in infos.seen]
        assert all(s[0] is not None and set(s[1:]) <= {None} for s in seeds), "only the first reset is seeded"
        assert len({s[0] for s in seeds}) == 3
    assert len(set(draws)) == 6


# The face of SB3


def test_step_accounting() -> None:
    for n_workers, total, e in [(2, 1, 1), (3, 10, 1), (2, 1_003, 1), (2, 100, 8)]:
        model = A3C("MlpPolicy", Probe, n_workers=n_workers, n_envs_per_worker=e)
        counter = Infos()
        assert model.learn(float(total), callback=counter) is model
        expected = -(-total // e) * e
        assert model.num_timesteps == expected
        assert counter.n_calls * e == expected
    model.learn(100, reset_num_timesteps=False)
    assert model.num_timesteps == 104 + 104 and model._n_updates > 0


def test_checkpoints_and_evaluation_come_at_their_steps(tmp_path: Path) -> None:
    checkpoint = CheckpointCallback(200, str(tmp_path), name_prefix="m")
    evaluation = EvalCallback(
        Monitor(Cart()),
        eval_freq=250,
        n_eval_episodes=1,
        log_path=str(tmp_path),
        best_model_save_path=str(tmp_path),
        verbose=0,
    )
    A3C("MlpPolicy", "CartPole-v1", n_workers=2).learn(1_000, callback=[checkpoint, evaluation])
    assert sorted(p.name for p in tmp_path.glob("m_*")) == [f"m_{k}_steps.zip" for k in (1000, 200, 400, 600, 800)]
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [250, 500, 750, 1000]
    assert A3C.load(tmp_path / "best_model.zip").predict(np.zeros(4, np.float32))[0] in (0, 1)


def test_every_episode_is_in_one_call_and_in_the_buffer() -> None:
    model, infos = A3C("MlpPolicy", Probe, n_workers=3, stats_window_size=1_000), Infos()
    model.learn(2_100, callback=infos)
    ended = sum(info["episode"]["l"] for info in infos.seen)
    assert 2_100 - 3 * 7 < ended <= 2_100
    assert len(model.ep_info_buffer) == len(infos.seen) == model._episode_num  # type: ignore[arg-type]


def test_max_episodes_stops() -> None:
    model, stop = A3C("MlpPolicy", Probe, n_workers=2), StopTrainingOnMaxEpisodes(5)
    model.learn(10**8, callback=stop)
    assert stop.n_episodes == 5
    assert model.num_timesteps == stop.n_calls < 5_000


@pytest.mark.parametrize("falsy", [False, None, np.bool_(False)])
def test_callback_stops_at_once_and_ends_properly(falsy: Any) -> None:
    class Stop(BaseCallback):
        ended = 0

        def _on_step(self) -> Any:
            return falsy

        def _on_training_end(self) -> None:
            self.ended += 1

    stop, start = Stop(), time.monotonic()
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2).learn(10**8, callback=stop)
    assert stop.n_calls == model.num_timesteps == stop.ended == 1
    assert time.monotonic() - start < 30 and not workers()


def test_rollouts_and_locals() -> None:
    class Watch(BaseCallback):
        starts = ends = 0

        def _on_rollout_start(self) -> None:
            self.starts += 1

        def _on_rollout_end(self) -> None:
            self.ends += 1

        def _on_step(self) -> bool:
            assert self.locals["total_timesteps"] == 103 and len(self.locals["infos"]) == len(self.locals["dones"]) == 1
            assert self.training_env.observation_space.contains(self.locals["new_obs"][0])
            with pytest.raises(KeyError, match="not sent by the workers"):
                self.locals["rewards"]
            return True

    watch = Watch()
    A3C("MlpPolicy", Probe, n_workers=2).learn(103, callback=watch)
    assert watch.starts == watch.ends == 11, "a rollout is 5 steps of both workers"


def test_callback_exception_passes_unchanged() -> None:
    class Boom(BaseCallback):
        def _on_step(self) -> bool:
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        A3C("MlpPolicy", "CartPole-v1", n_workers=2).learn(1_000, callback=Boom())


def test_what_callbacks_change_reaches_the_workers() -> None:
    class Freeze(BaseCallback):
        frozen: torch.Tensor | None = None

        def _on_step(self) -> bool:
            if self.n_calls == 200:
                self.model.lr_schedule = lambda progress: 0.0
            if self.n_calls == 1_000:
                self.frozen = parameters(self.model)  # type: ignore[arg-type]
            return True

    freeze = Freeze()
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2, max_lead=100).learn(1_500, callback=freeze)
    assert freeze.frozen is not None and torch.equal(freeze.frozen, parameters(model))  # type: ignore[arg-type]


def test_set_parameters_while_training() -> None:
    class Zero(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 200:
                zeros = {name: torch.zeros_like(p) for name, p in self.model.policy.state_dict().items()}
                self.model.set_parameters({"policy": zeros}, exact_match=False)
            return True

    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2, learning_rate=1e-6).learn(500, callback=Zero())
    assert float(parameters(model).abs().max()) < 0.01


def test_schedule_runs_over_all_workers_steps() -> None:
    seen: list[float] = []

    def schedule(progress: float) -> float:
        seen.append(progress)
        return 1e-3 * progress

    A3C("MlpPolicy", Probe, n_workers=4, learning_rate=schedule).learn(1_000)
    run = seen[5:]
    assert min(run) == 0.0 and max(run) <= 1.0 and len(set(run)) >= 190


def test_logs(tmp_path: Path, csv_logger: Logger) -> None:
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2)
    model.set_logger(csv_logger)
    model.learn(2_000, log_interval=50)
    import pandas

    table = pandas.read_csv(tmp_path / "progress.csv")
    assert table["time/total_timesteps"].tolist() == [500, 1_000, 1_500, 2_000]
    keys = """
        rollout/ep_rew_mean rollout/ep_len_mean time/fps time/iterations train/policy_loss train/value_loss
        train/entropy_loss train/explained_variance train/learning_rate train/n_updates async/fps_per_worker
        async/fps_slowest_worker async/policy_lag async/credits async/skipped_updates async/worker_restarts
    """
    for key in keys.split():
        assert key in table.columns
    last = table.iloc[-1]
    assert last["train/n_updates"] == pytest.approx(400, abs=30) and last["train/entropy_loss"] < 0
    assert 0 < last["async/policy_lag"] < 20


def test_tensorboard_and_progress_bar(tmp_path: Path) -> None:
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2, tensorboard_log=str(tmp_path))
    model.learn(600, log_interval=10, progress_bar=True)
    model.learn(600, reset_num_timesteps=False)
    model.learn(600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A3C_1", "A3C_2"]


# Saving


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2, seed=0).learn(1_000)
    model.save(path)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    actions = model.predict(observations, deterministic=True)[0]
    clone, snapshot = copy.deepcopy(model.policy), copy.deepcopy(model.get_parameters())
    squares = [state["square_avg"].clone() for state in model.policy.optimizer.state.values()]
    weights = parameters(model)
    model.learn(500, reset_num_timesteps=False)
    assert not torch.equal(weights, parameters(model))
    assert torch.equal(torch.cat([p.detach().flatten() for p in clone.parameters()]), weights), "copies are no shared memory"
    assert torch.equal(torch.cat([p.flatten() for p in snapshot["policy"].values()]), weights)

    loaded = A3C.load(path)
    assert np.array_equal(loaded.predict(observations, deterministic=True)[0], actions)
    for a, b in zip(squares, loaded.policy.optimizer.state.values(), strict=True):
        assert torch.equal(a, b["square_avg"]) and not torch.equal(a, torch.ones_like(a))
    assert loaded.num_timesteps == 1_000 and loaded._n_updates == model._n_updates - 100
    with pytest.raises(ValueError, match="no environment"):
        loaded.learn(100)


def test_load_with_an_id_and_other_workers_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    A3C("MlpPolicy", "CartPole-v1", n_workers=2, n_envs_per_worker=2).learn(200).save(path)
    model = A3C.load(path, env="CartPole-v1", n_workers=3, learning_rate=1e-5)
    assert model.get_env().num_envs == 2  # type: ignore[union-attr]
    model.learn(200, reset_num_timesteps=False)
    assert model.num_timesteps == 400 and model.lr_schedule(1) == 1e-5


def test_zip_interchange_with_a2c(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    ours = A3C("MlpPolicy", "CartPole-v1", n_workers=2).learn(300)
    ours.save(tmp_path / "a3c")
    theirs = A2C.load(tmp_path / "a3c", env=Cart())
    assert np.array_equal(
        theirs.predict(observations, deterministic=True)[0], ours.predict(observations, deterministic=True)[0]
    )
    theirs.learn(100)
    theirs.save(tmp_path / "a2c")
    back = A3C.load(tmp_path / "a2c", env="CartPole-v1")
    assert np.array_equal(
        theirs.predict(observations, deterministic=True)[0], back.predict(observations, deterministic=True)[0]
    )
    size = {name: (tmp_path / f"{name}.zip").stat().st_size for name in ("a3c", "a2c")}
    assert size["a3c"] < 1.1 * size["a2c"]


def test_evaluate_policy_on_its_own_environment() -> None:
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2).learn(300)
    mean, _ = evaluate_policy(model, model.get_env(), 3)  # type: ignore[arg-type]
    assert mean > 5
    assert model.get_env().render().shape[-1] == 3  # type: ignore[union-attr]
    model.get_env().close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cls", "options"), [(torch.optim.Adam, dict(eps=1e-3)), (torch.optim.SGD, {}), (RMSpropTFLike, dict(eps=1e-5))]
)
def test_optimizers_share_one_state(cls: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    kwargs = dict(optimizer_class=cls, optimizer_kwargs=options)
    model = A3C("MlpPolicy", Probe, n_workers=4, policy_kwargs=kwargs)
    model.learn(2_000)
    state = model.policy.optimizer.state[next(model.policy.parameters())]
    if cls is not torch.optim.SGD:
        assert 380 <= float(state["step"]) <= 400, "the updates of all workers, but for a few lost in races"
        assert float(state["exp_avg_sq" if cls is torch.optim.Adam else "square_avg"].max()) > 0
    assert "optimizer_class" in kwargs and len(kwargs) == 2, "the user's dictionary is not changed"


def test_one_worker_equals_a2c() -> None:
    """Same weights, environment, optimiser and random stream: the same network after 40 updates, to rounding."""
    ours = A3C("MlpPolicy", "CartPole-v1", n_workers=0, seed=0, ent_coef=0.01)
    ours.policy.load_state_dict(A2C("MlpPolicy", "CartPole-v1", seed=0).policy.state_dict())
    reference = A2C(
        "MlpPolicy",
        "CartPole-v1",
        seed=0,
        ent_coef=0.01,
        policy_kwargs=dict(optimizer_class=RMSpropTFLike, optimizer_kwargs=dict(eps=1e-5)),
    )
    reference.policy.load_state_dict(ours.policy.state_dict())
    # The streams that the worker will have.
    streams, env_seed, _ = np.random.SeedSequence(0, spawn_key=(1, 0, 0)).spawn(3)
    reference.env.seed(int(env_seed.generate_state(1)[0]) % 2**31)  # type: ignore[union-attr]
    original = reference.collect_rollouts
    seeded = []

    def collect(*args: Any, **kwargs: Any) -> bool:
        if not seeded:
            from sb3_async.runtime.seeding import seed_streams

            seed_streams(streams)
            seeded.append(True)
        return original(*args, **kwargs)

    reference.collect_rollouts = collect  # type: ignore[method-assign]
    reference.learn(200)
    ours.learn(200)
    torch.testing.assert_close(
        parameters(ours), torch.cat([p.detach().flatten() for p in reference.policy.parameters()]), rtol=1e-4, atol=1e-6
    )


# Errors


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("fault", ["raise", "make", "reset"])
def test_environment_exception_comes_out_as_itself(
    method: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIN_PID", str(os.getpid()))
    model = A3C("MlpPolicy", Probe, env_kwargs=dict(fault=fault), n_workers=3, start_method=method)
    with pytest.raises(ValueError, match="sensor offline|cannot be") as caught:
        model.learn(10**7)
    assert isinstance(caught.value.__cause__, RemoteTraceback) and "toys.py" in str(caught.value.__cause__)
    assert not workers()
    model.save(tmp_path / "saved")
    assert A3C.load(tmp_path / "saved").predict(np.zeros(3, np.float32))[0] in (0, 1, 2)


def test_exception_comes_within_two_seconds() -> None:
    marks: dict[str, float] = {}

    class Mark(BaseCallback):
        def _on_step(self) -> bool:
            marks["last"] = time.monotonic()
            return True

    with pytest.raises(ValueError, match="sensor offline"):
        A3C("MlpPolicy", Probe, env_kwargs=dict(fault="raise", at=2_000), n_workers=2).learn(10**7, callback=Mark())
    assert time.monotonic() - marks["last"] < 2


def test_killed_worker_is_replaced_and_steps_are_exact() -> None:
    class Kill(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 300:
                workers()[0].kill()
            return True

    model = A3C("MlpPolicy", Probe, n_workers=2, start_method="fork", max_lead=200)
    with pytest.warns(RuntimeWarning, match="SIGKILL.*is replaced"):
        model.learn(3_000, callback=Kill())
    assert model.num_timesteps == 3_000
    with pytest.raises(WorkerDied, match="SIGKILL"):
        A3C("MlpPolicy", Probe, n_workers=2, start_method="fork", max_worker_restarts=0).learn(10**7, callback=Kill())


@pytest.mark.parametrize(("kind", "where"), [("nan", "reward"), ("inf", "reward")])
def test_what_is_not_finite_never_reaches_the_parameters(kind: str, where: str) -> None:
    model = A3C("MlpPolicy", Poisoned, env_kwargs=dict(value=float(kind)), n_workers=2)
    model.learn(1_000)
    assert torch.isfinite(parameters(model)).all()
    assert all(torch.isfinite(v).all() for state in model.policy.optimizer.state.values() for v in state.values())
    assert model._n_updates < 200


class Poisoned(Probe):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, self.value if self.steps == 50 else reward, *rest


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        (dict(n_workers=-1), "n_workers must be at least 0"),
        (dict(n_envs_per_worker=0), "n_envs_per_worker must be at least 1"),
        (dict(start_method="thread"), "start_method must be"),
        (dict(max_worker_restarts=-1), "max_worker_restarts"),
        (dict(worker_timeout=0), "worker_timeout"),
        (dict(max_lead=0), "max_lead"),
        (dict(n_steps=0), "n_steps must be at least 1"),
        (dict(policy="NoSuchPolicy"), "Policy NoSuchPolicy unknown"),
        (dict(policy_kwargs=dict(optimizer_class=torch.optim.LBFGS)), "LBFGS.*element-wise"),
        (dict(use_sde=True), "gSDE"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], match: str) -> None:
    arguments: dict[str, Any] = dict(policy="MlpPolicy", env="CartPole-v1")
    with pytest.raises(ValueError, match=match):
        A3C(**{**arguments, **kwargs})


def test_small_picture() -> None:
    with pytest.raises(ValueError, match="15x15 is too small for SB3's default CNN.*36x36"):
        A3C("CnnPolicy", Probe, env_kwargs=dict(shape=(15, 15, 1)), n_workers=2)


def test_unguarded_script_works_with_every_start_method(tmp_path: Path) -> None:
    for method in ("None", "'fork'", "'forkserver'", "'spawn'"):
        script = tmp_path / "script.py"
        script.write_text(
            textwrap.dedent(
                f"""
                import gymnasium as gym
                from sb3_async import A3C
                class Mine(gym.Wrapper): pass
                def make(): return Mine(gym.make("CartPole-v1"))
                model = A3C("MlpPolicy", make, n_workers=2, start_method={method}, learning_rate=lambda p: 1e-3 * p)
                print("steps", model.learn(100).num_timesteps)
                """
            )
        )
        run = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert run.returncode == 0 and run.stdout == "steps 100\n", run.stderr


def test_ctrl_c_leaves_a_model_that_can_be_saved(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from sb3_async import A3C
            from stable_baselines3.common.callbacks import BaseCallback
            class Go(BaseCallback):
                def _on_step(self):
                    if self.n_calls == 200: print("running", flush=True)
                    return True
            model = A3C("MlpPolicy", "CartPole-v1", n_workers=2)
            try: model.learn(10**9, callback=Go())
            except KeyboardInterrupt: pass
            finally: model.save({str(tmp_path / "last")!r})
            model.learn(100)
            print("done", flush=True)
            """
        )
    )
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None and process.stdout.readline() == "running\n"
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(2)
    out, err = process.communicate(timeout=40)
    assert (process.returncode, out, err) == (0, "done\n", "")
    assert A3C.load(tmp_path / "last").num_timesteps >= 200
    assert not psutil.wait_procs(children, timeout=10)[1]


def test_learn_fifty_times_leaves_nothing() -> None:
    model = A3C("MlpPolicy", "CartPole-v1", n_workers=2)
    main = psutil.Process()

    def usage() -> tuple[int, int, list[str], int]:
        return len(main.children(recursive=True)), main.num_fds(), sorted(os.listdir("/dev/shm")), main.num_threads()

    for _ in range(5):
        model.learn(50)
    before, memory = usage(), main.memory_info().rss
    for _ in range(45):
        model.learn(50)
    assert usage() == before
    assert main.memory_info().rss - memory < 10e6
