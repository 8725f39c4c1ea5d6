"""One run in several processes, as ``torchrun`` and ``accelerate launch`` start them."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TypeVar, cast

from jat_graph.training.options import TrainingOptions

T = TypeVar("T")

# Seconds that the main process has to say what is wrong, before another one says it.
_PATIENCE = 30.0

# How the names of accelerate's variables begin.
_ACCELERATES = ("ACCELERATE_", "FSDP_")


class ReplicaError(ValueError):
    """What the other processes raise where the main process says why."""


@dataclass(frozen=True)
class Processes:
    """The processes of one run."""

    count: int = 1
    index: int = 0  # of this one; 0 is the main process, which alone writes and speaks

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.index == 0

    def on_main(self, work: Callable[[], T]) -> T:
        """The result of what the main process does, in all of them; a mistake is one in all."""
        if self.count == 1:
            return work()
        from accelerate.utils import broadcast_object_list

        result, failure = _attempt(work) if self.is_main else (None, None)
        result, said = broadcast_object_list([result, None if failure is None else str(failure)])
        if failure is not None:
            raise failure
        if said is not None:
            raise ReplicaError(said)
        return cast(T, result)

    def agree(self, work: Callable[[], T]) -> T:
        """What each process comes to; what fails in one fails in all, and nobody waits."""
        if self.count == 1:
            return work()
        from accelerate.utils import gather_object

        result, failure = _attempt(work)
        said = gather_object([None if failure is None else str(failure)])
        failed = [index for index, text in enumerate(said) if text is not None]
        if not failed:
            return cast(T, result)
        if self.is_main and failure is not None:
            raise failure
        where = f"in process {failed[0] + 1} of {self.count}"
        raise self.shared(ValueError(f"{where}: {said[failed[0]]}"))

    def shared(self, error: ValueError) -> ValueError:
        """What this process raises for an error that all processes meet."""
        return error if self.is_main else ReplicaError(str(error))


def join(options: TrainingOptions) -> Processes:
    """Take part in the run that a launcher started; where none did, this process is alone."""
    from accelerate import PartialState

    from jat_graph.training.arguments import on_cpu

    cpu = on_cpu(options)
    refused = _refusal(options, cpu)
    if refused is not None:
        raise ValueError(refused)
    state = PartialState(cpu=cpu)
    return Processes(state.num_processes, state.process_index)


def join_others(options: TrainingOptions) -> Processes:
    """As :func:`join`, but with nothing imported where no launcher started this process."""
    return join(options) if _launched().count > 1 else Processes()


def leave(code: int = 0) -> None:
    """End one of several processes here, where all is written.

    Threads of torch's process groups now and then abort an interpreter that shuts down in the usual
    way. The launcher would take that for a failure.

    Args:
        code: What the launcher is told; 0 if all went well. (default: 0)
    """
    if not _can_talk():
        return
    import torch

    torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_main() -> bool:
    """Whether this is the main process of a command; it is where no launcher started it."""
    return _launched().is_main


@contextmanager
def one_voice() -> Iterator[None]:
    """Let only the main process of a command speak, and end them all as a launcher wants it.

    A launcher ends all processes as soon as one fails. So the others do not, while the main process
    has something to say: they end well where it knows what is wrong, and wait a while where they
    cannot know that it does.
    """
    if is_main():
        yield
    else:
        messages = logging.getLogger("jat_graph")
        level = messages.level
        messages.setLevel(logging.ERROR)
        try:
            with redirect_stdout(io.StringIO()):
                yield
        except ReplicaError:
            leave()
            sys.exit(0)
        except (OSError, ValueError):
            if not _can_talk():  # the main process meets the same mistake, or is on another machine
                time.sleep(_PATIENCE)
            raise
        finally:
            messages.setLevel(level)
    leave()


@contextmanager
def own_environment() -> Iterator[None]:
    """Take back what accelerate writes into the environment, where the next run would read it."""
    before = {name: text for name, text in os.environ.items() if name.startswith(_ACCELERATES)}
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(_ACCELERATES)]:
            del os.environ[name]
        os.environ.update(before)


def _can_talk() -> bool:
    if "torch" not in sys.modules:  # which a command that refuses something does without
        return False
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _attempt(work: Callable[[], T]) -> tuple[T | None, OSError | ValueError | None]:
    try:
        return work(), None
    except (OSError, ValueError) as error:
        return None, error


def _launched() -> Processes:
    """What a launcher started, by the environment, before the processes can talk."""
    count, index = (int(os.environ.get(name, -1)) for name in ("WORLD_SIZE", "RANK"))
    return Processes(max(count, 1), max(index, 0))


def _refusal(options: TrainingOptions, cpu: bool) -> str | None:
    """Why a launcher's run cannot be that of the options; None if it can.

    Accelerate would go another way in silence: it shards nothing on the CPU, and a precision that
    only the launcher is told would not be in the run's description.
    """
    import torch

    from jat_graph.training.arguments import precision_of

    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision not in ("no", precision_of(options)):
        return (
            f"mixed_precision must be what accelerate launch is told, {precision!r}, "
            f"got {options.mixed_precision!r}"
        )
    by_launcher = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if cpu and (options.fully_sharded or by_launcher):
        return "fully_sharded needs GPUs, got the CPU: there each process has the whole model"
    if options.fully_sharded and _launched().count == 1:
        return "fully_sharded needs several processes: start them with torchrun"
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if not cpu and here > torch.accelerator.device_count():
        return (
            f"the launcher must start at most {torch.accelerator.device_count()} processes here, "
            f"one for each GPU, got {here}; device='cpu' takes any number"
        )
    return None
