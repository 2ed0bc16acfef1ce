"""Bad input, refused in the main process before any worker starts."""

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN

from sb3_async.exploration import check_final_eps

SMALLEST_IMAGE = 36  # what the three convolutions of NatureCNN leave one pixel of


def check_arguments(
    n_workers: int | None,
    n_envs_per_worker: int,
    start_method: str | None,
    max_worker_restarts: int,
    worker_timeout: float | None,
    max_lead: int | None,
) -> None:
    """Refuse what cannot work.

    :raises ValueError: naming the argument
    """
    if n_workers is not None and n_workers < 0:
        raise ValueError(f"n_workers must be at least 0 (0 runs everything in this process), got {n_workers}")
    if n_envs_per_worker < 1:
        raise ValueError(f"n_envs_per_worker must be at least 1, got {n_envs_per_worker}")
    if start_method not in (None, "fork", "forkserver", "spawn"):
        raise ValueError(f"start_method must be 'fork', 'forkserver', 'spawn' or None, got {start_method!r}")
    if max_worker_restarts < 0:
        raise ValueError(f"max_worker_restarts must be at least 0, got {max_worker_restarts}")
    if worker_timeout is not None and worker_timeout <= 0:
        raise ValueError(f"worker_timeout must be positive or None, got {worker_timeout}")
    if max_lead is not None and max_lead < 1:
        raise ValueError(f"max_lead must be at least 1, got {max_lead}")


def check_q_arguments(model: Any) -> None:
    """Refuse what cannot work in a value-based algorithm; ``model`` has its arguments as attributes.

    :raises ValueError: naming the argument
    """
    if model.n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {model.n_steps}")
    if model.target_update_interval < 1:
        raise ValueError(f"target_update_interval must be at least 1 step, got {model.target_update_interval}")
    if not 0 < model.tau <= 1:
        raise ValueError(f"tau must be in (0, 1], got {model.tau}")
    if not 0 <= model.exploration_fraction <= 1:
        raise ValueError(f"exploration_fraction must be in [0, 1], got {model.exploration_fraction}")
    if not 0 <= model.exploration_initial_eps <= 1:
        raise ValueError(f"exploration_initial_eps must be in [0, 1], got {model.exploration_initial_eps}")
    if not 0 <= model.pal_alpha < 1:
        raise ValueError(f"pal_alpha must be in [0, 1), got {model.pal_alpha}")
    check_final_eps(model.exploration_final_eps, model.exploration_final_probs)


def check_action_space(space: spaces.Space[Any]) -> None:
    """Refuse actions that SB3's policies would number wrongly.

    :raises ValueError: for ``Discrete`` actions that do not start at 0
    """
    if isinstance(space, spaces.Discrete) and space.start != 0:
        raise ValueError(
            f"{space} starts at {space.start}, but SB3's policies give actions from 0 on. Wrap the environment, for example "
            f"gymnasium.wrappers.TransformAction(env, lambda a: a + {space.start}, gymnasium.spaces.Discrete({space.n}))."
        )


def explain_small_images(space: spaces.Space[Any], policy_kwargs: dict[str, Any], error: RuntimeError) -> None:
    """Say it plainly where SB3's default CNN failed because a picture is too small for it.

    :raises ValueError: if that is the reason
    """
    if policy_kwargs.get("features_extractor_class", NatureCNN) not in (NatureCNN, CombinedExtractor):
        return
    for part in space.spaces.values() if isinstance(space, spaces.Dict) else [space]:
        if not is_image_space(part, check_channels=False) or part.shape is None:
            continue
        height, width = part.shape[1:] if is_image_space_channels_first(part) else part.shape[:2]  # type: ignore[arg-type]
        if min(height, width) < SMALLEST_IMAGE:
            raise ValueError(
                f"A picture of {height}x{width} is too small for SB3's default CNN, which needs at least "
                f"{SMALLEST_IMAGE}x{SMALLEST_IMAGE}. Resize the observations, use 'MlpPolicy', or pass a smaller network as "
                "policy_kwargs=dict(features_extractor_class=...)."
            ) from error
