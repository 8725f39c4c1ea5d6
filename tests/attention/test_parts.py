"""One sequence over several processes gives what one process gives, values and gradients."""

import dataclasses
from datetime import timedelta
from itertools import cycle, product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

from jat_graph import JatConfig, jump_attention, jump_operator
from jat_graph.config_fields import INCIDENCES, SIDES
from jat_graph.nn import JumpSelfAttention

CLOSE = {"atol": 1e-10, "rtol": 1e-10}
LENGTHS = {2: (7, 12), 3: (5, 1, 9)}
KEYS = (
    {"key_selection": "all"},
    {"key_selection": "strided", "key_step": 3},
    {"key_selection": "strided", "num_keys": 4},
    {"key_selection": "significance", "num_keys": 5},
    {"key_selection": "sampled", "key_factor": 2.0, "seed": 3},
)
FORMS = tuple(product(SIDES, INCIDENCES))
CASES = tuple(zip(2 * KEYS, cycle(FORMS), strict=False))


def cut(x, lengths, dim=2):
    """Return what this process has of a tensor."""
    return x.split(lengths, dim)[dist.get_rank()]


def marks(seed, length):
    """Return valid tokens and silent ones of two sequences, or None for all and for none."""
    generator = torch.Generator().manual_seed(seed)
    valid = torch.rand(2, length, generator=generator) < 0.7
    valid[:, :2] = True
    silent = torch.rand(2, length, generator=generator) < 0.2
    return (valid if seed % 3 else None), (silent if seed % 2 else None)


def gradients(output, inputs, cotangent):
    """Return gradients of one share of a loss."""
    return torch.autograd.grad((output * cotangent).sum(), inputs)


def check_heads(lengths):
    """Compare operators and heads of this part with those of the whole."""
    group, total = dist.group.WORLD, sum(lengths)
    for seed, (keys, (sides, incidence)) in enumerate(CASES):
        generator = torch.Generator().manual_seed(seed)
        query, key, value, far = torch.randn(4, 2, 3, total, 4, generator=generator).double()
        strength = torch.randn(3, 2, 3, generator=generator).double()
        valid, silent = marks(seed, total)
        config = JatConfig.stones(
            **keys, sides=sides, incidence=incidence, threshold=0.5, hops=2,
            self_weight=(0.0, 0.1)[seed % 2],
        )  # fmt: skip

        def head(tensors, strength, valid, silent, group=None, config=config):
            query, key, value = tensors
            options = {"config": config, "attention_mask": valid, "silent": silent, "group": group}
            operator = jump_operator(query, key, **options)
            seen = torch.ones(value.shape[::2][:2]).bool() if valid is None else valid
            output = jump_attention(query, key, value, strength=strength, **options)
            walked = operator.power(2).matmul(value) + operator.rmatmul(value)
            return operator, (output + walked) * seen[:, None, :, None]

        whole = [x.clone().requires_grad_() for x in (query, key, value)]
        theta = strength.clone().requires_grad_()
        operator, expected = head(whole, theta, valid, silent)
        wanted = gradients(expected, [*whole, theta], far)
        own = [cut(x, lengths).clone().requires_grad_() for x in (query, key, value)]
        mine = strength.clone().requires_grad_()
        masks = [x if x is None else cut(x, lengths, 1) for x in (valid, silent)]
        if masks[0] is not None and masks[0].all():  # where others have padding
            masks[0] = None
        part, found = head(own, mine, *masks, group)
        *grads, of_strength = gradients(found, [*own, mine], cut(far, lengths))
        dist.all_reduce(of_strength)
        assert_close(found, cut(expected, lengths), **CLOSE)
        for ours, theirs in zip(grads, wanted, strict=False):
            assert_close(ours, cut(theirs, lengths), **CLOSE)
        assert_close(of_strength, wanted[-1], **CLOSE)
        assert_close(part.to_dense(), cut(operator.to_dense(), lengths), **CLOSE)
        assert_close(part.degree, cut(operator.degree, lengths), **CLOSE)


def check_module(lengths):
    """Compare a layer, some of whose heads jump, with the same layer on the whole."""
    config = JatConfig.stones(heads=2, hops=2, threshold=0.5)
    torch.manual_seed(0)
    module = JumpSelfAttention(12, 3, config, group=dist.group.WORLD).double()
    torch.nn.init.normal_(module.strength)
    alone = JumpSelfAttention(12, 3, config).double()
    alone.load_state_dict(module.state_dict())
    x, far = torch.randn(2, 2, sum(lengths), 12, dtype=torch.float64)
    valid, _ = marks(1, sum(lengths))
    x.requires_grad_()
    own, mask = cut(x, lengths, 1).detach().requires_grad_(), cut(valid, lengths, 1)
    expected, found = alone(x, valid), module(own, mask)
    (expected * far).sum().backward()
    (found * cut(far, lengths, 1)).sum().backward()
    assert_close(found, cut(expected, lengths, 1), **CLOSE)
    assert_close(own.grad, cut(x.grad, lengths, 1), **CLOSE)
    for ours, theirs in zip(module.parameters(), alone.parameters(), strict=True):
        dist.all_reduce(ours.grad)
        assert_close(ours.grad, theirs.grad, **CLOSE)
    with pytest.raises(ValueError, match=r"group needs dense x .*got flat x and batch"):
        module(own[0], batch=torch.zeros(own.size(1), dtype=torch.long))


def check_refusals(lengths):
    """Ask for what does not go with a group: one line in each process, before any of them waits."""
    x = torch.randn(1, 2, lengths[dist.get_rank()], 4)
    stones, length = JatConfig.stones(strength=1.0), x.size(2)
    for config, more, message in (
        (stones, {"group": "all"}, r"group must be a process group .*, got 'all'"),
        (JatConfig(), {}, r"group needs graph='stones', got 'pairs'"),
        (stones, {"is_causal": True}, r"group needs no mask but .*, got causal order"),
        (stones, {"attention_mask": torch.randn(1, length)}, r"group needs .*, got .*biases"),
        (
            dataclasses.replace(stones, key_selection="sampled_queries"), {},
            r"group needs another key_selection than 'sampled_queries'",
        ),
        (
            dataclasses.replace(stones, pattern="window:4"), {},
            r"group needs no pattern, got 'window:4'",
        ),
    ):  # fmt: skip
        options = {"config": config, "group": dist.group.WORLD} | more
        with pytest.raises(ValueError, match=message):
            jump_attention(x, x, x, **options)
        with pytest.raises(ValueError, match=message):
            jump_operator(x, x, **options)


def work(rank, count, folder):
    """Be one of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    for check in (check_heads, check_module, check_refusals):
        check(LENGTHS[count])
        Path(folder, f"{check.__name__}-{rank}").touch()
    dist.destroy_process_group()


@pytest.mark.parametrize("count", LENGTHS)
def test_parts_are_those_of_one_process(count, tmp_path):
    torch.multiprocessing.spawn(work, (count, str(tmp_path)), nprocs=count)
    assert len(list(tmp_path.glob("check_*"))) == 3 * count
