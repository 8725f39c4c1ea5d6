"""One sequence over several processes gives what one process gives, values and gradients."""

from datetime import timedelta
from itertools import cycle, product
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.testing import assert_close

from jat_graph import JatConfig, jump_attention, jump_operator
from jat_graph.nn import JumpSelfAttention
from tests.patterns.support import SPECS

INCIDENCES, SIDES = ("excess", "hard", "sigmoid"), ("both", "positive")

CLOSE = {"atol": 1e-10, "rtol": 1e-10}
LENGTHS = {2: (7, 12), 3: (5, 1, 9)}
LONG = {2: (40, 110), 3: (90, 1, 60)}  # blocks of 64 tokens end in one part or another
KEYS = (
    {"key_selection": "all"},
    {"key_selection": "strided", "key_step": 3},
    {"key_selection": "strided", "num_keys": 4},
    {"key_selection": "significance", "num_keys": 5},
    {"key_selection": "sampled", "key_factor": 2.0, "seed": 3},
)
FORMS = tuple(product(SIDES, INCIDENCES))
CAUSAL = (*KEYS[:2], *KEYS[:2], {"key_selection": "strided", "key_step": 20})
PATTERNS = (*len(KEYS) * 2 * (None,), *SPECS, "window:3+global:30")
BOTH_WAYS = tuple(zip(PATTERNS, cycle(KEYS), cycle(FORMS), strict=False))
IN_ORDER = tuple(zip((*5 * (None,), *SPECS[::5]), cycle(CAUSAL), cycle(FORMS), strict=False))


def cut(x, lengths, dim=2):
    """Return what this process has of a tensor."""
    return x.split(lengths, dim)[dist.get_rank()]


def marks(seed, length):
    """Return valid tokens and excluded ones of two sequences, or None for all and for none."""
    generator = torch.Generator().manual_seed(seed)
    valid = torch.rand(2, length, generator=generator) < 0.7
    valid[:, :2] = True
    excluded = torch.rand(2, length, generator=generator) < 0.2
    return (valid if seed % 3 else None), (excluded if seed % 2 else None)


def gradients(output, inputs, cotangent):
    """Return gradients of one share of a loss."""
    return torch.autograd.grad((output * cotangent).sum(), inputs)


def check_both_ways(count):
    """Compare parts with the whole where tokens see those behind them, too."""
    check_heads(BOTH_WAYS, LENGTHS[count], is_causal=False)


def check_in_order(count):
    """Compare parts with the whole in causal order."""
    check_heads(IN_ORDER, LONG[count], is_causal=True)


def check_heads(cases, lengths, is_causal):
    """Compare operators and heads of this part with those of the whole."""
    group, total = dist.group.WORLD, sum(lengths)
    for seed, (pattern, keys, (sides, incidence)) in enumerate(cases):
        generator = torch.Generator().manual_seed(seed)
        query, key, value, far = torch.randn(4, 2, 3, total, 4, generator=generator).double()
        strength = torch.randn(3, 2, 3, generator=generator).double()
        valid, excluded = marks(seed, total)
        config = JatConfig.stones(
            **keys, sides=sides, incidence=incidence, threshold=0.5, hops=2,
            self_weight=(0.0, 0.1)[seed % 2], pattern=pattern,
        )  # fmt: skip

        def head(
            tensors, strength, valid, excluded, group=None,
            config=config, pattern=pattern, seed=seed,
        ):  # fmt: skip
            query, key, value = tensors
            options = {
                "config": config, "attention_mask": valid, "excluded": excluded, "group": group,
                "is_causal": is_causal,
            }  # fmt: skip
            operator = jump_operator(query, key, **options)
            seen = torch.ones(value.shape[::2][:2]).bool() if valid is None else valid
            # Dropout that drops nothing, but takes the way of dropout.
            drop = (0.0, 1e-13)[seed % 2] if pattern else 0.0
            more = {"strength": strength, "dropout_p": drop} | options
            output = jump_attention(query, key, value, **more)
            walked = operator.power(2).matmul(value) + operator.rmatmul(value)
            return operator, (output + walked) * seen[:, None, :, None]

        whole = [x.clone().requires_grad_() for x in (query, key, value)]
        theta = strength.clone().requires_grad_()
        operator, expected = head(whole, theta, valid, excluded)
        wanted = gradients(expected, [*whole, theta], far)
        own = [cut(x, lengths).clone().requires_grad_() for x in (query, key, value)]
        mine = strength.clone().requires_grad_()
        masks = [x if x is None else cut(x, lengths, 1) for x in (valid, excluded)]
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


def check_halo(count):
    """Count what a process asks of others: what its window and the global token are."""
    group, asked, send = dist.group.WORLD, [], collectives.all_to_all_single

    def note(x, *sizes_and_group):
        if sizes_and_group[0] is None:  # how many rows this process wants of each
            asked.append([n for rank, n in enumerate(x.tolist()) if rank != dist.get_rank()])
        return send(x, *sizes_and_group)

    lengths = LENGTHS[count]
    x = cut(torch.randn(1, 2, sum(lengths), 4), lengths)
    config = JatConfig.stones(pattern="window:3+global:1", strength=1.0)
    with patch.object(collectives, "all_to_all_single", note):
        jump_attention(x, x, x, config=config, group=group)
    wanted = {(7, 12): ([2], [3]), (5, 1, 9): ([1, 1], [3, 2], [2, 1])}
    assert asked == [wanted[lengths][dist.get_rank()]]


def check_module(count):
    """Compare a layer, some of whose heads jump, with the same layer on the whole."""
    lengths, config = LENGTHS[count], JatConfig.stones(heads=2, hops=2, threshold=0.5)
    torch.manual_seed(0)
    module = JumpSelfAttention(12, 3, config, group=dist.group.WORLD).double()
    torch.nn.init.normal_(module.strength.theta)
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


def check_refusals(count):
    """Ask for what does not go with a group: one line in each process, before any of them waits."""
    x = torch.randn(1, 2, LENGTHS[count][dist.get_rank()], 4)
    stones, length = JatConfig.stones(strength=1.0), x.size(2)
    for config, more, message in (
        (stones, {"group": "all"}, r"group must be a process group .*, got 'all'"),
        (JatConfig(), {}, r"group needs graph='stones', got 'pairs'"),
        (
            stones.replace(backend="sparse"), {},
            r"group needs backend='dense' or 'auto', got 'sparse'",
        ),
        (stones, {"attention_mask": torch.randn(1, length)}, r"group needs .*, got one of biases"),
        (
            stones.replace(key_selection="sampled_queries"), {},
            r"group needs another key_selection than 'sampled_queries'",
        ),
    ):  # fmt: skip
        options = {"config": config, "group": dist.group.WORLD} | more
        with pytest.raises(ValueError, match=message):
            jump_attention(x, x, x, **options)
        with pytest.raises(ValueError, match=message):
            jump_operator(x, x, **options)


CHECKS = (check_both_ways, check_in_order, check_halo, check_module, check_refusals)


def work(rank, count, folder):
    """Be one of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    for check in CHECKS:
        check(count)
        Path(folder, f"{check.__name__}-{rank}").touch()
    dist.destroy_process_group()


@pytest.mark.parametrize("count", LENGTHS)
def test_parts_are_those_of_one_process(count, tmp_path):
    torch.multiprocessing.spawn(work, (count, str(tmp_path)), nprocs=count)
    assert len(list(tmp_path.glob("check_*"))) == len(CHECKS) * count
