"""Thresholds from wanted densities, layer after layer as whole runs show them."""

import itertools
import logging
import math
import re
from collections import Counter
from typing import Any

import pytest
import torch

from jat_graph import ClusterGraph, fidelity, summary
from jat_graph.hf import attach, attached_config, detach
from jat_graph.inspection import calibrate, graph_statistics
from jat_graph.jumps.config import JatConfig, PairGraph
from tests.hf.models import LENGTH, TEXT, tiny_config, tiny_inputs, tiny_model
from tests.inspection.support import long_bert, padded_batch, random_batches, tiny_bert
from tests.support import captured_layers, layer_weights

CLUSTERS = JatConfig.clustered(dense_below=0, size=4, segment=16)
VARIANTS = [
    {},
    {"inclusive": True},
    {"same_sign_only": True},
    {"normalize_keys": True},
    {"key_selection": "significance", "key_factor": 1.5},
    {"key_selection": "sampled", "key_factor": 2.0, "same_sign_only": True},
    {"key_selection": "strided", "num_keys": 4, "normalize_keys": True, "inclusive": True},
    {"key_selection": "significance", "nodes": "selected", "key_factor": 3.0},
    {"hop_weights": {(0, 2): (0.0, 1.0), (3,): (0.5, 0.5)}},
    {"soft_temperature": 0.5},
]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(variant) or "plain")
def test_density_is_met_within_one_pair(variant: dict[str, Any], device: torch.device) -> None:
    model, batches = tiny_bert().to(device), random_batches(6)
    wanted = 0.1
    settings = {"heads": (0, 2, 3), "layers": (0, 2)} | variant
    config = calibrate(model, batches, density=wanted, config=JatConfig.paper(**settings))
    attach(model, config)
    statistics = graph_statistics(model, [*batches[:4], batches[5]])  # the fifth is held out
    assert [(s.layer, s.head) for s in statistics] == list(itertools.product((0, 2), (0, 2, 3)))
    for row in config.graph.threshold:
        assert all(0 < value < math.inf for value in row)
    for entry in statistics:
        # (i, k) and (k, i) are joined together: one pair is two of the ordered ones
        assert abs(entry.density * entry.pairs - wanted * entry.pairs) <= 2
        assert 0 < entry.mean_weight <= 1


def test_statistics_count_what_the_graph_holds() -> None:
    model, batches = tiny_bert(), random_batches(2)
    attach(model, JatConfig(PairGraph(threshold=10.0), heads=(1, 3), layers=(1,)))
    statistics = graph_statistics(model, batches)
    weights = [layer_weights(captured_layers(model, batch)[0]) for batch in batches]
    pairs = sum(n * (n - 1) for n in (12, 9, 6)) * 2
    for place, entry in enumerate(statistics):
        values = torch.cat([w[:, place].flatten() for w in weights])
        joined = values[values > 0]
        assert entry.pairs == pairs
        assert entry.density == pytest.approx(len(joined) / pairs)
        assert entry.mean_weight == pytest.approx(float(joined.mean()))
        assert 0.1 < entry.density < 0.9


def test_soft_votes_are_counted_hard() -> None:
    model, batches = tiny_bert(), random_batches(1)
    attach(model, JatConfig(PairGraph(threshold=4.0), layers=(0,)))
    hard = graph_statistics(model, batches)
    detach(model)
    attach(model, JatConfig(PairGraph(threshold=4.0, soft_temperature=2.0), layers=(0,)))
    assert graph_statistics(model, batches) == hard
    assert 0.1 < hard[0].density < 0.9


def test_a_quantile_below_zero_becomes_zero() -> None:
    model = tiny_bert()
    config = JatConfig(
        PairGraph(key_selection="significance", num_keys=1, same_sign_only=True), layers=(0,)
    )
    table = calibrate(model, random_batches(1), density=0.99, config=config).graph.threshold
    assert table == ((0.0,) * 4,)


def test_without_a_pair_the_threshold_is_infinite() -> None:
    model = tiny_bert()
    batch = {"input_ids": torch.tensor([[5], [6]])}
    config = calibrate(model, [batch])
    assert config.graph.threshold == ((math.inf,) * 4,) * 3
    attach(model, config)
    assert graph_statistics(model, [batch])[0].density == 0.0
    assert bool(model(**batch).last_hidden_state.isfinite().all())


def test_calibration_is_deterministic_and_leaves_labels_out() -> None:
    model, batches = tiny_bert(), random_batches(3)
    first = calibrate(model, batches, density=0.2)
    labelled = [batch | {"labels": torch.tensor([0, 1, 0])} for batch in batches]
    assert calibrate(model, iter(labelled), density=0.2) == first
    assert JatConfig.from_dict(first.to_dict()) == first


@pytest.mark.parametrize("before", [None, JatConfig(PairGraph(threshold=4.0), layers=(0,))])
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_comes_back_as_it_was(before: JatConfig | None, fails: bool) -> None:
    model, batches = tiny_bert(), random_batches(2)
    if before is not None:
        attach(model, before)
    output = model(**batches[0]).last_hidden_state
    model.encoder.layer[0].train()
    names = {name: set(vars(module)) for name, module in model.named_modules()}
    if fails:
        broken = {"input_ids": torch.tensor([[401]])}
        with pytest.raises(IndexError):
            calibrate(model, [batches[0], broken, batches[1]])
    else:
        found = calibrate(model, batches).replace(threshold=6.0)
        assert found == (before or JatConfig()).replace(threshold=6.0)
    assert attached_config(model) == before
    assert [layer.training for layer in model.encoder.layer] == [True, False, False]
    assert {name: set(vars(module)) for name, module in model.named_modules()} == names
    assert torch.equal(model.eval()(**batches[0]).last_hidden_state, output)


def test_jump_heads_keep_what_they_learned() -> None:
    config = JatConfig(PairGraph(threshold=0.5), heads=2, strength="learned")
    model, batch = attach(tiny_bert(), config).eval(), random_batches(1)[0]
    base = model(**batch).last_hidden_state
    strengths = [s for name, s in model.named_parameters() if "strength" in name]
    for strength in strengths:
        strength.data.fill_(0.5)
    before = model(**batch).last_hidden_state
    assert not torch.allclose(before, base, atol=1e-3)
    found = calibrate(model, [batch], density=0.3)
    assert torch.equal(model(**batch).last_hidden_state, before)
    # Measured with the jumps of the layers below, as strong as they are.
    learned = model.state_dict()
    attach(detach(model), found).load_state_dict(learned)
    assert all(0.2 < head.density <= 0.3 for head in graph_statistics(model, [batch]))


@pytest.mark.parametrize(
    ("count", "held_out"), [(1, []), (2, [1]), (4, [3]), (5, [4]), (11, [4, 9])]
)
def test_every_fifth_batch_is_held_out(count, held_out, caplog):
    model, batches = tiny_bert(), random_batches(count)
    batches = [b if n in held_out else batches[0] for n, b in enumerate(batches)]
    settings = JatConfig(layers=(0,))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        config = calibrate(model, batches, density=0.2, config=settings)
    assert len(caplog.records) == 1 + bool(held_out)
    assert config == calibrate(model, batches[:1], density=0.2, config=settings)


@pytest.mark.parametrize(("density", "level"), [(0.3, "INFO"), (0.001, "WARNING")])
def test_a_density_that_is_far_off_is_a_warning(density, level, caplog):
    one, two = random_batches(2)
    other = {"input_ids": two["input_ids"][:, :2]}  # its one pair is joined, or it is not
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        calibrate(tiny_bert(), [one, one if level == "INFO" else other], density=density)
    assert caplog.records[-1].levelname == level


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"density": 0.0}, "density must"),
        ({"density": "a"}, "density must"),
        ({"density": math.nan}, "density must"),
        ({"batches": []}, "batches must"),
        ({"batches": [torch.zeros(1)]}, "batches must"),
        ({"config": JatConfig(PairGraph(vote_rate=0.1))}, "vote_rate must"),
        ({"config": JatConfig.stones()}, "graph must"),
        ({"config": CLUSTERS, "tolerance": 0}, "tolerance must be above 0"),
        ({"config": CLUSTERS, "tolerance": "a"}, "tolerance must be a number"),
        ({"config": CLUSTERS, "density": 0.1}, "density needs graph=.pairs., got .clusters."),
        ({"config": JatConfig(), "tolerance": 0.1}, "tolerance needs graph=.clusters., got .pairs"),
        ({"tolerance": 0.1, "batches": []}, "batches must"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(**({"model": tiny_bert(), "batches": random_batches(1)} | arguments))
    with pytest.raises(ValueError, match="must have jump heads"):
        graph_statistics(tiny_bert(), random_batches(1))


# --- layer after layer ---------------------------------------------------------------------------


def critical_products(layer):
    """The largest product of each pair of a layer's first head, by its definition: [pairs]."""
    scores = layer.scale * layer.query[:, 0] @ layer.key[:, 0].mT
    allowed = torch.ones_like(scores, dtype=torch.bool)
    seen = layer.mask.allowed(scores.size(-1), scores.device)
    if seen is not None:
        allowed &= seen[:, 0]
    products = scores[:, :, None] * scores[:, None]
    products = products.masked_fill(~(allowed[:, :, None] & allowed[:, None]), -math.inf).amax(-1)
    return products[allowed & ~torch.eye(scores.size(-1), dtype=torch.bool)]


def assert_is_that_of_whole_runs(config, model, batches):
    """Compare a table with the quantiles of whole runs, in which the layers before jump."""
    layers = [layer.layer for layer in captured_layers(attach(model, config), batches[0])]
    table = config.graph.threshold
    assert len(table) == len(layers)
    for row, found in enumerate(table):
        here = None if row == len(table) - 1 else tuple(layers[: row + 1])
        closed = (*table[:row], (math.inf,) * len(found))
        attach(detach(model), config.replace(threshold=closed, layers=here))
        parts = [critical_products(captured_layers(model, batch)[row]) for batch in batches]
        values = torch.cat(parts).sort().values
        wanted = values[math.ceil((1 - 0.3) * len(values)) - 1]
        assert found[0] == pytest.approx(max(0.0, float(wanted)), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT)
def test_every_layer_is_measured_as_in_a_whole_run(name: str) -> None:
    used = [tiny_inputs(name), tiny_inputs(name, (LENGTH, LENGTH - 3))]
    config = calibrate(
        tiny_model(name), [*used, used[0]], density=0.3, config=tiny_config()
    )  # the third batch is held out
    assert_is_that_of_whole_runs(config, tiny_model(name), used)


def test_no_layer_runs_more_than_twice_for_a_batch() -> None:
    model, runs = tiny_bert(layers=6), Counter()
    for place, layer in enumerate(model.encoder.layer):
        layer.attention.self.register_forward_hook(lambda *_, place=place: runs.update([place]))
    calibrate(model, random_batches(5))
    # Four batches twice; the first of them three times more, to find the layers; then all once.
    assert max(runs.values()) <= 4 * 2 + 3 + 5


def test_layers_that_are_no_chain_run_whole() -> None:
    """What the first layer gives goes around two others, as in no model of transformers."""
    model, batches = tiny_bert(layers=4), random_batches(1)
    given = []
    first, _, _, last = model.encoder.layer
    first.register_forward_hook(lambda module, args, output: given.append(output))
    last.register_forward_pre_hook(lambda module, args: (args[0] + given[-1], *args[1:]))
    config = calibrate(model, batches, density=0.3, config=JatConfig(PairGraph(), heads=1))
    assert_is_that_of_whole_runs(config, model, batches)


# --- clusters from a tolerance -------------------------------------------------------------------

LADDER = (8, 16, 32, 64, 128, 256, 512)  # keys


def long_batches(count: int, lengths: tuple[int, ...] = (160, 160)) -> list[dict[str, Any]]:
    return [padded_batch(lengths, seed) for seed in range(count)]


def rungs(config: JatConfig) -> list[list[Any]]:
    """Return the keys of each layer and head; None for a dense one."""
    graph: Any = config.graph
    return [
        [None if below == math.inf else own for own, below in zip(row, dense, strict=True)]
        for row, dense in zip(graph.keys, graph.dense_below, strict=True)
    ]


def logged_errors(caplog: pytest.LogCaptureFixture) -> dict[str, tuple[float, float]]:
    """Return the mean and the largest error on used and on held-out batches."""
    line = re.compile(r"error on (\S+) batches: mean ([\d.]+), at most ([\d.]+)")
    found = (line.match(record.getMessage()) for record in caplog.records)
    return {m[1]: (float(m[2]), float(m[3])) for m in found if m is not None}


@pytest.mark.parametrize("tolerance", [0.2, 0.07])
def test_the_cheapest_rung_within_the_tolerance_is_taken(tolerance: float) -> None:
    model, used = long_bert(1), long_batches(1)
    (taken,) = rungs(calibrate(model, used, tolerance=tolerance, config=CLUSTERS))
    reports = {keys: fidelity(model, used, CLUSTERS.replace(keys=keys)) for keys in LADDER}
    for head, own in enumerate(taken):
        costs: dict[Any, float] = {None: 1.0}
        for keys, report in reports.items():
            if report.heads[head].error <= tolerance:
                costs[keys] = report.heads[head].share
        assert own == min(costs, key=lambda keys: costs[keys])
    assert len(set(taken)) > 1


def test_the_tolerance_is_kept_with_the_layers_below_as_chosen(caplog):
    model, used = long_bert(3), long_batches(2, (160, 90))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        config = calibrate(model, [*used, used[0]], tolerance=0.1, config=CLUSTERS)
    mean, most = logged_errors(caplog)["used"]
    assert 0.03 < mean < most <= 0.1
    assert [len(row) for row in rungs(config)] == [4, 4, 4]


def test_a_layer_is_measured_on_what_those_below_give(caplog: pytest.LogCaptureFixture) -> None:
    model, used = long_bert(2), long_batches(1)
    seen: list[torch.Tensor] = []
    module = model.encoder.layer[1].attention.self
    hook = module.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    config = calibrate(model, used, tolerance=0.15, config=CLUSTERS)
    hook.remove()
    rows = {name: getattr(config.graph, name)[:1] for name in ("keys", "dense_below")}
    below = attach(model, CLUSTERS.replace(layers=(0,), **rows))
    with torch.no_grad():
        given = below(**used[0], output_hidden_states=True).hidden_states[1]
        own = detach(model)(**used[0], output_hidden_states=True).hidden_states[1]
    assert torch.equal(seen[-2], given)  # the last is of the log
    assert not torch.equal(given, own)


def test_a_head_that_none_serve_is_dense(caplog: pytest.LogCaptureFixture) -> None:
    model, used = long_bert(), long_batches(1)
    config = calibrate(model, used, tolerance=1e-9)
    assert rungs(config) == [[None] * 4] * 2
    before = model(**used[0]).last_hidden_state
    assert torch.equal(attach(model, config)(**used[0]).last_hidden_state, before)
    # Nor is anything cheaper where everything would be read.
    short = calibrate(long_bert(), long_batches(1, (9, 8)), tolerance=0.5)
    assert rungs(short) == [[None] * 4] * 2 and caplog.text.count("8 of them dense") == 2


def test_the_config_says_from_where_on_and_is_saved() -> None:
    model, used = long_bert(), long_batches(1)
    base = CLUSTERS.replace(dense_below=None)
    config = calibrate(model, used, tolerance=0.1, config=base)
    assert {x for row in config.graph.dense_below for x in row} == {None}
    assert JatConfig.from_dict(config.to_dict()) == config
    base = base.replace(dense_below=300, propagate=False)
    other = calibrate(model, used, tolerance=0.2, config=base)
    assert {x for row in other.graph.dense_below for x in row} == {300}
    assert other.graph.propagate is False
    again = calibrate(attach(model, config), used, tolerance=0.1)
    assert again == config
    assert attached_config(model, ClusterGraph) == config
    assert " keys, 16 groups, dense below a" in summary(model)


def test_a_held_out_error_above_the_tolerance_is_a_warning(caplog):
    (one,), (longer,) = long_batches(1), long_batches(1, (256, 256))
    for held_out, level in ((one, "INFO"), (longer, "WARNING")):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="jat_graph"):
            calibrate(long_bert(), [one, held_out], tolerance=0.06, config=CLUSTERS)
        assert [record.levelname for record in caplog.records] == ["INFO", level]
        found = logged_errors(caplog)
        assert (found["held-out"][0] > 0.06) == (level == "WARNING")
        assert (found["held-out"] == found["used"]) == (held_out is one)


def test_an_encoder_and_its_decoder_are_served() -> None:
    used = [{"input_ids": torch.randint(3, 40, (2, 60))}]
    config = calibrate(tiny_model("bart"), used, tolerance=0.5, config=CLUSTERS)
    graph: Any = config.graph
    assert [len(row) for row in graph.keys] == [4] * 4  # those of the encoder, then the decoder's
    attach(tiny_model("bart"), config)
