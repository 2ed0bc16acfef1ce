"""Networks beside SB3's own, for ``policy_kwargs=dict(features_extractor_class=...)``."""

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn


class SmallCNN(BaseFeaturesExtractor):
    """A network for small pictures such as those of ``Catch-v0``, for which SB3's default CNN is too large.

    Two convolutions of 32 channels, 5x5 with stride 2, and a linear layer: what Kaixhin/Atari plays Catch with.

    :param observation_space: pictures (channels, height, width) of at least 5x5
    :param features_dim: outputs of the linear layer
    """

    def __init__(self, observation_space: gym.spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        convolutions = nn.Sequential(
            nn.Conv2d(observation_space.shape[0], 32, 5, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            size = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
        self.network = nn.Sequential(convolutions, nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        """Features (N, features_dim) of pictures (N, channels, height, width)."""
        features: Tensor = self.network(observations)
        return features
