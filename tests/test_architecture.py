"""The structure that the code keeps: imports point downwards, files and functions stay small, names are complete."""

import ast
from pathlib import Path

import pytest

import sb3_async

PACKAGE = Path(sb3_async.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))

# From the bottom up. A module may import those of lower layers and of its own package, but no sibling algorithm.
LAYERS = [
    {"version", "errors", "returns", "losses", "exploration", "optim", "policies"},
    {"runtime"},
    {"envs"},
    {"worker"},
    {"q_updates"},
    {"preload", "training", "checks"},
    {"clock"},
    {"base"},
    {"a3c", "async_q"},
    {"__init__"},
    {"demo"},
]


def layer_of(name: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if name in names)


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path, also_for_types: bool = False) -> set[str]:
    """Modules imported when ``path`` is, by dotted name."""
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not also_for_types:
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(str(node.module))
    return names


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_downwards(path: Path) -> None:
    own = part_of(path)
    for name in imports(path):
        if not name.startswith("sb3_async"):
            continue
        other = name.split(".")[1] if "." in name else "__init__"
        assert other == own or layer_of(other) < layer_of(own), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p) in (LAYERS[0] | LAYERS[1]) - {"policies"}], ids=str)
def test_the_lower_layers_know_neither_sb3_nor_gymnasium(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"stable_baselines3", "sb3_contrib", "gymnasium", "ale_py"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # The long signature of a constructor that takes SB3's arguments is no logic.
            start = node.body[0].lineno if node.name == "__init__" else node.lineno
            assert (node.end_lineno or 0) - start < 60, f"{node.name} is too long"


def test_public_names() -> None:
    assert sb3_async.__all__ == sorted(sb3_async.__all__)
    for name in sb3_async.__all__:
        assert name == "__version__" or (getattr(sb3_async, name).__doc__ or "").strip(), f"{name} has no docstring"
