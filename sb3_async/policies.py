"""Networks beside SB3's own: for small pictures, and dueling heads for action values."""

from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, create_mlp
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy, MultiInputPolicy, QNetwork
from torch import Tensor, nn


class SmallCNN(BaseFeaturesExtractor):
    """A network for small pictures such as those of ``Catch-v0``, for which SB3's default CNN is too large.

    Two convolutions of 32 channels, 5x5 with stride 2, and a linear layer: what Kaixhin/Atari plays Catch with. Initialised
    orthogonally with gain sqrt(2), which SB3 does itself for actor-critic policies and not for DQN's: with torch's
    smaller default, action values of pictures that are mostly black hardly start to learn.

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
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight, gain=2**0.5)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (N, features_dim) of pictures (N, channels, height, width)."""
        features: Tensor = self.network(observations)
        return features


class DuelingQNetwork(QNetwork):
    """Action values from two heads, ``Q(s, a) = V(s) + A(s, a) - mean A(s, ·)``.

    After Wang et al. 2016, arXiv 1511.06581, equation 9. Each head is a network of ``net_arch`` over the features; SB3's
    ``q_net`` is the one of the advantages.

    :param observation_space: as in SB3's ``QNetwork``, like the other parameters
    """

    def __init__(self, observation_space: gym.spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(observation_space, *args, **kwargs)
        self.value_net = nn.Sequential(*create_mlp(self.features_dim, 1, self.net_arch, self.activation_fn))

    def forward(self, obs: PyTorchObs) -> Tensor:
        """Action values (N, actions) of N observations."""
        features = self.extract_features(obs, self.features_extractor)
        return dueling(self.value_net(features), self.q_net(features))


def dueling(values: Tensor, advantages: Tensor) -> Tensor:
    """``V + A - mean A``, (N, actions), of values (N, 1) and advantages (N, actions)."""
    return values + advantages - advantages.mean(dim=1, keepdim=True)


class _Dueling(DQNPolicy):
    """SB3's policy of DQN, with dueling heads."""

    def make_q_net(self) -> QNetwork:
        kwargs = self._update_features_extractor(self.net_args, features_extractor=None)
        return DuelingQNetwork(**kwargs).to(self.device)


class DuelingMlpPolicy(_Dueling):
    """``MlpPolicy`` of DQN with dueling heads."""


class DuelingCnnPolicy(_Dueling, CnnPolicy):
    """``CnnPolicy`` of DQN with dueling heads."""


class DuelingMultiInputPolicy(_Dueling, MultiInputPolicy):
    """``MultiInputPolicy`` of DQN with dueling heads."""
