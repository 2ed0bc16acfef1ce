import shutil
from collections import namedtuple

import numpy as np
import pytest
import torch

from sb3_async.errors import SharedMemoryError
from sb3_async.runtime import Credits, Field, FlatLayout, SharedBlock, Slots
from sb3_async.runtime.memory import CACHE_LINE, RING


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(27, 4))


def test_block_holds_what_is_asked_for() -> None:
    block = SharedBlock({"a": Field((3, 2), np.dtype("f4")), "b": Field((), np.dtype("i8")), "c": Field((5,), np.dtype("u1"))})
    block.array("a")[:] = 1
    block.tensor("b").fill_(-7)
    block.array("c")[:] = 255
    assert block.array("a").sum() == 6 and int(block.array("b")) == -7 and block.array("c").tolist() == [255] * 5
    assert block.nbytes == 3 * CACHE_LINE


def test_too_little_shared_memory_is_an_error_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: namedtuple("usage", "total used free")(64_000_000, 63_000_000, 1_000_000)
    )
    fields = {"parameters": Field((1_000_000,), np.dtype("f4"))}
    with pytest.raises(SharedMemoryError, match=r"need 4.0 MB, but /dev/shm has 1.0 MB free.*--shm-size"):
        SharedBlock(fields)
    SharedBlock(fields, shared=False)


def test_layout_round_trip() -> None:
    module, other = network(), network()
    parameters = list(module.parameters())
    layout = FlatLayout(parameters)
    flat = torch.zeros(layout.size)
    layout.gather(parameters, flat)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    layout.scatter(flat, list(other.parameters()))
    for a, b in zip(parameters, other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_bound_network_computes_the_same_and_fills_one_gradient() -> None:
    module, bound = network(), network()
    layout = FlatLayout(list(bound.parameters()))
    flat, gradient = layout.bind(list(bound.parameters()))
    x = torch.randn(5, 2, 5, 5)
    torch.testing.assert_close(bound(x), module(x))
    for factor in (1.0, 2.0):  # a second pass must not add to the first
        module.zero_grad()
        gradient.zero_()
        (factor * module(x)).square().sum().backward()
        (factor * bound(x)).square().sum().backward()
        for view, p in zip(layout.views(gradient), module.parameters(), strict=True):
            torch.testing.assert_close(view, p.grad)
    flat.zero_()
    assert float(bound(x).detach().abs().sum()) == 0


def test_layout_refuses_mixed_dtypes() -> None:
    with pytest.raises(ValueError, match="one dtype"):
        FlatLayout([torch.zeros(1), torch.zeros(1, dtype=torch.float64)])


def slots_of(n: int) -> Slots:
    return Slots(SharedBlock(Slots.fields(n, 1, 1), shared=False))


def test_rows_of_different_writers_share_no_cache_line() -> None:
    slots = slots_of(3)
    for rows in (slots.main, slots.worker):
        assert rows.dtype.itemsize % CACHE_LINE == 0


@pytest.mark.parametrize(
    ("budget", "rollout", "unit", "n"), [(1, 5, 1, 8), (1003, 5, 1, 4), (1000, 40, 8, 3), (8, 40, 8, 3), (0, 5, 1, 2)]
)
def test_credits_deal_exactly_the_budget(budget: int, rollout: int, unit: int, n: int) -> None:
    slots = slots_of(n)
    credit = Credits(slots, budget, rollout, unit)
    rng = np.random.default_rng(0)
    values: list[int] = []

    def values_for(worker: int, before: int, after: int) -> np.ndarray:
        assert before == sum(values[-1:])
        values.append(after)
        return np.array([after], np.float64)

    for clock in range(10 * budget + 10):
        credit.deal(min(int(slots.done.sum()) + 3 * rollout, clock + rollout), values_for)
        assert (slots.granted % unit == 0).all()
        busy = rng.integers(n)
        slots.done[busy] = slots.granted[busy]
        if slots.done.sum() == budget:
            break
    assert slots.done.sum() == budget == credit.granted
    assert values == sorted(values) and (not values or values[-1] == budget)


def test_credits_respect_the_limit_but_never_starve() -> None:
    slots = slots_of(2)
    credit = Credits(slots, 100, 10, 1)
    credit.deal(25, lambda worker, before, after: np.zeros(1))
    assert credit.granted == 30  # whole rollouts
    credit.deal(25, lambda worker, before, after: np.zeros(1))
    assert credit.granted == 30
    slots.done[:] = slots.granted
    credit.deal(0, lambda worker, before, after: np.zeros(1))
    assert credit.outstanding == 10


def test_credits_fit_the_ring() -> None:
    slots = slots_of(1)
    Credits(slots, 10_000, 1, 1).deal(10_000, lambda worker, before, after: np.zeros(1))
    assert slots.grants[0] < RING


def test_what_a_dead_worker_left_is_dealt_again() -> None:
    slots = slots_of(2)
    credit = Credits(slots, 40, 10, 1)
    credit.deal(40, lambda worker, before, after: np.zeros(1))
    slots.done[0] = 10
    credit.reclaim(0)
    assert credit.granted == 30
    credit.deal(40, lambda worker, before, after: np.zeros(1))
    assert credit.granted == 40
