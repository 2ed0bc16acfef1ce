"""The demo, and the examples in README and docs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from sb3_async import A3C
from sb3_async.demo import parse

REPOSITORY = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}


def demo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sb3_async.demo", "--workers", "2", *arguments]


def check_results(folder: Path, names: list[str]) -> None:
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["learning_curve.png", *(f"{n}.{e}" for n in names for e in ("gif", "zip"))]
    )
    with Image.open(folder / "learning_curve.png") as picture:
        assert picture.width > 500
    for name in names:
        with Image.open(folder / f"{name}.gif") as picture:
            assert picture.n_frames > 50 and picture.width >= 336  # type: ignore[attr-defined]
        A3C.load(folder / f"{name}.zip")


def test_demo_end_to_end_and_on(tmp_path: Path) -> None:
    command = demo("--steps", "800", "--second-steps", "2000", "--output", str(tmp_path / "out"))
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    assert "Act 1" in run.stdout and "What to expect" in run.stdout and "Act 2" in run.stdout
    assert "ALE/Pong-v5: 800 steps" in run.stdout and "Catch-v0: 2,000 steps" in run.stdout
    check_results(tmp_path / "out", ["Pong-v5", "Catch-v0"])

    (words,) = re.findall(r"Go on training: \S+ -m sb3_async.demo (.*)", run.stdout)
    again = [
        sys.executable,
        "-m",
        "sb3_async.demo",
        *words.replace("1000000", "400").split(),
        "--output",
        str(tmp_path / "more"),
    ]
    run = subprocess.run(again, capture_output=True, text=True, timeout=110, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    check_results(tmp_path / "more", ["Pong-v5"])


def test_ctrl_c_ends_the_demo_early_with_all_results(tmp_path: Path) -> None:
    command = demo("--game", "Catch-v0", "--steps", "100000000", "--output", str(tmp_path / "out"))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stderr is not None
    seen = ""
    while "score" not in seen:
        seen += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "(interrupted)" in out and "Traceback" not in err
    check_results(tmp_path / "out", ["Catch-v0"])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])
    out = capsys.readouterr().out
    for option in ("--game", "--steps", "--workers", "--output"):
        assert option in out


def examples(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)


def test_readme_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = examples(REPOSITORY / "README.md")
    # A run of ten million steps is no test: the same lines, shorter. Evaluation of 10 games of Pong: of one.
    for word, small in [
        ("1e7", "100"),
        ("n_workers=16", "n_workers=2"),
        ("n_eval_episodes=10", "n_eval_episodes=1"),
        (", 4)", ", 1)"),
    ]:
        first, second = first.replace(word, small), second.replace(word, small)
    scope: dict[str, object] = {}
    exec(first, scope)
    exec(second, scope)
    assert (tmp_path / "pong.zip").exists()


@pytest.mark.parametrize("page", ["a3c.md", "async_q.md"])
def test_docs_example(page: str) -> None:
    (example,) = examples(REPOSITORY / "docs" / "algorithms" / page)
    exec(example.replace("10_000", "500"), {})
