"""Models on clusters in two processes, whole or in shards: what one process learns of the batch."""

import copy
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from tests.hf.encoders import clustered_model
from tests.hf.models import main_output, tiny_inputs

STEPS, PROCESSES, ROWS = 2, 2, (12, 7, 9, 12)


def in_shards(model: nn.Module) -> nn.Module:
    """Shard it as FSDP does, each layer by itself."""
    for layer in model.encoder.layer:  # type: ignore[union-attr]
        fully_shard(layer)
    return fully_shard(model)


def train(model: nn.Module, rows: slice) -> None:
    """Take some steps on rows of one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = {name: x[rows] for name, x in tiny_inputs("bert", ROWS).items()}
    weights = torch.randn(len(ROWS), max(ROWS), 32, generator=torch.Generator())[rows]
    for _ in range(STEPS):
        optimizer.zero_grad()
        (main_output(model(**inputs)) * weights).mean().mul(100).backward()
        optimizer.step()


def whole(model: nn.Module) -> list[Tensor]:
    """Return the parameters of a model, put together from their shards."""
    parts = [x.detach() for x in model.parameters()]
    return [x.full_tensor() if hasattr(x, "full_tensor") else x for x in parts]


def work(rank: int, folder: str) -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    meeting = {"init_method": f"file://{folder}/meeting", "timeout": timedelta(minutes=5)}
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES, **meeting)
    model = clustered_model("bert").double()
    model.pooler = None  # which no loss here reads
    alone = copy.deepcopy(model)
    train(alone, slice(None))
    for way in (DistributedDataParallel, in_shards):
        several = way(copy.deepcopy(model))
        train(several, slice(rank, None, PROCESSES))
        for got, want in zip(whole(several), whole(alone), strict=True):
            assert_close(got, want, atol=1e-10, rtol=1e-10)
        Path(folder, f"{way.__name__}-{rank}").touch()
    dist.destroy_process_group()


def test_processes_learn_what_one_does(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=PROCESSES)
    assert len(list(tmp_path.glob("*-*"))) == 2 * PROCESSES
