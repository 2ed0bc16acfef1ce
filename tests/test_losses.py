import pytest
import torch
from torch.distributions import Categorical

from sb3_async.losses import a3c_loss


def loss_of(
    logits: torch.Tensor, value: torch.Tensor, action: int, target: float, ent_coef: float, vf_coef: float
) -> torch.Tensor:
    """The loss of one sample, the advantage being target - value without a gradient."""
    distribution = Categorical(logits=logits)
    advantage = torch.tensor([target]) - value.detach()
    log_prob = distribution.log_prob(torch.tensor(action))[None]
    return a3c_loss(log_prob, distribution.entropy()[None], value, advantage, torch.tensor([target]), ent_coef, vf_coef).total


@pytest.mark.parametrize(("vf_coef", "value_gradient"), [(0.25, -0.375), (0.5, -0.75)])
def test_pinned_gradients(vf_coef: float, value_gradient: float) -> None:
    """Logits [0, 1], action 0, R = 1, V = 0.25, beta = 0.01; 0.25 is the paper's authors' factor."""
    logits, value = torch.tensor([0.0, 1.0], requires_grad=True), torch.tensor([0.25], requires_grad=True)
    loss_of(logits, value, 0, 1.0, 0.01, vf_coef).backward()
    assert logits.grad is not None and value.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([-0.5502600533, 0.5502600533]))
    torch.testing.assert_close(value.grad, torch.tensor([value_gradient]))


def test_gradient_identity() -> None:
    """dL/dz_k = -A (1[k = a] - p_k) + beta p_k (log p_k + H)."""
    logits = torch.tensor([0.3, -1.0, 0.7], dtype=torch.float64, requires_grad=True)
    value = torch.tensor([0.4], dtype=torch.float64)
    loss_of(logits, value, 2, 1.5, 0.02, 0.5).backward()
    p = torch.softmax(logits.detach(), 0)
    entropy = -(p * p.log()).sum()
    expected = -(1.5 - 0.4) * (torch.tensor([0.0, 0.0, 1.0]) - p) + 0.02 * p * (p.log() + entropy)
    torch.testing.assert_close(logits.grad, expected, rtol=1e-6, atol=1e-6)


def test_policy_loss_gives_the_value_no_gradient() -> None:
    logits, value = torch.tensor([0.0, 1.0], requires_grad=True), torch.tensor([0.25], requires_grad=True)
    loss_of(logits, value, 0, 1.0, 0.01, 0.0).backward()
    assert value.grad is not None and float(value.grad) == 0.0


def test_certain_policy_stays_finite() -> None:
    logits, value = torch.tensor([0.0, 1000.0], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    loss = loss_of(logits, value, 0, 1.0, 0.01, 0.5)
    loss.backward()
    assert torch.isfinite(loss) and logits.grad is not None and torch.isfinite(logits.grad).all()


def test_loss_of_a_rollout_is_the_mean_of_its_steps() -> None:
    torch.manual_seed(0)
    terms = torch.randn(5, 5)
    log_probs, entropy, values, advantages, returns = terms
    whole = a3c_loss(log_probs, entropy, values, advantages, returns, 0.01, 0.5)
    steps = [a3c_loss(*(row[i : i + 1] for row in terms), 0.01, 0.5).total for i in range(5)]
    torch.testing.assert_close(whole.total, torch.stack(steps).mean())


def test_without_a_closed_form_the_log_probability_stands_in_for_the_entropy() -> None:
    log_probs = torch.tensor([-1.0, -3.0])
    zeros = torch.zeros(2)
    assert float(a3c_loss(log_probs, None, zeros, zeros, zeros, 1.0, 0.5).entropy) == -2.0
