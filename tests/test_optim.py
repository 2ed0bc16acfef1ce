import math
from typing import Any

import pytest
import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from sb3_async.optim import SharedRMSProp, attach, check_element_wise, clip_grad_norm, initial_state

ELEMENT_WISE: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (SharedRMSProp, {}),
    (SharedRMSProp, dict(initial_square_avg=0.0, eps=0.1)),
    (RMSpropTFLike, {}),
    (torch.optim.SGD, dict(momentum=0.9)),
    (torch.optim.Adam, dict(eps=1e-3)),
    (torch.optim.Adam, dict(amsgrad=True)),
    (torch.optim.AdamW, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Adagrad, dict(initial_accumulator_value=0.1)),
    (torch.optim.RMSprop, dict(centered=True, momentum=0.5)),
    (torch.optim.Rprop, {}),
    (torch.optim.ASGD, {}),
]


@pytest.mark.parametrize(
    ("start", "expected"),
    [(0.0, [-0.0021105794, 0.0015054106]), (1.0, [-0.00066742382, 0.00064958540])],
)
def test_pinned_rmsprop(start: float, expected: list[float]) -> None:
    """alpha 0.99, epsilon 0.1 inside the root, lr 7e-4, gradients 1 then -2."""
    theta = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = SharedRMSProp([theta], lr=7e-4, alpha=0.99, eps=0.1, initial_square_avg=start)
    for gradient, value in zip([1.0, -2.0], expected, strict=True):
        theta.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        assert float(theta.detach()) == pytest.approx(value, rel=1e-7)
    if start == 0.0:
        assert float(optimizer.state[theta]["square_avg"]) == pytest.approx(0.0499)


def test_default_equals_rmsprop_tf_like() -> None:
    a, b = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    ours, sb3 = SharedRMSProp([a], lr=1e-2), RMSpropTFLike([b], lr=1e-2, eps=1e-5)
    for gradient in torch.randn(5, 3, generator=torch.Generator().manual_seed(0)):
        a.grad, b.grad = gradient.clone(), gradient.clone()
        ours.step()
        sb3.step()
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("bad", [dict(alpha=1.0), dict(eps=0.0), dict(lr=-1.0), dict(initial_square_avg=-1.0)])
def test_rmsprop_refuses_bad_arguments(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SharedRMSProp([torch.nn.Parameter(torch.zeros(1))], **bad)


@pytest.mark.parametrize(("cls", "options"), ELEMENT_WISE)
def test_flat_and_attached_equals_the_plain_optimizer(cls: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    check_element_wise(cls, {**options, "lr": 1e-2})
    generator = torch.Generator().manual_seed(0)
    parts = [torch.nn.Parameter(torch.randn(n, generator=generator)) for n in (2, 3)]
    flat = torch.nn.Parameter(torch.cat([p.detach() for p in parts]))
    plain = cls(parts, lr=1e-2, **options)  # type: ignore[call-arg]
    shared = attach(cls, {**options, "lr": 1e-2}, flat, initial_state(cls, {**options, "lr": 1e-2}, 5))
    for _ in range(4):
        gradient = torch.randn(5, generator=generator)
        parts[0].grad, parts[1].grad, flat.grad = gradient[:2].clone(), gradient[2:].clone(), gradient.clone()
        plain.step()
        shared.step()
    torch.testing.assert_close(flat.detach(), torch.cat([p.detach() for p in parts]))


def test_two_attached_optimizers_share_one_state() -> None:
    flat = torch.nn.Parameter(torch.zeros(3))
    state = initial_state(torch.optim.Adam, dict(lr=1e-2), 3)
    flat.grad = torch.ones(3)
    for optimizer in [attach(torch.optim.Adam, dict(lr=1e-2), flat, state) for _ in range(2)]:
        optimizer.step()
    assert float(state["step"]) == 2
    assert (state["exp_avg"] > 0.1).all()


class LayerNormalised(torch.optim.SGD):
    """Scales its gradient to length one: the step on an element depends on the others."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad /= p.grad.norm() + 1e-9
        return super().step(closure)


@pytest.mark.parametrize("cls", [torch.optim.LBFGS, LayerNormalised, torch.optim.SparseAdam, torch.optim.Adafactor])
def test_refuses_what_is_not_element_wise_by_name(cls: type[torch.optim.Optimizer]) -> None:
    with pytest.raises(ValueError, match=f"{cls.__name__}.*element-wise"):
        check_element_wise(cls, dict(lr=1e-2))


def test_clip_grad_norm_is_global_and_torchs() -> None:
    gradient = torch.tensor([3.0, 4.0])
    assert clip_grad_norm(gradient, 0.5) == pytest.approx(5.0)
    torch.testing.assert_close(gradient, torch.tensor([3.0, 4.0]) * 0.5 / (5.0 + 1e-6))
    assert clip_grad_norm(gradient, math.inf) == pytest.approx(0.5)
    torch.testing.assert_close(gradient.norm(), torch.tensor(0.5))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clip_grad_norm_reports_what_is_not_finite(bad: float) -> None:
    assert not math.isfinite(clip_grad_norm(torch.tensor([1.0, bad]), 0.5))
