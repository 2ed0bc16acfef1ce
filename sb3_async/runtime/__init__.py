"""Processes and shared memory. Nothing in here knows of reinforcement learning or of Stable-Baselines3.

A *worker* is any object with ``iterate(grant)`` and ``close()``, made by a function of ``(link, block)``.
:class:`WorkerGroup` runs one in each of several processes, :class:`InlineGroup` a single one in this process.
"""

from sb3_async.runtime.credits import Credits, Crossings
from sb3_async.runtime.link import Grant, WorkerLink
from sb3_async.runtime.memory import Field, FlatLayout, SharedBlock, Slots
from sb3_async.runtime.supervisor import InlineGroup, WorkerGroup

__all__ = [
    "Credits",
    "Crossings",
    "Field",
    "FlatLayout",
    "Grant",
    "InlineGroup",
    "SharedBlock",
    "Slots",
    "WorkerGroup",
    "WorkerLink",
]
