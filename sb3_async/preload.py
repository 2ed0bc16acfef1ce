"""Imported once by the fork server, so that the workers forked from it need not import and have the memory in common.

The first policy and optimiser of a process import hundreds of modules; one is made here, and no forward pass.
"""

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy

import sb3_async.worker  # noqa: F401

torch.set_num_threads(1)
ActorCriticPolicy(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2), lambda _: 0.0, net_arch=[])
