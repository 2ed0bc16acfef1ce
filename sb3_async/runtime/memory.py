"""Shared memory: one block for everything, flat parameter vectors, and slots with one writer each.

::

    SharedBlock   named arrays in a single segment (one file descriptor, no name left in /dev/shm)
    FlatLayout    where each parameter of a network lies in one flat vector
    Slots         a row per worker that only the worker writes, and a row per worker that only main writes

Nobody takes a lock. Parameters and optimiser statistics have many writers, whose updates may interleave (Hogwild, Niu
et al. 2011); every other number has exactly one, and is an aligned 8-byte word.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sb3_async.errors import SharedMemoryError

CACHE_LINE = 128  # two lines: neighbouring ones are fetched together
SHM = Path("/dev/shm")


@dataclass(frozen=True)
class Field:
    """Shape and numpy dtype of one array of a block."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class SharedBlock:
    """Named arrays, zero at first, in one segment of memory that worker processes see as well.

    It can be sent to a process that is being started, not through a pipe.

    :param fields: what the block holds
    :param shared: False for private memory (everything runs in one process)
    :raises SharedMemoryError: if the segment does not fit, instead of the SIGBUS that writing it would bring
    """

    def __init__(self, fields: Mapping[str, Field], shared: bool = True) -> None:
        self.fields = dict(fields)
        self._offsets: dict[str, int] = {}
        size = 0
        for name, field in self.fields.items():
            self._offsets[name] = size
            size += -(-field.nbytes // CACHE_LINE) * CACHE_LINE
        self.nbytes = size
        if shared:
            _check_space(size)
        self._bytes = torch.zeros(size, dtype=torch.uint8)
        if shared:
            self._bytes.share_memory_()  # type: ignore[no-untyped-call]

    def array(self, name: str) -> NDArray[Any]:
        """The array ``name``, a view."""
        field, start = self.fields[name], self._offsets[name]
        return self._bytes.numpy()[start : start + field.nbytes].view(field.dtype).reshape(field.shape)

    def tensor(self, name: str) -> Tensor:
        """The same as a torch tensor."""
        return torch.from_numpy(self.array(name))


def _check_space(needed: int) -> None:
    if not SHM.is_dir():
        return
    free = shutil.disk_usage(SHM).free
    if needed > free:
        raise SharedMemoryError(
            f"The parameters and statistics shared by the workers need {needed / 1e6:.1f} MB, but {SHM} has "
            f"{free / 1e6:.1f} MB free. Make it larger (Docker: `docker run --shm-size=1g`), use a smaller network, "
            "or n_workers=0."
        )


class FlatLayout:
    """Where each parameter of a network lies in one flat vector.

    Weights of convolutions lie there in channels-last order, which the CPU kernels are faster with.

    :param parameters: all of one dtype
    :raises ValueError: if the dtypes differ
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        dtypes = {p.dtype for p in parameters}
        if len(dtypes) != 1:
            raise ValueError(f"The parameters of the policy must all have one dtype, got {sorted(map(str, dtypes))}")
        self.dtype = dtypes.pop()
        self.shapes = [p.shape for p in parameters]
        self.size = sum(p.numel() for p in parameters)

    def views(self, flat: Tensor) -> list[Tensor]:
        """Each parameter as a view of ``flat``, (size,)."""
        views, start = [], 0
        for shape in self.shapes:
            part = flat[start : start + shape.numel()]
            if len(shape) == 4:
                out_channels, in_channels, height, width = shape
                views.append(part.view(out_channels, height, width, in_channels).permute(0, 3, 1, 2))
            else:
                views.append(part.view(shape))
            start += shape.numel()
        return views

    @torch.no_grad()
    def gather(self, parameters: Sequence[Tensor], flat: Tensor) -> None:
        """Copy ``parameters`` into ``flat``."""
        for view, parameter in zip(self.views(flat), parameters, strict=True):
            view.copy_(parameter)

    @torch.no_grad()
    def scatter(self, flat: Tensor, parameters: Sequence[Tensor]) -> None:
        """Copy ``flat`` into ``parameters``."""
        for view, parameter in zip(self.views(flat), parameters, strict=True):
            parameter.copy_(view)

    def bind(self, parameters: Sequence[torch.nn.Parameter]) -> tuple[Tensor, Tensor]:
        """Move ``parameters`` and their gradients into two new private vectors, and return these.

        Backward passes then add to the gradient vector, which the caller sets to zero.
        """
        flat, gradient = torch.zeros(self.size, dtype=self.dtype), torch.zeros(self.size, dtype=self.dtype)
        self.gather(parameters, flat)
        self.place(parameters, flat)
        for parameter, grad in zip(parameters, self.views(gradient), strict=True):
            parameter.grad = grad
        return flat, gradient

    def place(self, parameters: Sequence[torch.nn.Parameter], flat: Tensor) -> None:
        """Let ``parameters`` be ``flat``: what is written there they see at once."""
        for parameter, value in zip(parameters, self.views(flat), strict=True):
            parameter.data = value


RING = 256  # grants that one worker may have outstanding


class Slots:
    """What main and the workers tell each other in numbers.

    ``main[i]``: ``granted`` steps in all, ``grants`` made, and for each of the last RING grants its ``steps`` and the
    ``values`` (hyper-parameters) that hold for it.
    ``worker[i]``: steps ``done`` in all, ``updates`` applied and ``skipped``, ``target_updates`` (of the target parameters, as
    many as were due), ``beat`` (monotonic seconds of the last sign of life), ``lag`` (updates of other workers between reading
    and writing the parameters, summed) and sums of ``stats``.
    ``command``: one word, written by main.
    """

    RUN, STOP = 0, 1

    def __init__(self, block: SharedBlock) -> None:
        self.main = block.array("slots.main")
        self.worker = block.array("slots.worker")
        self.command = block.array("slots.command")
        # Views of single columns: indexing a structured array costs a microsecond each time.
        self.granted, self.grants = self.main["granted"], self.main["grants"]
        self.steps, self.values = self.main["steps"], self.main["values"]
        self.done, self.updates, self.skipped = self.worker["done"], self.worker["updates"], self.worker["skipped"]
        self.target_updates = self.worker["target_updates"]
        self.beat, self.lag, self.stats = self.worker["beat"], self.worker["lag"], self.worker["stats"]

    @staticmethod
    def fields(n_workers: int, n_values: int, n_stats: int) -> dict[str, Field]:
        """The fields that a block must hold for these slots.

        :param n_workers: number of rows
        :param n_values: hyper-parameters that come with a grant
        :param n_stats: statistics that a worker sums
        """
        main = _row(
            [("granted", "i8", ()), ("grants", "i8", ()), ("steps", "i8", (RING,)), ("values", "f8", (RING, n_values))]
        )
        worker = _row(
            [(name, "i8", ()) for name in ("done", "updates", "skipped", "target_updates", "lag")]
            + [("beat", "f8", ()), ("stats", "f8", (n_stats,))]
        )
        return {
            "slots.command": Field((1,), np.dtype("i8")),
            "slots.main": Field((n_workers,), main),
            "slots.worker": Field((n_workers,), worker),
        }

    def grant(self, worker: int, steps: int, values: NDArray[Any]) -> None:
        """Allow ``worker`` ``steps`` more steps, for which ``values`` hold. Called by main alone."""
        place = self.grants[worker] % RING
        self.steps[worker, place] = steps
        self.values[worker, place] = values
        self.granted[worker] += steps
        self.grants[worker] += 1  # last: it publishes the rest


def _row(columns: list[tuple[str, str, tuple[int, ...]]]) -> np.dtype[Any]:
    """A row dtype padded to whole cache lines, so that no two writers share one."""
    size = np.dtype(columns).itemsize
    return np.dtype([*columns, ("_pad", "u1", (-size % CACHE_LINE,))])
