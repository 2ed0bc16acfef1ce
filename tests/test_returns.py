import numpy as np
import pytest

from sb3_async.returns import gae, n_step_returns


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)[:, None]


def test_pinned_n_step_returns() -> None:
    rewards, inside = column(1, 0, 1), column(0.99, 0.99, 0.99)
    np.testing.assert_allclose(n_step_returns(rewards, inside, np.array([0.5])), column(2.4652495, 1.48005, 1.495))
    terminal = column(0.99, 0.99, 0.0)
    np.testing.assert_allclose(n_step_returns(rewards, terminal, np.array([0.5])), column(1.9801, 0.99, 1.0))


def test_environments_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    rewards, discounts, values = rng.normal(size=(3, 4, 2))[..., None].transpose(0, 1, 3, 2)[:, :, 0]
    bootstrap = rng.normal(size=2)
    both = gae(rewards, discounts, values, bootstrap, 0.9)
    for i in range(2):
        alone = gae(rewards[:, [i]], discounts[:, [i]], values[:, [i]], bootstrap[[i]], 0.9)
        for whole, part in zip(both, alone, strict=True):
            np.testing.assert_array_equal(whole[:, [i]], part)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
def test_gae_equals_the_sum_it_is_defined_by(gae_lambda: float) -> None:
    rng = np.random.default_rng(1)
    length = 7
    rewards, values = rng.normal(size=(2, length))
    discounts = np.where(rng.random(length) < 0.3, 0.0, 0.9)
    bootstrap = rng.normal()
    following = np.append(values[1:], bootstrap)
    deltas = rewards + discounts * following - values
    expected = [sum(np.prod(discounts[t:k] * gae_lambda) * deltas[k] for k in range(t, length)) for t in range(length)]
    advantages, returns = gae(rewards[:, None], discounts[:, None], values[:, None], np.array([bootstrap]), gae_lambda)
    np.testing.assert_allclose(advantages[:, 0], expected)
    np.testing.assert_allclose(returns[:, 0], expected + values)


def test_gae_with_lambda_one_is_the_n_step_return() -> None:
    rng = np.random.default_rng(2)
    rewards, values = rng.normal(size=(2, 6, 3))
    discounts = np.where(rng.random((6, 3)) < 0.3, 0.0, 0.99)
    bootstrap = rng.normal(size=3)
    _, returns = gae(rewards, discounts, values, bootstrap, 1.0)
    np.testing.assert_allclose(returns, n_step_returns(rewards, discounts, bootstrap))


def test_truncation_is_a_reward_and_an_end() -> None:
    # Reward 1, truncated at once, final observation worth 7: 1 + 0.99 * 7, whatever comes after.
    returns = n_step_returns(column(1 + 0.99 * 7, 0), column(0, 0.99), np.array([100.0]))
    assert returns[0, 0] == pytest.approx(7.93)
