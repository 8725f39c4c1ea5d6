import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph
from jat_graph.jumps.adjacency.keys import draw, sample_size, sampled_positions

CPU = torch.device("cpu")


@given(
    seed=st.integers(0, 2**63 - 1),
    purpose=st.integers(0, 9),
    sizes=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
)
def test_a_shorter_draw_is_the_start_of_a_longer_one(seed, purpose, sizes):
    short, long = sorted(sizes)
    whole = draw(seed, long, purpose, CPU)
    assert torch.equal(draw(seed, short, purpose, CPU), whole[:short])
    assert ((whole >= 0) & (whole < 2**31)).all()


def test_draws_differ_by_seed_and_purpose():
    draws = [draw(seed, 64, purpose, CPU) for seed in range(4) for purpose in range(1, 5)]
    assert len({tuple(numbers.tolist()) for numbers in draws}) == 16


def test_a_draw_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    want = torch.rand(3)
    torch.manual_seed(7)
    draw(0, 10, 1, CPU)
    assert torch.equal(torch.rand(3), want)


def sample_of(config, valid):
    valid = torch.tensor(valid)[None, None]
    position, chosen = sampled_positions(config, valid, valid.sum(-1, keepdim=True))
    assert position.shape == chosen.shape == (1, 1, sample_size(config, valid.size(-1)))
    assert len(set(position.flatten().tolist())) == position.numel()
    return torch.zeros_like(valid).scatter(-1, position, chosen)[0, 0]


@given(valid=st.lists(st.booleans(), min_size=1, max_size=40), seed=st.integers(0, 2**40))
def test_the_sample_depends_on_the_seed_and_the_number_of_tokens_only(valid, seed):
    config = JatConfig(PairGraph(key_selection="sampled", key_factor=1.5), seed=seed)
    mask = torch.tensor(valid)
    count = int(mask.sum())
    sampled = sample_of(config, valid)
    assert not (sampled & ~mask).any()
    assert int(sampled.sum()) == sample_size(config, count)
    if count:
        assert torch.equal(sampled[mask], sample_of(config, [True] * count))


def test_a_sample_is_even_over_the_tokens():
    counts = torch.zeros(10)
    for seed in range(400):
        config = JatConfig(PairGraph(key_selection="sampled", key_factor=1.3), seed=seed)  # 3 of 10
        counts += sample_of(config, [True] * 10)
    assert counts.sum() == 1200
    assert 80 <= counts.min() and counts.max() <= 160
