"""Groups of worker processes with toy workers: no reinforcement learning."""

import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from sb3_async.errors import RemoteTraceback, WorkerDied, WorkerError
from sb3_async.runtime import Credits, Field, InlineGroup, SharedBlock, Slots, WorkerGroup
from tests.conftest import workers
from tests.toys import NeedsTwo, Toy

METHODS = ["fork", "forkserver", "spawn"]
REPOSITORY = Path(__file__).parents[1]


class Run:
    """Counts to ``budget`` with ``n`` toy workers."""

    def __init__(
        self, budget: int, n: int = 4, method: str = "fork", toy: Callable[[int, int], Toy] | None = None, **options: object
    ) -> None:
        block = SharedBlock({"parameters": Field((n,), np.dtype("i8")), **Slots.fields(n, 1, 1)})
        self.parameters = block.array("parameters")
        make = toy or (lambda worker, generation: Toy())
        self.group = WorkerGroup(make, n, block, method, on_restart=lambda w: self.credits.reclaim(w), **options)  # type: ignore[arg-type]
        self.credits = Credits(self.group.slots, budget, 5, 1)
        self.budget = budget
        self.messages: list[tuple[int, tuple[str, int, int, list[float]]]] = []

    def __call__(self) -> "Run":
        deadline = time.monotonic() + 60
        try:
            self.group.start()
            done = 0
            while done < self.budget:
                assert time.monotonic() < deadline, "the workers hang"
                self.credits.deal(done + 100, lambda worker, before, after: np.array([after], np.float64))
                done, messages = self.group.poll(0.02)
                self.messages += messages
        finally:
            self.group.stop()
        return self


@pytest.mark.parametrize("method", METHODS)
def test_all_updates_of_all_workers_arrive(method: str) -> None:
    run = Run(1003, method=method)()
    assert run.parameters.sum() == 1003
    assert (run.parameters > 0).all(), "every worker has its share"
    assert (run.group.slots.done == run.parameters).all()
    assert sum(message[2] for _, message in run.messages) == 1003, "every message arrived"
    assert run.group.slots.stats.sum() == run.group.slots.updates.sum() == len(run.messages)


def test_values_come_with_their_grant() -> None:
    run = Run(200, n=1)()
    assert [message[3] for _, message in run.messages] == [[float(t)] for t in range(5, 201, 5)]


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_comes_out_as_itself(method: str) -> None:
    run = Run(10**9, method=method, toy=lambda worker, generation: Toy("raise", who=2), max_restarts=3)
    with pytest.raises(ValueError, match="sensor offline") as caught:
        run()
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback) and cause.worker == 2
    assert "misbehave" in str(cause) and "in worker 2" in str(cause)
    assert run.group.restarts == 0


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("raise odd", WorkerError, "1 and 2"),
        ("raise unpicklable", WorkerError, "holds a lock"),
        ("sys.exit", WorkerError, "SystemExit"),
    ],
)
def test_an_exception_that_cannot_be_sent_keeps_its_text(what: str, kind: type[Exception], text: str) -> None:
    assert not issubclass(NeedsTwo, WorkerError)
    with pytest.raises(kind, match=text) as caught:
        Run(10**9, toy=lambda worker, generation: Toy(what, who=1))()
    assert "worker 1" in str(caught.value) and "misbehave" in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_cannot_start_says_why(method: str) -> None:
    with pytest.raises(ValueError, match="cannot start"):
        Run(10**9, method=method, toy=lambda worker, generation: Toy("start", who=1))()


@pytest.mark.parametrize("what", ["kill", "segv", "os._exit"])
@pytest.mark.parametrize("method", METHODS)
def test_a_dead_worker_is_replaced_and_the_total_is_exact(method: str, what: str) -> None:
    with pytest.warns(RuntimeWarning, match="worker 0 .* died by .* is replaced"):
        run = Run(2000, method=method, toy=lambda worker, generation: Toy(what, generation=generation), max_restarts=1)()
    assert run.group.restarts == 1
    assert run.group.slots.done.sum() == 2000


def test_more_deaths_than_allowed_are_an_error() -> None:
    with pytest.raises(WorkerDied, match=r"worker 0 \(pid \d+\) died by signal SIGKILL.*max_worker_restarts=0"):
        Run(10**9, toy=lambda worker, generation: Toy("kill"))()


def test_a_silent_worker_is_replaced() -> None:
    with pytest.warns(RuntimeWarning, match="worker 0 .* was silent for"):
        run = Run(500, n=2, toy=lambda worker, generation: Toy("hang", generation=generation), max_restarts=1, timeout=1.5)()
    assert run.group.slots.done.sum() == 500


def test_stop_kills_a_worker_that_will_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_async.runtime.supervisor.GRACE_STOP", 0.5)
    run = Run(10**9, n=2, toy=lambda worker, generation: Toy("hang"))
    run.group.start()
    run.credits.deal(100, lambda worker, before, after: np.zeros(1))
    while run.group.slots.done[0] < 20:
        run.group.poll(0.01)
    start = time.monotonic()
    run.group.stop()
    assert time.monotonic() - start < 10
    assert not workers()


@pytest.mark.parametrize("method", METHODS)
def test_workers_use_one_thread_and_main_keeps_its_own(method: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.randn(600, 600) @ torch.randn(600, 600)  # starts the thread pool that a forked child must not touch
        run = Run(50, n=2, method=method, toy=lambda worker, generation: Matmul())()  # type: ignore[arg-type,return-value]
        assert torch.get_num_threads() == 3
        assert {message[1] for _, message in run.messages} == {1}
    finally:
        torch.set_num_threads(threads)


class Matmul:
    def __call__(self, link: object, block: object) -> "Matmul":
        self.link = link
        return self

    def iterate(self, grant: object) -> None:
        torch.randn(600, 600) @ torch.randn(600, 600)
        self.link.send(("threads", torch.get_num_threads(), 0, []))  # type: ignore[attr-defined]
        self.link.report_steps(grant.steps)  # type: ignore[attr-defined]

    def close(self) -> None:
        pass


def test_inline_group_takes_the_same_steps() -> None:
    block = SharedBlock({"parameters": Field((1,), np.dtype("i8")), **Slots.fields(1, 1, 1)}, shared=False)
    group = InlineGroup(lambda worker, generation: Toy(), block)
    group.start()
    credit = Credits(group.slots, 103, 5, 1)
    done = 0
    while done < 103:
        credit.deal(done + 20, lambda worker, before, after: np.array([after], np.float64))
        done, messages = group.poll(0)
        assert messages
    group.stop()
    assert block.array("parameters")[0] == 103


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "raise SystemExit(3)"])
def test_no_worker_outlives_main(method: str, end: str, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, sys
            import numpy as np
            from tests.test_runtime import Run
            run = Run(10**9, n=3, method={method!r})
            run.group.start()
            run.credits.deal(1000, lambda worker, before, after: np.zeros(1))
            while (run.group.slots.done == 0).any():
                run.group.poll(0.01)
            print(*[process.pid for process in run.group._processes], flush=True)
            {end}
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    if end.startswith("raise"):  # multiprocessing would wait for its children: the caller of start() must call stop()
        script.write_text(script.read_text().replace(end, "run.group.stop(); " + end))
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, env=environment).stdout
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 3
    deadline = time.monotonic() + 5
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_from_another_thread() -> None:
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(Run(300)()))
    thread.start()
    thread.join(30)
    assert runs and runs[0].parameters.sum() == 300


def test_nothing_is_warned_about() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run(100)()
