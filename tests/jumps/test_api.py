import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from jat_graph import JatConfig, PairGraph, jump_attention, jump_operator
from tests.inputs import random_heads, random_padding_mask
from tests.oracles import (
    masked_softmax,
    reference_graph,
    reference_jump_attention,
    reference_mask,
    reference_scores_propagated,
)
from tests.support import (
    CAUSAL_MASKS,
    PADDING_MASKS,
    PAIR_MASKS,
    SELECTIONS,
    Case,
    MemoryMeter,
    assert_equal,
    assert_within_budget,
    check_against_oracle,
    configs,
    count_operations,
    gradients,
    heads_and_masks,
    make_mask,
    sdpa_kernels,
    with_half_joined,
)

DECODER_CONFIGS = [
    JatConfig.paper(hop_weights=hops, backend=backend, **selection)
    for backend, (hops, selection) in product(
        ("dense", "sparse", "threshold"),
        (
            ((0.5, 0.25, 0.5), {}),
            ((0, 1), {"key_selection": "strided", "key_step": 3}),
            ((0.5, 0.5), {"nodes": "selected", "key_selection": "strided", "key_step": 2}),
        ),
    )
] + [
    JatConfig(PairGraph(backend="dense", soft_temperature=0.5)),
    JatConfig(PairGraph(backend="auto", same_sign_only=True, normalize_keys=True)),
]


# --- the oracle ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "masks"),
    [
        *product(("dense", "sparse", "threshold", "auto"), (PADDING_MASKS,)),
        *product(("dense", "sparse", "auto"), (CAUSAL_MASKS, PAIR_MASKS)),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1],
)
@pytest.mark.filterwarnings("ignore:vote_rate=.*:UserWarning")
@settings(max_examples=20)
@given(data=st.data(), rate=st.sampled_from((None, None, 0.05, 0.4)))
def test_values_and_gradients_are_the_oracles(backend, masks, device, data, rate):
    case = data.draw(heads_and_masks(masks))
    config = data.draw(configs(backend, masks, case.query.size(1)))
    if rate is None or masks != PADDING_MASKS:
        config = with_half_joined(config, case)
    else:
        config = config.replace(vote_rate=rate, inclusive=False)
    check_against_oracle(config, case, device)


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@pytest.mark.parametrize("heads", [(1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("kind", ["right", "per head", "pairs per head", "causal"])
def test_heads_that_jump_do_it_by_their_own_threshold_and_mask(backend, heads, kind):
    if (backend, kind) == ("threshold", "pairs per head"):
        pytest.skip("it takes no masks of pairs")
    mask, causal = make_mask(kind, 2, 4, 12, seed=5)
    tensors = random_heads(2, 4, 12, 8, attention_mask=mask, is_causal=causal)[:3]
    hops = {(head,): (0.5, 0.5) if head in heads else (1,) for head in range(4)}
    graph = PairGraph(threshold=((2.0, 5.0, 7.0, math.inf),), backend=backend)
    case = Case(*tensors, mask, causal)
    check_against_oracle(JatConfig(graph, hop_weights=hops), case)
    operator = jump_operator(*tensors[:2], config=JatConfig(graph), **case.options)
    shares = (operator.base.to_dense() > 0).double().mean((0, 2, 3))
    assert (shares[:3] > 0).all() and shares[3] == 0


def low_precision(query, key, value, adj_norm, hop_weights, mask):
    """The oracle's last steps, all of them in the dtype of the inputs."""
    propagated = reference_scores_propagated(query, key, adj_norm.to(query.dtype), hop_weights)
    logits = propagated * query.size(-1) ** -0.5
    return masked_softmax(logits, reference_mask(query, mask).visible) @ value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@settings(max_examples=8)
@given(seed=st.integers(0, 2**20), hops=st.sampled_from(((0, 1), (0.5, 0.5), (0.0, 0.5, -0.5))))
def test_lower_precisions_keep_their_budget(dtype, backend, seed, hops):
    mask = random_padding_mask(2, 17, side="left", min_valid=8, seed=seed)
    heads = random_heads(2, 2, 17, 8, attention_mask=mask, dtype=dtype, seed=seed)
    assert 0.1 <= heads.density <= 0.9
    config = JatConfig(PairGraph(backend=backend), hop_weights=hops)
    valid = mask[:, None, :, None]
    leaves = [t.requires_grad_() for t in heads[:3]]
    with sdpa_kernel(SDPBackend.MATH):  # the flash kernel's backward is twice as wrong by itself
        output = jump_attention(*leaves, config=config, attention_mask=mask)
    exact = [t.detach().double().requires_grad_() for t in leaves]
    truth = reference_jump_attention(*exact, hop_weights=hops, attention_mask=mask)
    plain = [t.detach().clone().requires_grad_() for t in leaves]
    graph = reference_graph(*(t.detach().float() for t in plain[:2]), attention_mask=mask)
    low = low_precision(*plain, graph.adj_norm, hops, mask)
    exact_graph = reference_graph(*(t.detach() for t in exact[:2]), attention_mask=mask)
    assert torch.equal(graph.adjacency > 0, exact_graph.adjacency > 0)  # no vote is a close call
    assert output.dtype == dtype
    assert_within_budget(output * valid, low * valid, truth * valid)
    cotangent = torch.randn(output.shape).to(dtype) * valid
    found = zip(
        gradients(output, leaves, cotangent),
        gradients(low, plain, cotangent),
        gradients(truth, exact, cotangent.double()),
        strict=True,
    )
    for got, rough, want in found:
        assert_within_budget(got * valid, rough * valid, want * valid)


# --- ordinary attention --------------------------------------------------------------------------


ORDINARY = [
    JatConfig(hop_weights=(1,)),
    JatConfig(PairGraph(key_selection="significance", nodes="selected"), hop_weights=(1,)),
    JatConfig(PairGraph(vote_rate=0.1), hop_weights=(1, 0, 0)),
    JatConfig(hop_weights={(0,): (1,), (1, 2): (1, 0)}),
    JatConfig(
        PairGraph(threshold=((math.inf, math.inf, 1.0),)), hop_weights={(0, 1): (0, 1), (2,): (1,)}
    ),
    JatConfig(PairGraph(threshold=math.inf, backend="dense"), hop_weights=(0, 0, 1)),
    JatConfig(PairGraph(threshold=((math.inf,) * 3,), soft_temperature=1.0)),
]
KINDS = ("none", "causal", "padding", "bias", "pairs", "causal pairs")


@pytest.mark.parametrize("config", range(len(ORDINARY)))
@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_heads_are_sdpa_bit_for_bit(config, kind, device):
    dtype = (torch.float64, torch.float32, torch.bfloat16)[(config + KINDS.index(kind)) % 3]
    config, generator = ORDINARY[config], torch.Generator().manual_seed(1)
    for head_dim, width in ((8, 8), (7, 7), (8, 5), (5, 8)):
        query, key, value = (
            torch.randn(2, 9, 3, d, generator=generator).to(device, dtype).transpose(1, 2)
            for d in (head_dim, head_dim, width)
        )
        mask = {
            "padding": random_padding_mask(2, 9, seed=3, device=device)[:, None, None],
            "bias": torch.randn(2, 1, 9, 9, generator=generator).to(device, dtype),
            "pairs": (torch.rand(2, 3, 9, 9, generator=generator) < 0.6).to(device),
            "causal pairs": torch.ones(1, 1, 9, 9, device=device).tril().bool(),
        }.get(kind)
        causal = kind == "causal"
        output = jump_attention(
            query, key, value, config=config, attention_mask=mask, is_causal=causal
        )
        base = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        valid = mask.mT if kind == "padding" else torch.ones(1, dtype=torch.bool, device=device)
        assert torch.equal(output * valid, base * valid)


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
def test_a_graph_without_edges_passes_features_on_untouched(backend):
    query, key, value, _ = random_heads(2, 2, 16, 8, dtype=torch.float32)
    config = JatConfig(PairGraph(threshold=1e30, backend=backend), hop_weights=(0, 0, 1))
    output = jump_attention(query, key, value, config=config)
    assert torch.equal(output, F.scaled_dot_product_attention(query, key, value))


# --- padding, batches, later tokens --------------------------------------------------------------


@st.composite
def padded(draw):
    """Draw a case without padding, the same one inside garbage, and where it is there."""
    causal = draw(st.booleans())
    length, extra = draw(st.sampled_from((1, 2, 9, 14))), draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**20))
    query, key, value, _ = random_heads(1, 2, length, 4, seed=seed)
    place = sorted(draw(st.permutations(range(length + extra)))[:length])
    garbage = draw(st.sampled_from((math.nan, math.inf, 1e30)))
    wide = [torch.full((1, 2, length + extra, 4), garbage, dtype=torch.float64) for _ in range(3)]
    for tensor, small in zip(wide, (query, key, value), strict=True):
        tensor[:, :, place] = small
    mask = torch.zeros(1, length + extra, dtype=torch.bool)
    mask[:, place] = True
    settings = {"nodes": draw(st.sampled_from(("all", "selected")))}
    if causal:
        settings |= draw(st.sampled_from(({}, {"key_selection": "strided", "key_step": 2})))
    else:
        settings["key_selection"] = draw(st.sampled_from(SELECTIONS))
        settings["key_factor"] = draw(st.sampled_from((1.0, 3.0)))
        settings["vote_rate"] = draw(st.sampled_from((None, 0.1)))
    config = JatConfig.paper(**settings, seed=draw(st.integers(0, 9)))
    return config, Case(query, key, value, None, causal), Case(*wide, mask, causal), place


@pytest.mark.filterwarnings("ignore:vote_rate=.*:UserWarning")
@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@settings(max_examples=25)
@given(drawn=padded(), form=st.sampled_from(("2d", "4d", "additive")))
def test_padding_changes_nothing(backend, drawn, form):
    config, small, wide, place = drawn
    config = config.replace(backend=backend)
    if config.graph.vote_rate is None:
        config = with_half_joined(config, small)
    mask = wide.mask
    if form == "4d":
        mask = mask[:, None, None, :].expand(1, 1, mask.size(1), -1)
    if form == "additive":
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -math.inf)
    options, before = {"config": config, "is_causal": small.is_causal}, wide.query.clone()
    output = jump_attention(*wide[:3], attention_mask=mask, **options)
    assert output.isfinite().all() and torch.equal(wide.query.isfinite(), before.isfinite())
    assert_equal(output[:, :, place], jump_attention(*small[:3], **options))


@pytest.mark.slow
@pytest.mark.parametrize("config", DECODER_CONFIGS, ids=repr)
@pytest.mark.parametrize("padding", [None, "left", "right"])
def test_later_tokens_change_nothing_in_a_decoder(config, padding, device):
    mask, valid = None, torch.ones(1, 1, 14, 1, device=device)
    if padding is not None:
        mask = random_padding_mask(2, 14, side=padding, min_valid=8, seed=1, device=device)
        valid = mask[:, None, :, None]
    options = {"config": config, "is_causal": True}
    heads = random_heads(2, 2, 14, 8, attention_mask=mask, is_causal=True, device=device)
    assert 0.1 <= heads.density <= 0.9
    tensors = [tensor.float() for tensor in heads[:3]]
    output = jump_attention(*tensors, attention_mask=mask, **options)
    exact = jump_attention(*heads[:3], attention_mask=mask, **options) * valid
    if mask is None:
        plain = F.scaled_dot_product_attention(*tensors, is_causal=True)
        assert (output - plain).abs().max() > 0.05
    for cut in range(1, 14):
        later = [t.clone() for t in tensors]
        for tensor in later:
            tensor[:, :, cut:] = 5 * torch.randn_like(tensor[:, :, cut:])
        changed = jump_attention(*later, attention_mask=mask, **options)
        assert torch.equal(changed[:, :, :cut], output[:, :, :cut])
        assert not torch.equal(changed[:, :, cut:], output[:, :, cut:])
        own = None if mask is None else mask[:, :cut]
        short = jump_attention(*(t[:, :, :cut] for t in heads[:3]), attention_mask=own, **options)
        assert_equal(short * valid[..., :cut, :], exact[:, :, :cut])


@pytest.mark.parametrize(
    "settings",
    [
        *({"key_selection": key} for key in ("significance", "sampled", "sampled_queries")),
        {"key_selection": "strided"},
        {"vote_rate": 0.1},
    ],
)
@pytest.mark.parametrize("form", ["flag", "4d"])
def test_what_looks_ahead_is_refused_in_a_decoder(settings, form):
    heads = random_heads(1, 2, 6, 4)[:3]
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril() if form == "4d" else None
    options = {"attention_mask": mask, "is_causal": form == "flag"}
    with pytest.raises(ValueError, match="would use later tokens"):
        jump_attention(*heads, config=JatConfig.paper(**settings), **options)


# --- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@pytest.mark.parametrize("form", ["2d", "4d", "additive"])
def test_rows_without_a_key_are_finite(backend, form):
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1] = False
    if form != "2d":
        mask = mask[:, None, None, :].expand(2, 1, 5, 5)
    if form == "additive":
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    leaves = [t.float().requires_grad_() for t in random_heads(2, 2, 5, 4)[:3]]
    output = jump_attention(
        *leaves, config=JatConfig(PairGraph(backend=backend)), attention_mask=mask
    )
    assert output[0].abs().min() > 0
    assert torch.equal(output[1], torch.zeros_like(output[1]))
    for grad in torch.autograd.grad(output.sum(), leaves):
        assert grad.isfinite().all()
        assert grad[1].count_nonzero() == 0


def test_a_bias_moves_the_scores_but_no_vote():
    query, key, value, density = random_heads(1, 2, 10, 4)
    assert 0.1 <= density <= 0.9
    bias = 3 * torch.randn(1, 1, 10, 10, dtype=torch.float64)
    biased = {"config": JatConfig(), "attention_mask": bias}
    free = {"config": JatConfig()}
    operators = [jump_operator(query, key, **options).to_dense() for options in (biased, free)]
    assert torch.equal(*operators)
    outputs = [jump_attention(query, key, value, **options) for options in (biased, free)]
    assert (outputs[0] - outputs[1]).abs().max() > 0.05


# --- heads, probabilities ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "hop_weights", "inside"),
    [((0,), (0.0, 1.0), False), ((0, 1), (0.5, 0.5), True), ((1, 3), (0.5, 0.5), False)],
)
def test_heads_that_do_not_jump_are_sdpa_bit_for_bit(heads, hop_weights, inside, device):
    generator = torch.Generator().manual_seed(2)
    tensors = [
        torch.randn(2, 33, 4, 8, generator=generator).to(device).transpose(1, 2) for _ in range(3)
    ]
    if not inside:
        tensors = [tensor.contiguous() for tensor in tensors]
    leaves, twins = ([t.clone().requires_grad_() for t in tensors] for _ in range(2))
    ordinary = tuple(head for head in range(4) if head not in heads)
    hops = {heads: hop_weights, ordinary: (1,)}
    config = JatConfig(PairGraph(threshold=0.5), hop_weights=hops)
    output = jump_attention(*leaves, config=config, scale=0.3)
    base = F.scaled_dot_product_attention(*twins, scale=0.3)
    assert torch.equal(output[:, ordinary], base[:, ordinary])
    assert (output - base)[:, list(heads)].abs().amax((0, 2, 3)).min() > 1e-3
    cotangent = torch.randn(base.shape, generator=generator).to(device)
    got = torch.autograd.grad(output, leaves, cotangent)
    for ours, theirs in zip(got, torch.autograd.grad(base, twins, cotangent), strict=True):
        assert torch.equal(ours[:, ordinary], theirs[:, ordinary])


def test_dropout_drops():
    query, key, value, _ = random_heads(1, 2, 10, 4)
    outputs = [
        jump_attention(query, key, value, config=JatConfig(), dropout_p=p) for p in (0.0, 0.5)
    ]
    assert not torch.equal(*outputs)


# --- memory, determinism, compilation ------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks that a short sequence outgrows, as long ones outgrow the real blocks."""
    for name in (
        "kernels.significance.BLOCK",
        "kernels.threshold_product.BLOCK",
        "operators.threshold.BLOCK",
        "adjacency.pairs.BLOCK",
        "adjacency.pairs.SOFT_VOTES",
    ):
        monkeypatch.setattr(f"jat_graph.jumps.{name}", 512)
    monkeypatch.setattr("jat_graph.jumps.operators.threshold.KEPT_KEYS", 16)


def measure(config, length):
    leaves = [t.float().requires_grad_() for t in random_heads(1, 1, length, 4)[:3]]
    with MemoryMeter() as meter:
        output = jump_attention(*leaves, config=config)
        output.sum().backward()
    assert all(leaf.grad.abs().sum() > 0 for leaf in leaves[::2])
    return meter


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "settings",
    [
        {"key_selection": "all"},
        {"key_selection": "significance", "hop_weights": (0.5, 0.5)},
        {"key_selection": "significance", "nodes": "selected"},
        {"key_selection": "sampled"},
        {"key_selection": "strided"},
        {"key_selection": "sampled_queries"},
        {"vote_rate": 0.1},
    ],
)
def test_threshold_stores_nothing_of_size_l_by_l(settings, monkeypatch):
    monkeypatch.setattr("jat_graph.jumps.adjacency.pairs.SAMPLED_TRIPLES", 256)
    length = 160
    meter = measure(JatConfig.paper(backend="threshold", key_factor=2.0, **settings), length)
    assert meter.largest < length**2 / 4
    assert meter.peak < length**2 * 4  # bytes of one such matrix


@pytest.mark.parametrize(
    ("mask", "value_width", "hop_weights"),
    [
        (None, 4, (0.0, 1.0)),
        ("padding", 8, (0.5, 0.5)),
        ("padding", 24, (0.5, 0.25, 0.5)),
        (None, 24, (0.5, 0.5)),
    ],
)
@pytest.mark.parametrize("backend", ["threshold", "dense"])
def test_attention_after_any_hops_is_flash_and_stores_no_l_by_l(
    backend, hop_weights, value_width, mask
):
    length, generator = 200, torch.Generator().manual_seed(0)
    config = JatConfig(
        PairGraph(backend=backend, threshold=0.5, key_selection="significance"),
        hop_weights=hop_weights,
    )
    leaves = [
        torch.randn(1, 1, length, size, generator=generator).requires_grad_()
        for size in (8, 8, value_width)
    ]
    valid = torch.arange(length)[None] < (length - 9 if mask else length)
    with MemoryMeter() as meter, count_operations() as seen:
        output = jump_attention(*leaves, config=config, attention_mask=valid)
        output[:, :, valid[0]].sum().backward()
    assert sdpa_kernels(seen) == {"flash"}
    assert all(leaf.grad.abs().sum() > 0 for leaf in leaves)
    allowed = {"jat_graph.count_votes.default"} if backend == "dense" else set()  # A itself
    assert {name for name, size in meter.allocated.items() if size >= length**2} == allowed


@pytest.mark.parametrize("hop_weights", [(0.0, 1.0), (0.5, 0.5)])
def test_attention_in_a_decoder_stores_no_l_by_l_beyond_the_scores(hop_weights):
    length = 200
    config = JatConfig(
        PairGraph(backend="dense", threshold=0.5, nodes="all"), hop_weights=hop_weights
    )
    leaves = [torch.randn(1, 1, length, 8).requires_grad_() for _ in range(3)]
    with MemoryMeter() as graph:
        jump_operator(*leaves[:2], config=config, is_causal=True)
    with MemoryMeter() as meter, count_operations() as seen:
        jump_attention(*leaves, config=config, is_causal=True).sum().backward()
    assert sdpa_kernels(seen) == {"flash"}
    squares = [
        {name for name, size in m.allocated.items() if size >= length**2} for m in (graph, meter)
    ]
    assert squares[0] == squares[1]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("backend", "soft_temperature"), [("dense", None), ("dense", 0.5), ("sparse", None)]
)
def test_nothing_of_size_l_by_l_by_l_is_stored(backend, soft_temperature):
    length = 96
    meter = measure(
        JatConfig(PairGraph(backend=backend, soft_temperature=soft_temperature)), length
    )
    pairs = length * (length - 1)  # that may have an edge, of two ends and a weight
    assert pairs <= meter.largest <= 3 * length**2
    assert meter.peak <= 16 * length**2 * 4


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
def test_runs_are_equal_bit_for_bit(backend, device):
    heads = random_heads(2, 2, 19, 8, dtype=torch.float32, device=device)
    config = JatConfig(PairGraph(backend=backend, key_selection="sampled"), hop_weights=(0.5, 0.5))
    first = None
    for _ in range(10):
        leaves = [t.clone().requires_grad_() for t in heads[:3]]
        output = jump_attention(*leaves, config=config)
        result = [output, *torch.autograd.grad(output.square().sum(), leaves)]
        first = result if first is None else first
        assert all(map(torch.equal, result, first))


SLOW = pytest.mark.slow
SIGNIFICANT = JatConfig.paper(key_selection="significance")
SAMPLED = JatConfig.paper(key_selection="sampled", nodes="selected")
STONES = JatConfig.stones(key_selection="all", strength=0.5)


# Said by torch, which makes one while it compiles.
@pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    ("config", "causal", "engine"),
    [
        pytest.param(SIGNIFICANT.replace(backend="threshold"), False, "inductor", marks=SLOW),
        pytest.param(STONES.replace(key_selection="sampled"), False, "inductor", marks=SLOW),
        (SIGNIFICANT, False, "aot_eager"),
        (JatConfig.released(backend="threshold"), False, "aot_eager"),
        (JatConfig.paper(soft_temperature=0.5, hop_weights=(0.5, 0.5)), False, "aot_eager"),
        pytest.param(SAMPLED, False, "aot_eager", marks=SLOW),
        pytest.param(STONES, True, "aot_eager", marks=SLOW),
    ],
)
def test_compiled_without_a_graph_break(config, causal, engine, device):
    length, mask = 70, None  # more than a block
    if not causal:
        length = 20
        mask = random_padding_mask(2, length, side="left", min_valid=9, device=device)
    heads = random_heads(
        2, 2, length, 8, attention_mask=mask, dtype=torch.float32, is_causal=causal, device=device
    )
    assert 0.1 <= heads.density <= 0.9
    options = {"attention_mask": mask, "is_causal": causal}

    def run(*qkv):
        return jump_attention(*qkv, config=config, **options)

    results = []
    for function in (run, torch.compile(run, fullgraph=True, backend=engine)):
        leaves = [t.clone().requires_grad_() for t in heads[:3]]
        output = function(*leaves)
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    plain, compiled = results
    base = jump_attention(*heads[:3], config=JatConfig(hop_weights=(1,)), **options)
    assert (plain[0] - base).abs().max() > 0.01
    torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"key_selection": "significance"},
        {"key_selection": "strided"},
        {"vote_rate": 0.1},
        pytest.param({}, marks=SLOW),
        pytest.param({"key_selection": "strided", "key_step": 2}, marks=SLOW),
    ],
)
def test_compiled_code_takes_a_matrix_where_no_key_looks_ahead(settings):
    query, key, value, density = random_heads(1, 2, 8, 4, is_causal=True)
    assert 0.1 <= density <= 0.9
    config = JatConfig.paper(backend="dense", **settings)
    triangle = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()

    def run(mask):
        return jump_attention(query, key, value, config=config, attention_mask=mask)

    torch._dynamo.reset()  # or it remembers what it refused
    if "key_step" in settings or not settings:
        assert_equal(torch.compile(run, backend="eager", fullgraph=True)(triangle), run(triangle))
        return
    with pytest.raises(ValueError, match=r"could use later tokens.*pass padding as attention_mask"):
        torch.compile(run, backend="eager")(triangle)


def test_autocast_changes_no_vote(device):
    heads = random_heads(2, 2, 16, 8, dtype=torch.float32, device=device)
    assert 0.1 <= heads.density <= 0.9
    config = JatConfig()
    want = jump_operator(*heads[:2], config=config).base.to_dense()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        got = jump_operator(*heads[:2], config=config).base.to_dense()
        output = jump_attention(*heads[:3], config=config)
    assert torch.equal(got, want)
    assert (output.float() - jump_attention(*heads[:3], config=config)).abs().max() < 0.1


# --- bad input -----------------------------------------------------------------------------------

GOOD = {name: torch.randn(2, 3, 4, 8) for name in ("query", "key", "value")}
NOT_FINITE = torch.zeros(2, 3, 4, 8)
NOT_FINITE[1, 2, 3, 0] = math.nan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": torch.randn(3, 4, 8)}, "query"),
        ({"key": torch.randn(2, 3, 5, 8)}, "key"),
        ({"value": torch.randn(2, 3, 5, 8)}, "value"),
        ({"key": torch.randn(2, 3, 4, 8).half()}, "key"),
        ({"key": NOT_FINITE}, "key must be finite .* in sequence 1, head 2, token 3"),
        ({"value": GOOD["value"] / 0}, "value.* sequence 0, head 0, token 0"),
        ({"config": {"threshold": 1}}, "config must be a JatConfig, got dict"),
        ({"attention_mask": torch.ones(2, 5).bool()}, "attention_mask"),
        ({"attention_mask": torch.full((2, 4), math.nan)}, "attention_mask must hold finite bia"),
        ({"scale": math.nan}, "scale"),
        ({"dropout_p": 1.5}, "dropout_p"),
        ({"config": JatConfig(PairGraph(threshold=((1.0, 2.0),)))}, "threshold.*3.*got 2"),
        ({"config": JatConfig(PairGraph(threshold=((1.0,) * 3,) * 2))}, "threshold"),
        ({"config": JatConfig(hop_weights={(0, 1): (0, 1)})}, "hop_weights"),
    ],
)
def test_bad_input_gives_one_clear_line(change, words):
    arguments = {**GOOD, "config": JatConfig(), **change}
    tensors = [arguments.pop(name) for name in GOOD]
    with pytest.raises(ValueError, match=words) as caught:
        jump_attention(*tensors, **arguments)
    assert "\n" not in str(caught.value)


def probabilities(query, key, config):
    """Return the rows of attention, which read the identity."""
    value = torch.eye(query.size(2), dtype=query.dtype).expand(*query.shape[:3], -1)
    return jump_attention(query, key, value, config=config)


def test_only_scores_between_two_selected_nodes_change():
    query, key, _, _ = random_heads(1, 2, 16, 8)
    config = JatConfig(
        PairGraph(nodes="selected", key_selection="strided", num_keys=6), hop_weights=(0, 1)
    )
    scores = probabilities(query, key, config).log()
    moved = scores - query @ key.mT * 8**-0.5
    nodes = torch.zeros(16, dtype=torch.bool)
    nodes[[r * 16 // 6 for r in range(6)]] = True
    # A row is known but for a number, which scores to those that are no nodes give.
    moved = moved - moved[..., ~nodes].mean(-1, keepdim=True)
    changed, between = moved.abs() > 1e-9, nodes[:, None] & nodes[None, :]
    assert not (changed & ~between).any()
    assert changed[..., between].double().mean() > 0.3


def test_no_gradient_flows_through_hard_votes_but_through_soft_ones():
    query, key, _, density = random_heads(1, 2, 8, 4)
    assert 0.1 <= density <= 0.9
    query.requires_grad_()
    for temperature in (None, 0.5):
        config = JatConfig(PairGraph(soft_temperature=temperature))
        operator = jump_operator(query, key, config=config)
        assert operator.to_dense().requires_grad == (temperature is not None)
    (grad,) = torch.autograd.grad(operator.to_dense().square().sum(), query)
    assert grad.abs().max() > 0
