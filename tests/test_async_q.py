"""AsyncQ, AsyncNStepQ and AsyncSarsa: fixed points, targets, target network, exploration, and SB3's face."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_async import AsyncNStepQ, AsyncQ, AsyncSarsa
from sb3_async.exploration import draw_quantiles, final_eps_at, linear_eps
from sb3_async.losses import q_loss
from sb3_async.policies import dueling
from sb3_async.q_updates import NStepQUpdate, QUpdate, SarsaUpdate
from sb3_async.returns import persistent_advantage
from sb3_async.runtime import Crossings
from sb3_async.worker import Rollout
from tests.conftest import workers
from tests.toys import Chain, ConstantReward, Probe

ALL = [AsyncQ, AsyncNStepQ, AsyncSarsa]
# Tables: a linear network over one-hot states, and plain gradient steps, whose fixed points are exact.
TABULAR: dict[str, Any] = dict(
    policy="MlpPolicy",
    learning_rate=0.2,
    huber_loss=False,
    max_grad_norm=None,
    target_update_interval=100,
    exploration_final_eps=0.5,
    exploration_fraction=0.0,
    policy_kwargs=dict(net_arch=[], optimizer_class=torch.optim.SGD),
    seed=0,
)


def table(model: AsyncQ, n_states: int) -> np.ndarray:
    """Q(s, a), (states, actions)."""
    with torch.no_grad():
        return model.q_net(torch.eye(n_states)).numpy()


def parameters(model: AsyncQ) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.policy.parameters()])


# Fixed points over real worker processes


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("n_workers", [1, 4])
@pytest.mark.parametrize(("end", "length", "value"), [("truncated", 10, 10.0), ("terminated", 1, 1.0)])
def test_truncation_bootstraps_and_termination_does_not(
    cls: type[AsyncQ], n_workers: int, end: str, length: int, value: float
) -> None:
    """Reward 1 for ever is worth 1 / (1 - 0.9) = 10; taking truncation for an end would give at most 6.5."""
    model = cls(env=ConstantReward, env_kwargs=dict(end=end, length=length), gamma=0.9, n_workers=n_workers, **TABULAR)
    model.learn(10_000 if end == "truncated" else 3_000)
    np.testing.assert_allclose(table(model, 1), value, rtol=0.02)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("n_workers", [1, 4])
def test_values_of_a_chain(cls: type[AsyncQ], n_workers: int) -> None:
    model = cls(env=Chain, gamma=0.5, n_workers=n_workers, **TABULAR)
    model.learn(6_000)
    np.testing.assert_allclose(table(model, 3), np.array([[0.25] * 2, [0.5] * 2, [1.0] * 2]), atol=0.02)


class Cliff(gym.Env[Any, Any]):
    """A start, an edge and a ledge. On the edge: walk on, or go home for 0.6. On the ledge: the goal (1), or the fall (-1)."""

    #: for each state and action: next state (None: the end) and reward
    MOVES: tuple[tuple[tuple[int | None, float], ...], ...] = (
        ((1, 0.0), (1, 0.0)),
        ((2, 0.0), (None, 0.6)),
        ((None, 1.0), (None, -1.0)),
    )

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.state = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = 0
        return np.eye(3, dtype=np.float32)[0], {}

    def step(self, action: Any) -> Any:
        following, reward = self.MOVES[self.state][int(action)]
        self.state = following or 0
        return np.eye(3, dtype=np.float32)[self.state], reward, following is None, False, {}


def iterate_values(gamma: float, eps: float) -> np.ndarray:
    """Q of the policy that is greedy for it with probability ``1 - eps`` and random else, by value iteration."""
    q = np.zeros((3, 2))
    for _ in range(100):
        value = (1 - eps) * q.max(axis=1) + eps * q.mean(axis=1)
        q = np.array([[r + (0 if s is None else gamma * value[s]) for s, r in moves] for moves in Cliff.MOVES])
    return q


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("n_workers", [1, 4])
def test_cliff(cls: type[AsyncQ], n_workers: int) -> None:
    """Q-learning walks along the cliff, Sarsa with epsilon 0.5 knows that it would fall too often and goes home."""
    best, cautious = iterate_values(0.9, 0.0), iterate_values(0.9, 0.5)
    np.testing.assert_allclose(best, [[0.81, 0.81], [0.9, 0.6], [1, -1]])
    np.testing.assert_allclose(cautious, [[0.50625, 0.50625], [0.45, 0.6], [1, -1]])
    # Sarsa's targets depend on a random a': small steps average over it.
    settings = {**TABULAR, "learning_rate": (lambda progress: 0.3 * progress) if cls is AsyncSarsa else 0.2}
    n_steps = 1 if cls is AsyncNStepQ else 5  # longer returns are those of the exploring policy in part
    model = cls(env=Cliff, gamma=0.9, n_workers=n_workers, n_steps=n_steps, **settings)
    model.learn(20_000 if cls is AsyncSarsa else 8_000)
    np.testing.assert_allclose(table(model, 3), cautious if cls is AsyncSarsa else best, atol=0.04)


# Formulas


class Policy:
    """Q(s, a) = weights[s, a] over one-hot states, of a learning and a target network."""

    def __init__(self, learning: list[list[float]], target: list[list[float]]) -> None:
        self.q_net: Any = lambda states: states @ torch.tensor(learning)
        self.q_net_target: Any = lambda states: states @ torch.tensor(target)


#: Q of three states and two actions, where the two networks disagree about the best action of state 1.
POLICY: Any = Policy([[1.0, 0.0], [2.0, 0.5], [0.0, 1.0]], [[3.0, 2.0], [1.0, 4.0], [0.5, 0.25]])


def rollout(discounts: tuple[float, float] = (0.9, 0.9)) -> Rollout:
    """States 0, 1, 2 in one environment; actions 1, 0 and then 1; rewards 1 and 2."""
    return Rollout(
        torch.eye(3),
        torch.tensor([1, 0]),
        torch.tensor([0, 1]),
        np.array([[1.0], [2.0]], np.float32),
        np.array([[d] for d in discounts], np.float32),
        np.zeros((2, 1), np.float32),
    )


HYPER = dict(pal_alpha=0.9, exploration_rate=0.0)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (QUpdate(), [1 + 0.9 * 4, 2 + 0.9 * 0.5]),
        (QUpdate(double=True), [1 + 0.9 * 1, 2 + 0.9 * 0.25]),
        (NStepQUpdate(), [1 + 0.9 * (2 + 0.9 * 0.5), 2 + 0.9 * 0.5]),
        (NStepQUpdate(double=True), [1 + 0.9 * (2 + 0.9 * 0.25), 2 + 0.9 * 0.25]),
        (SarsaUpdate(), [1 + 0.9 * 1, 2 + 0.9 * 0.25]),
        (SarsaUpdate(double=True), [1 + 0.9 * 1, 2 + 0.9 * 0.25]),
        # V(s) - Q(s, a) and V(s') - Q(s', a) are 1 and 0 at the first step, 3 and 0 at the second
        (QUpdate(persistent=True), [1 + 0.9 * 4 - 0.9 * 0, 2 + 0.9 * 0.5 - 0.9 * 0]),
    ],
)
def test_targets(update: QUpdate, expected: list[float]) -> None:
    np.testing.assert_allclose(update.targets(POLICY, rollout(), HYPER).flatten(), expected, rtol=1e-6)


def test_targets_at_the_end_of_an_episode_are_rewards() -> None:
    for update in (QUpdate(), QUpdate(double=True), SarsaUpdate(), NStepQUpdate()):
        assert update.targets(POLICY, rollout((0.0, 0.0)), HYPER).flatten().tolist() == [1.0, 2.0]


def test_persistent_advantage() -> None:
    """max(δ - α (V - Q), δ - α (V' - Q')): 0.9 of the smaller gap is taken off."""
    y = persistent_advantage(np.array([5.0, 5.0, 5.0]), np.array([1.0, 0.5, 0.0]), np.array([0.25, 2.0, 1.0]), 0.9)
    np.testing.assert_allclose(y, [5 - 0.225, 5 - 0.45, 5])


def test_persistent_advantage_widens_the_gap_in_targets() -> None:
    policy: Any = Policy([[0.0, 0.0]] * 3, [[3.0, 2.0], [4.0, 1.0], [0.5, 0.25]])
    # gaps of action 1, then 0: 1 and 3 at the first step, 0 and 0 at the second
    targets = QUpdate(persistent=True).targets(policy, rollout(), HYPER).flatten()
    np.testing.assert_allclose(targets, [1 + 0.9 * 4 - 0.9 * 1, 2 + 0.9 * 0.5], rtol=1e-6)


def test_dueling() -> None:
    q = dueling(torch.tensor([[2.0]]), torch.tensor([[1.0, 3.0, 5.0]]))
    assert q.tolist() == [[0.0, 2.0, 4.0]]


def test_losses() -> None:
    """d/dQ of an error of 0.5 and of 3, of a batch of 2: -2 d / 2 squared, -clip(d) / 2 Huber's."""
    q = torch.zeros(2, 2, requires_grad=True)
    actions, targets = torch.tensor([0, 1]), torch.tensor([0.5, 3.0])
    q_loss(q, actions, targets, squared=True).backward()
    assert q.grad is not None and q.grad.tolist() == [[-0.5, 0.0], [0.0, -3.0]]
    q.grad = None
    q_loss(q, actions, targets, squared=False).backward()
    assert q.grad.tolist() == [[-0.25, 0.0], [0.0, -0.5]]


def test_gradient_of_a_rollout_is_the_mean_of_its_steps() -> None:
    torch.manual_seed(0)
    policy: Any = DQNPolicy(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), lambda _: 0.0)
    states, actions = torch.randn(6, 3), torch.randint(2, (5,))
    rewards, discounts = np.ones((5, 1), np.float32), np.array([[0.9]] * 3 + [[0.0], [0.9]], np.float32)
    update = NStepQUpdate(squared=True)
    whole = Rollout(states, actions, None, rewards, discounts, np.zeros((5, 1), np.float32))
    with torch.no_grad():
        targets = update.targets(policy, whole, {})

    def gradient(part: Rollout, y: np.ndarray) -> torch.Tensor:
        policy.zero_grad()
        update.loss(policy, part, y, {})[0].backward()
        return torch.cat([p.grad.flatten() for p in policy.q_net.parameters()])

    steps = [
        gradient(
            Rollout(states[t : t + 2], actions[t : t + 1], None, rewards[t : t + 1], discounts[t : t + 1], whole.values[:1]),
            targets[t : t + 1],
        )
        for t in range(5)
    ]
    torch.testing.assert_close(gradient(whole, targets), torch.stack(steps).mean(0))


def test_one_step_returns_make_the_algorithms_equal() -> None:
    def run(cls: type[AsyncQ]) -> torch.Tensor:
        model = cls("MlpPolicy", "CartPole-v1", n_steps=1, n_workers=0, target_update_interval=50, seed=3)
        return parameters(model.learn(1_000))

    assert torch.equal(run(AsyncQ), run(AsyncNStepQ))
    assert not torch.equal(run(AsyncQ), run(AsyncSarsa))


@pytest.mark.parametrize("cls", ALL)
def test_inline_and_one_worker_are_bit_equal(cls: type[AsyncQ]) -> None:
    def run(n_workers: int, seed: int = 5) -> torch.Tensor:
        model = cls("MlpPolicy", "CartPole-v1", n_workers=n_workers, n_envs_per_worker=2, target_update_interval=64, seed=seed)
        model.learn(500)
        return parameters(model.learn(250, reset_num_timesteps=False))

    first = run(0)
    assert torch.equal(first, run(0)) and torch.equal(first, run(1)) and not torch.equal(first, run(0, seed=6))


# Target network


def count_target_updates(model: AsyncQ) -> list[int]:
    """The number of target updates of each ``learn`` to come."""
    seen: list[int] = []
    original = model._run

    def run(training: Any, clock: Any, total: int) -> None:
        slots = training.slots
        original(training, clock, total)
        seen.append(int(slots.target_updates.sum()))

    model._run = run  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("n_workers", [1, 2, 8])
@pytest.mark.parametrize("cls", ALL)
def test_number_of_target_updates(cls: type[AsyncQ], n_workers: int) -> None:
    """floor(T / interval), with an interval that rollouts jump over."""
    model = cls("MlpPolicy", Probe, n_workers=n_workers, target_update_interval=37, seed=0)
    seen = count_target_updates(model)
    model.learn(1_000)
    model.learn(500, reset_num_timesteps=False)
    assert seen == [1_000 // 37, 1_500 // 37 - 1_000 // 37]


def test_target_network_is_a_copy_made_at_the_multiple() -> None:
    """Inline with rollouts of one step: after 20 steps of an interval of 10 the target is what the network was at 20."""
    model = AsyncQ("MlpPolicy", Probe, n_steps=1, n_workers=0, target_update_interval=10, learning_rate=1e-2, seed=0)
    model.learn(20)
    for p, q in zip(model.q_net.parameters(), model.q_net_target.parameters(), strict=True):
        assert torch.equal(p, q)
    kept = [p.clone() for p in model.q_net_target.parameters()]
    model.learn(9, reset_num_timesteps=False)
    for p, q, k in zip(model.q_net.parameters(), model.q_net_target.parameters(), kept, strict=True):
        assert torch.equal(q, k) and not torch.equal(p, q)


def test_polyak_average() -> None:
    """With a learning rate of 0 the target closes a quarter of the distance at each of 3 multiples, 2 of them in one grant."""
    model = AsyncQ("MlpPolicy", Probe, n_steps=4, n_workers=1, target_update_interval=2, tau=0.25, learning_rate=0.0, seed=0)
    with torch.no_grad():
        for p in model.q_net_target.parameters():
            p.zero_()
    model.learn(6)
    for p, q in zip(model.q_net.parameters(), model.q_net_target.parameters(), strict=True):
        torch.testing.assert_close(q, (1 - 0.75**3) * p)


def test_crossings_of_a_worker_that_died_go_to_the_next() -> None:
    acted = np.zeros(2, np.int64)
    crossings = Crossings(acted, start=95)
    assert crossings.due(0, 105, 10) == 1
    assert crossings.due(1, 115, 10) == 1
    acted[1] += 1
    crossings.reclaim(0)
    assert crossings.due(1, 115, 10) == 1, "granted again, the multiple at 110 has been passed already"
    assert crossings.due(1, 120, 10) == 1


def test_target_updates_of_a_killed_worker_are_made_up_for() -> None:
    class Kill(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 300:
                workers()[0].kill()
            return True

    model = AsyncQ("MlpPolicy", Probe, n_workers=2, start_method="fork", max_lead=200, target_update_interval=11)
    seen = count_target_updates(model)
    with pytest.warns(RuntimeWarning, match="SIGKILL.*is replaced"):
        model.learn(3_000, callback=Kill())
    assert seen == [3_000 // 11]


# Exploration


def test_schedule_of_epsilon() -> None:
    """eps(t) = max(end, 1 + (end - 1) t / N), algorithms.md F.7, over a tenth of the training."""
    expected = {0.0: 1.0, 0.05: 0.55, 0.1: 0.1, 0.5: 0.1, 1.0: 0.1}
    for done, eps in expected.items():
        assert linear_eps(1 - done, 1.0, 0.1, 0.1) == pytest.approx(eps)
    assert linear_eps(1.0, 1.0, 0.1, 0.0) == 0.1


def test_final_eps_are_drawn_with_their_probabilities() -> None:
    values, probs = (0.1, 0.01, 0.5), (0.4, 0.3, 0.3)
    rng = np.random.default_rng(0)
    single = [final_eps_at(float(draw_quantiles(1, rng)[0]), values, probs) for _ in range(10_000)]
    for value, prob in zip(values, probs, strict=True):
        assert single.count(value) / 10_000 == pytest.approx(prob, abs=0.02)
    for _ in range(20):
        ten = [final_eps_at(q, values, probs) for q in draw_quantiles(10, rng)]
        assert [ten.count(value) for value in values] == [4, 3, 3]
    assert final_eps_at(0.7, 0.05, probs) == 0.05


def test_epsilon_follows_the_steps_of_all_workers_and_is_logged(tmp_path: Path, csv_logger: Logger) -> None:
    model = AsyncQ("MlpPolicy", Probe, n_workers=3, exploration_fraction=0.5, seed=1)
    model.set_logger(csv_logger)
    model.learn(600, log_interval=5)
    finals = [model._final_eps(worker) for worker in range(3)]
    assert set(finals) <= {0.1, 0.01, 0.5} and len(set(finals)) > 1
    place = model.hyper_names.index("exploration_rate")
    for worker, final in enumerate(finals):
        assert model.hyper_values(150, worker)[place] == pytest.approx(1 + 0.5 * (final - 1))
        assert model.hyper_values(300, worker)[place] == model.hyper_values(600, worker)[place] == final
    assert model.exploration_rate == pytest.approx(np.mean(finals))
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    assert {"rollout/exploration_rate", "train/loss", "train/q_value", "async/target_updates"} <= set(header)
    assert {f"exploration_final_eps/worker_{i}" for i in range(3)} <= set(header)
    before = list(finals)
    model.learn(60, reset_num_timesteps=False)
    assert [model._final_eps(worker) for worker in range(3)] == before, "drawn once"


def test_workers_explore_as_much_as_epsilon_says() -> None:
    """The greedy action is 0 for ever (learning rate 0); with epsilon 0.5 a quarter of the actions is the other one."""
    actions: list[int] = []

    class Recorder(ConstantReward):
        def step(self, action: Any) -> Any:
            actions.append(int(action))
            return super().step(action)

    settings = {**TABULAR, "learning_rate": 0.0}
    model = AsyncQ(env=Recorder, env_kwargs=dict(end="terminated", length=3), n_workers=0, n_envs_per_worker=2, **settings)
    with torch.no_grad():
        model.q_net.q_net[0].bias.copy_(torch.tensor([5.0, 0.0]))
    model.learn(4_000)
    assert np.mean(actions) == pytest.approx(0.25, abs=0.03)


def test_predict_explores_as_dqn_does() -> None:
    model = AsyncQ("MlpPolicy", "CartPole-v1", n_workers=0, seed=0)
    observation = model.get_env().reset()  # type: ignore[union-attr]
    greedy, _ = model.predict(observation, deterministic=True)
    model.exploration_rate = 1.0
    draws = [int(model.predict(observation)[0][0]) for _ in range(200)]
    assert 0.3 < np.mean(draws) < 0.7
    assert model.predict(observation[0])[0].shape == () and model.predict(observation)[0].shape == (1,)
    assert all(model.predict(observation, deterministic=True)[0] == greedy for _ in range(20))
    model.exploration_rate = 0.0
    assert all(model.predict(observation)[0] == greedy for _ in range(20))


# The worker's loop


def test_sarsa_learns_from_the_action_that_is_executed_next(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[int] = []
    targeted: list[int] = []

    class Recorder(Probe):
        def step(self, action: Any) -> Any:
            executed.append(int(action))
            return super().step(action)

    returns = SarsaUpdate.returns

    def record(self: SarsaUpdate, policy: Any, part: Rollout, hyper: Any) -> Any:
        assert part.next_actions is not None
        targeted.extend(part.next_actions.tolist())
        return returns(self, policy, part, hyper)

    monkeypatch.setattr(SarsaUpdate, "returns", record)
    AsyncSarsa("MlpPolicy", Recorder, n_workers=0, exploration_final_eps=0.5, exploration_fraction=0.0, seed=0).learn(200)
    assert len(set(executed)) == 3
    assert targeted[:-1] == executed[1:]


@pytest.mark.parametrize("n_envs", [1, 2])
def test_rollouts_end_with_the_episode_of_a_single_environment(monkeypatch: pytest.MonkeyPatch, n_envs: int) -> None:
    """Episodes of 7 steps, rollouts of 5. Several environments go on, each with its own episode ends."""
    seen: list[np.ndarray] = []
    targets = QUpdate.targets

    def record(self: QUpdate, policy: Any, part: Rollout, hyper: Any) -> Any:
        seen.append(part.discounts)
        return targets(self, policy, part, hyper)

    monkeypatch.setattr(QUpdate, "targets", record)
    AsyncQ("MlpPolicy", Probe, n_workers=0, n_envs_per_worker=n_envs, seed=0).learn(70 * n_envs)
    inside = [part for part in seen if (part[:-1] == 0).any()]
    assert bool(inside) == (n_envs > 1)
    assert max(map(len, seen)) == 5 and sum(map(len, seen)) == 70
    assert (np.concatenate(seen) == 0).sum(axis=0).tolist() == [10] * n_envs


def test_live_and_snapshot() -> None:
    assert QUpdate().live and SarsaUpdate().live and not NStepQUpdate().live


def test_one_step_acts_on_what_others_write_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker's update in the middle of a rollout changes the next action of one-step Q, not of n-step Q."""
    from sb3_async.worker import ActorLearner

    def run(cls: type[AsyncQ]) -> list[int]:
        actions: list[int] = []
        learner: list[ActorLearner] = []

        class Recorder(ConstantReward):
            def step(self, action: Any) -> Any:
                actions.append(int(action))
                bias = learner[0].shared.detach()[-2:]
                bias.copy_(torch.tensor([0.0, 9.0]) if len(actions) >= 2 else torch.tensor([9.0, 0.0]))
                return super().step(action)

        original = ActorLearner.__init__

        def init(self: ActorLearner, *args: Any) -> None:
            learner.append(self)
            original(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(ActorLearner, "__init__", init)
            settings = {**TABULAR, "exploration_final_eps": 0.0, "learning_rate": 0.0}
            model = cls(env=Recorder, env_kwargs=dict(end="terminated", length=50), n_workers=0, n_steps=4, **settings)
            with torch.no_grad():
                model.q_net.q_net[0].weight.zero_()
                model.q_net.q_net[0].bias.copy_(torch.tensor([9.0, 0.0]))
            model.learn(4)
        return actions

    assert run(AsyncQ) == [0, 0, 1, 1]
    assert run(AsyncSarsa) == [0, 0, 1, 1], "a' is chosen after the step, on what is there by then"
    assert run(AsyncNStepQ) == [0, 0, 0, 0]


# SB3's face


@pytest.mark.parametrize("cls", ALL)
def test_zip_interchange_with_dqn(cls: type[AsyncQ], tmp_path: Path) -> None:
    model = cls("MlpPolicy", "CartPole-v1", n_workers=1, seed=0).learn(200)
    model.save(tmp_path / "ours")
    # DQN has one final epsilon.
    dqn = DQN.load(tmp_path / "ours", env=gym.make("CartPole-v1"), buffer_size=1_000, exploration_final_eps=0.05)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert (dqn.predict(observations, deterministic=True)[0] == model.predict(observations, deterministic=True)[0]).all()
    dqn.learn(200)
    theirs = DQN("MlpPolicy", "CartPole-v1", buffer_size=1_000, learning_starts=10, seed=0).learn(100)
    theirs.save(tmp_path / "theirs")
    ours = cls.load(tmp_path / "theirs", env="CartPole-v1")
    assert (ours.predict(observations, deterministic=True)[0] == theirs.predict(observations, deterministic=True)[0]).all()
    ours.n_workers = 1
    ours.learn(200)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize(
    ("policy", "space"),
    [
        ("MlpPolicy", spaces.Box(-1, 1, (3,), np.float32)),
        ("CnnPolicy", spaces.Box(0, 255, (1, 36, 36), np.uint8)),
        (
            "MultiInputPolicy",
            spaces.Dict(a=spaces.Box(-1, 1, (3,), np.float32), b=spaces.Box(0, 255, (1, 36, 36), np.uint8)),
        ),
    ],
    ids=["mlp", "cnn", "multi"],
)
def test_all_extras_together_train_save_and_load(cls: type[AsyncQ], policy: str, space: Any, tmp_path: Path) -> None:
    class Any_(gym.Env[Any, Any]):
        observation_space = space
        action_space = spaces.Discrete(3)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.observation_space.seed(seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            done = bool(self.np_random.random() < 0.2)
            return self.observation_space.sample(), float(action), done, not done and bool(self.np_random.random() < 0.2), {}

    settings: dict[str, Any] = dict(double_q=True, pal_alpha=0.9, policy_kwargs=dict(dueling=True))
    model = cls(policy, Any_, n_workers=1, n_envs_per_worker=2, target_update_interval=20, seed=0, **settings)
    before = parameters(model)
    model.learn(60)
    after = parameters(model)
    assert torch.isfinite(after).all() and not torch.equal(before, after)
    observation: Any = space.sample()
    model.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model")
    assert torch.equal(parameters(loaded), after)
    with torch.no_grad():
        tensor, _ = model.policy.obs_to_tensor(observation)
        assert torch.equal(model.q_net(tensor), loaded.q_net(tensor))
    assert loaded.predict(observation, deterministic=True)[0] == model.predict(observation, deterministic=True)[0]


def test_actions_that_are_not_discrete() -> None:
    with pytest.raises(AssertionError, match="only supports"):
        AsyncQ("MlpPolicy", "Pendulum-v1")


@pytest.mark.parametrize("cls", ALL)
def test_discrete_actions_must_start_at_zero(cls: type[AsyncQ]) -> None:
    class Shifted(ConstantReward):
        def __init__(self) -> None:
            super().__init__("terminated", 3)
            self.action_space = spaces.Discrete(2, start=1)

    with pytest.raises(ValueError, match=r"starts at 1.*TransformAction"):
        cls("MlpPolicy", Shifted)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        (dict(n_steps=0), "n_steps"),
        (dict(target_update_interval=0), "target_update_interval"),
        (dict(tau=0.0), "tau"),
        (dict(tau=1.5), "tau"),
        (dict(exploration_fraction=-0.1), "exploration_fraction"),
        (dict(exploration_initial_eps=2.0), "exploration_initial_eps"),
        (dict(exploration_final_eps=1.2), "exploration_final_eps"),
        (dict(exploration_final_eps=(0.1, 0.2)), "exploration_final_probs"),
        (dict(exploration_final_eps=(0.1, 0.2), exploration_final_probs=(0.5, 0.6)), "sum to 1"),
        (dict(pal_alpha=1.0), "pal_alpha"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AsyncQ("MlpPolicy", "CartPole-v1", **kwargs)


def test_dueling_needs_a_policy_that_has_it() -> None:
    class Mine(DQNPolicy):
        pass

    with pytest.raises(ValueError, match="dueling=True"):
        AsyncQ(Mine, "CartPole-v1", policy_kwargs=dict(dueling=True))
