"""Optimisers whose statistics live in shared memory.

Every worker holds an ordinary ``torch.optim`` optimiser over one flat parameter, the shared vector. Its state tensors
are views of shared memory too, so all workers step the same vector with the same statistics, in place and without a
lock. That is right only for element-wise optimisers: each element's step depends on that element alone.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

OptimizerClass = type[torch.optim.Optimizer]


class SharedRMSProp(torch.optim.Optimizer):
    """RMSProp as Mnih et al. 2016 use it (equations 8 and 9), epsilon inside the square root.

    ``g ← α g + (1 - α) Δθ²``, ``θ ← θ - η Δθ / sqrt(g + ε)``.
    It keeps no mean of the gradient, so ``g`` cannot turn negative (nor the step NaN) however workers race on it.

    :param params: parameters, or parameter groups
    :param lr: η
    :param alpha: decay of the average of squared gradients
    :param eps: ε
    :param initial_square_avg: what ``g`` starts at: 1 as in TensorFlow and SB3's ``RMSpropTFLike``, 0 as in the paper
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 7e-4,
        alpha: float = 0.99,
        eps: float = 1e-5,
        initial_square_avg: float = 1.0,
    ) -> None:
        if not (lr >= 0 and 0 <= alpha < 1 and eps > 0 and initial_square_avg >= 0):
            raise ValueError(
                "SharedRMSProp needs lr >= 0, 0 <= alpha < 1, eps > 0 and initial_square_avg >= 0, "
                f"got lr={lr}, alpha={alpha}, eps={eps}, initial_square_avg={initial_square_avg}"
            )
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, initial_square_avg=initial_square_avg))
        self._scratch: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step; ``closure``, where given, is called for the loss first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["square_avg"] = torch.full_like(p, group["initial_square_avg"])
                g = state["square_avg"]
                g.mul_(group["alpha"]).addcmul_(p.grad, p.grad, value=1 - group["alpha"])
                # A temporary of this process, as other workers write g meanwhile, and kept, as a new one costs page faults.
                root = self._root(p)
                torch.add(g, group["eps"], out=root).sqrt_()
                p.addcdiv_(p.grad, root, value=-group["lr"])
        return loss

    def _root(self, p: Tensor) -> Tensor:
        if p not in self._scratch:
            self._scratch[p] = torch.empty_like(p)
        return self._scratch[p]


class _FirstValues(dict[str, Any]):
    """The state of one parameter, which also keeps a copy of the first value of each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Tensor] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.first:
            self.first[key] = torch.as_tensor(value, dtype=None if torch.is_tensor(value) else torch.float32).clone()
        super().__setitem__(key, value)


def initial_state(optimizer_class: OptimizerClass, options: Mapping[str, Any], size: int) -> dict[str, Tensor]:
    """The state that a fresh ``optimizer_class`` gives one flat parameter, before its first step.

    torch's optimisers create their state lazily, in the first step. A worker that did so would have statistics of its
    own, so the state is read off a rehearsal on a scratch parameter.

    :param optimizer_class: the optimiser
    :param options: its keyword arguments
    :param size: number of elements of the flat parameter
    :return: tensors of shape (size,) or (), by name
    """
    scratch = torch.nn.Parameter(torch.zeros(size))
    optimizer = optimizer_class([scratch], **options)
    state = _FirstValues()
    for key, value in optimizer.state[scratch].items():
        state[key] = value
    optimizer.state[scratch] = state
    scratch.grad = torch.zeros(size)
    optimizer.step()
    return {key: value.detach() for key, value in state.first.items()}


def attach(
    optimizer_class: OptimizerClass, options: Mapping[str, Any], parameter: torch.nn.Parameter, state: Mapping[str, Tensor]
) -> torch.optim.Optimizer:
    """An optimiser that steps ``parameter`` in place with ``state``, whatever memory these lie in.

    :param optimizer_class: the optimiser
    :param options: its keyword arguments
    :param parameter: flat, (size,)
    :param state: as given by :func:`initial_state`, used and not copied
    """
    optimizer = optimizer_class([parameter], **options)
    optimizer.state[parameter] = dict(state)
    return optimizer


def check_element_wise(optimizer_class: OptimizerClass, options: Mapping[str, Any]) -> None:
    """Refuse an optimiser that cannot run on one flat vector in shared memory.

    It is stepped on a vector and on the two halves of the same vector, which must agree.

    :param optimizer_class: the optimiser
    :param options: its keyword arguments
    :raises ValueError: naming the optimiser and what to use
    """
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, generator=generator)
    gradients = [torch.randn(6, generator=generator) * 10.0**k for k in range(3)]
    reason = "its step on one element depends on other elements"
    try:
        agree = torch.equal(
            _rehearse(optimizer_class, options, start, gradients),
            torch.cat(
                [_rehearse(optimizer_class, options, start[h], [g[h] for g in gradients]) for h in (slice(3), slice(3, 6))]
            ),
        )
    except (RuntimeError, TypeError, ValueError) as error:
        agree, reason = False, f"it cannot step a flat vector ({error})"
    if not agree:
        raise ValueError(
            f"{optimizer_class.__name__} with {dict(options)} cannot be shared by the workers: {reason}. "
            "Use an element-wise optimizer in policy_kwargs, such as sb3_async.optim.SharedRMSProp or torch.optim.Adam."
        )


def _rehearse(optimizer_class: OptimizerClass, options: Mapping[str, Any], start: Tensor, gradients: list[Tensor]) -> Tensor:
    parameter = torch.nn.Parameter(start.clone())
    optimizer = attach(optimizer_class, options, parameter, initial_state(optimizer_class, options, len(start)))
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def clip_grad_norm(gradient: Tensor, max_norm: float) -> float:
    """Scale a flat gradient in place so that its L2 norm is at most ``max_norm``; a non-finite one is left alone.

    The factor is torch's: ``min(1, max_norm / (norm + 1e-6))``.

    :param gradient: (size,)
    :param max_norm: largest norm allowed
    :return: the norm before, NaN or infinite where the gradient holds such an element
    """
    norm = float(gradient.norm())
    factor = max_norm / (norm + 1e-6)
    if factor < 1:  # False for NaN
        gradient.mul_(factor)
    return norm
