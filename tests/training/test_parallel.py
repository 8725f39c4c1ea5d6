"""Models in two processes, whole or in shards: they learn what one process learns of the batch."""

import copy
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from jat_graph.hf import attach
from tests.hf.encoders import clustered_model
from tests.hf.models import main_output, strengths, tiny_inputs, tiny_model
from tests.hf.test_stones import EXCLUDED, stones

LENGTHS, WIDTH, STEPS, PROCESSES = (12, 7, 9, 12), 32, 3, 2


def in_one_piece(model: nn.Module) -> nn.Module:
    """Wrap it for DDP, which refuses a second step after one with an unused parameter."""
    return DistributedDataParallel(model)


def in_shards(model: nn.Module) -> nn.Module:
    """Shard it as FSDP of today does, each layer by itself."""
    for layer in model.encoder.layer:  # type: ignore[union-attr]
        fully_shard(layer)
    return fully_shard(model)


def in_flat_shards(model: nn.Module) -> nn.Module:
    """Shard it as the first FSDP did, which takes the CPU only where it is named."""
    kind = type(model.encoder.layer[0])  # type: ignore[union-attr, index]
    return FullyShardedDataParallel(
        model,
        use_orig_params=True,
        device_id=torch.device("cpu"),
        auto_wrap_policy=ModuleWrapPolicy({kind}),
    )


def train(model: nn.Module, rows: slice) -> None:
    """Take some steps on rows of one batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = {name: x[rows] for name, x in tiny_inputs("bert", LENGTHS).items()}
    weights = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH, generator=torch.Generator())[rows]
    for _ in range(STEPS):
        optimizer.zero_grad()
        (main_output(model(**inputs)) * weights).mean().mul(100).backward()
        optimizer.step()


def whole(model: nn.Module) -> list[Tensor]:
    """Return the parameters of a model, put together from their shards."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [x.detach().clone() for x in model.parameters()]
    parts = [x.detach() for x in model.parameters()]
    return [x.full_tensor() if hasattr(x, "full_tensor") else x for x in parts]


def work(rank: int, folder: str) -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    meeting = {"init_method": f"file://{folder}/meeting", "timeout": timedelta(minutes=5)}
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES, **meeting)
    learning = tiny_model("bert", num_hidden_layers=2)
    attach(learning, stones(excluded_token_ids=EXCLUDED))
    for kind, model in (("strengths", learning), ("clusters", clustered_model("bert"))):
        model.pooler = None  # which no loss here reads
        alone = copy.deepcopy(model.double())
        train(alone, slice(None))
        assert all(bool(theta.abs().max() > 1e-3) for theta in strengths(alone))
        for way in (in_one_piece, in_shards, in_flat_shards):
            several = way(copy.deepcopy(model))
            train(several, slice(rank, None, PROCESSES))
            for got, want in zip(whole(several), whole(alone), strict=True):
                assert_close(got, want, atol=1e-10, rtol=1e-10)
                first = got.clone()
                dist.broadcast(first, 0)
                assert torch.equal(got, first)
            Path(folder, f"{kind}-{way.__name__}-{rank}").touch()
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_learn_what_one_does(tmp_path):
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=PROCESSES)
    assert len(list(tmp_path.glob("*-in_*"))) == 2 * 3 * PROCESSES
