"""Every test leaves no process, open file or shared memory behind."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stable_baselines3.common.logger import Logger, configure

# Both belong to multiprocessing and serve the whole life of the main process.
HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def workers() -> list[psutil.Process]:
    """Descendants of this process, without multiprocessing's own helpers and zombies."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            helper = any(name in command for name in HELPERS) and process.ppid() == os.getpid()
            if not helper and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


def shared_names() -> set[str]:
    return set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()


def open_files() -> set[str]:
    return {file.path for file in psutil.Process().open_files()}


@pytest.fixture
def csv_logger(tmp_path: Path) -> Iterator[Logger]:
    """Writes ``tmp_path / "progress.csv"``; SB3's loggers keep their file open until someone closes them."""
    logger = configure(str(tmp_path), ["csv"])
    yield logger
    logger.close()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    names, files = shared_names(), open_files()
    yield
    deadline = time.monotonic() + 10
    while (left := workers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, f"processes left behind: {left}"
    assert shared_names() <= names
    assert open_files() <= files, "a file was left open"
