import dataclasses
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph import ClusterGraph, JatConfig, PairGraph, StoneGraph
from jat_graph.jumps.config import CONFIG_VERSION

# Together they set each field to another value than its default.
WRITTEN = [
    JatConfig(
        PairGraph(
            threshold=((1, 2.5), (math.inf, 0)),
            key_selection="strided",
            key_step=3,
            same_sign_only=True,
            normalize_keys=True,
            inclusive=True,
            nodes="selected",
            standardize=True,
            backend="threshold",
        ),
        heads=(5, 1),
        layers=(2, 0),
        hop_weights={(1,): (0, 1), (5,): (0.5, -0.5, 1e-6)},
        pattern="window:9",
        seed=2**63 - 1,
    ),
    JatConfig(
        PairGraph(vote_rate=1e-6, num_keys=9, key_factor=1e-3, soft_temperature=0.1),
        heads="even:3",
        hop_weights=(0.5, 0.5),
    ),
    JatConfig(PairGraph(max_neighbors=4), strength=0.5, hops=2),
    JatConfig.stones(threshold=math.inf, incidence="sigmoid", soft_temperature=1e6),
    JatConfig.stones(
        sides="positive",
        self_weight=0,
        conv={"layer": "APPNP", "K": 10, "alpha": 0.1},
        strength=("learned", 0.5, -9),
        excluded_token_ids=(3, 1),
    ),
    JatConfig.clustered(keys=4, groups=2**31, size=2, segment=16, window=4, propagate=False),
    JatConfig.clustered(dense_below=math.inf, margin=math.inf),
    JatConfig.clustered(keys=((0, 1), (2,)), dense_below=((math.inf, 4), (0,)), groups=((1, 2),)),
]


@pytest.mark.parametrize("config", WRITTEN)
def test_json_and_back(config, tmp_path):
    config.save(tmp_path / "jat.json")
    assert JatConfig.load(tmp_path / "jat.json") == config


def test_each_field_is_written():
    every = [settings for config in WRITTEN for settings in (config, config.graph)]
    changed = {
        name
        for settings in every
        for name in settings.names()
        if getattr(settings, name) != getattr(type(settings), name)
    }
    assert changed == set(JatConfig.field_names())


# As the first two versions of the format wrote them.
OLD = json.loads("""{
    "threshold": 6.0, "vote_rate": null, "hop_weights": [0.0, 1.0], "heads": 4, "layers": null,
    "key_selection": "all", "num_keys": null, "key_factor": 5.0, "key_step": null,
    "same_sign_only": false, "normalize_keys": false, "inclusive": false, "nodes": "all",
    "soft_temperature": null, "backend": "auto", "seed": 0, "pattern": null
}""")
SECOND = json.loads("""{
    "graph": "pairs", "standardize": false, "incidence": "excess", "sides": "both",
    "self_weight": 0.1, "strength": null, "hops": 1, "silent_tokens": [], "conv": null,
    "min_weight": 0.0, "max_neighbors": null
}""")
STONES = {"graph": "stones", "threshold": 1.5, "standardize": True, "strength": "learned"}


@pytest.mark.parametrize(
    ("written", "config"),
    [
        ({"version": 1} | OLD, JatConfig()),
        ({"graph": {"kind": "clusters", "refine": 1}, "heads": "all"}, JatConfig.clustered()),
        (
            {"graph": {"kind": "clusters", "clusters": None, "block": 64}, "heads": "all"},
            JatConfig.clustered(),
        ),
        ({"graph": {"kind": "pairs", "min_weight": 0.0}}, JatConfig()),
        (
            {"version": 1} | OLD | {"threshold": [["inf", 1]], "hop_weights": [[[0, 1], [0, 1]]]},
            JatConfig.paper(threshold=((math.inf, 1.0),), hop_weights={(0, 1): (0, 1)}),
        ),
        (
            {"version": 2} | OLD | SECOND | STONES | {"heads": "all", "silent_tokens": [101]},
            JatConfig.stones(threshold=1.5, excluded_token_ids=(101,)),
        ),
        (
            {"version": 2} | OLD | SECOND | {"strength": "learned", "conv": {"layer": "GCNConv"}},
            JatConfig(conv="GCNConv"),
        ),
        (
            {"version": 2} | OLD | SECOND | {"max_neighbors": 4},
            JatConfig(PairGraph(max_neighbors=4)),
        ),
    ],
)
def test_older_versions_are_read(written, config):
    assert JatConfig.from_dict(written) == config


def test_lists_are_taken_as_tuples_and_indices_are_sorted():
    config = JatConfig(
        PairGraph(threshold=[[1, 2]]), heads=[3, 1], layers=[5, 2], hop_weights=[0, 1]
    )
    assert (config.heads, config.layers) == ((1, 3), (2, 5))
    assert (config.hop_weights, config.graph.threshold) == ((0.0, 1.0), ((1.0, 2.0),))
    assert JatConfig(hop_weights={2: [0, 1]}).hop_weights == {(2,): (0.0, 1.0)}


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        JatConfig().heads = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        JatConfig().graph.threshold = 3.0


@pytest.mark.parametrize(
    "fields", [{}, {"graph": "stones"}, {"graph": "clusters"}, {"heads": 2, "strength": 0.5}]
)
def test_a_config_is_made_in_compiled_code(fields):
    @torch.compile(backend="eager", fullgraph=True)
    def scaled(x):
        return x * getattr(JatConfig(**fields).graph, number)

    number = "window" if fields.get("graph") == "clusters" else "threshold"
    assert scaled(torch.ones(1)) == getattr(JatConfig(**fields).graph, number)


def test_stones_begin_at_no_jump():
    config = JatConfig.stones()
    assert config.graph == StoneGraph() == JatConfig(StoneGraph()).graph
    assert config.strengths() == (("learned",) * 3,)
    assert config.head_indices(3) == (0, 1, 2)
    assert JatConfig.stones(strength=0.5, hops=2).strengths() == ((0.5,) * 3,) * 2
    assert JatConfig().strengths() == ()


def test_clusters_take_all_heads_and_nothing_of_jumps():
    config = JatConfig.clustered()
    assert config == JatConfig(ClusterGraph(), heads="all") == JatConfig("clusters", heads="all")
    assert JatConfig.clustered(keys=64, layers=(1,)) == JatConfig(
        ClusterGraph(keys=64), heads="all", layers=(1,)
    )
    assert config.strengths() == ()
    assert JatConfig().replace(graph="clusters").graph == ClusterGraph()


def test_presets():
    paper = JatConfig.paper()
    assert (paper.graph, paper.hop_weights, paper.heads) == (PairGraph(), (0.0, 1.0), 4)
    released = JatConfig.released()
    assert released.graph == PairGraph(threshold=3.0, inclusive=True, normalize_keys=True)
    assert (released.hop_weights, released.heads) == ((0.5, 0.5), "even:2")
    assert released.layers == (1, 2, 6, 7, 10)
    rated = JatConfig.released(vote_rate=0.1).graph  # in the place of the preset's 3
    assert (rated.vote_rate, rated.threshold) == (0.1, PairGraph().threshold)
    fast = JatConfig.released(efficient=True, layers=(0,))
    assert fast.graph == dataclasses.replace(
        released.graph, nodes="selected", key_selection="sampled_queries", key_factor=2.0
    )
    assert fast.layers == (0,)


def test_fields_of_the_graph_are_replaced_beside_the_others():
    config = JatConfig().replace(threshold=4, heads=2, graph=PairGraph(inclusive=True))
    assert config == JatConfig(PairGraph(threshold=4.0, inclusive=True), heads=2)
    assert set(JatConfig.field_names()) >= {"graph", "threshold", "incidence", "heads"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threshold": -1}, "threshold must be at least 0, got -1"),
        ({"threshold": math.nan}, "threshold must be a number, got nan"),
        ({"threshold": True}, "threshold must be a number, got True"),
        ({"threshold": [[1.0, math.nan]]}, "threshold must be a number, got nan"),
        ({"threshold": [[1.0, -2.0]]}, "threshold must be at least 0, got -2.0"),
        ({"threshold": []}, r"threshold must be a number or a table .*, got \[\]"),
        ({"hop_weights": (1, math.inf)}, "hop_weights must be finite, got inf"),
        ({"heads": "even:0"}, "heads must be a number, 'all', 'even:n' or indices, got 'even:0'"),
        ({"heads": ()}, r"heads must be one or more indices from 0, got \(\)"),
        ({"layers": 3}, "layers must be a sequence of indices, got 3"),
        ({"graph": "clusters", "keys": [[1], [-2]]}, "keys must be at least 0, got -2"),
        ({"graph": "clusters", "pattern": "window:4"}, "pattern must not be set with graph='clus"),
        ({"excluded_token_ids": (1, 1)}, "excluded_token_ids must not name an index twice, got"),
        ({"threshold": [1.0, 2.0]}, r"threshold must be a number or a table .*, got \[1.0, 2.0\]"),
        ({"threshold": [[1, 2], [3]]}, r"threshold needs rows of one length, .*, got \[1, 2\]"),
        ({"conv": "os.system"}, "conv must name a layer of .*, got 'os.system'"),
        ({"vote_rate": 0.0}, "vote_rate must be above 0, got 0.0"),
        ({"vote_rate": 1.0}, "vote_rate must be below 1, got 1.0"),
        ({"vote_rate": 0.1, "threshold": [[1]]}, r"not be set with vote_rate, got \(\(1.0,\),\)"),
        ({"vote_rate": 0.1, "threshold": 2.0}, "threshold must not be set with vote_rate, got 2.0"),
        ({"hop_weights": ()}, r"hop_weights must be one or more numbers, got \(\)"),
        ({"hop_weights": (0, 0.0)}, r"hop_weights must not be all zero, got \(0, 0.0\)"),
        ({"hop_weights": {}}, "hop_weights must name at least one group"),
        ({"hop_weights": {(0,): (0, 1), (1, 0): (1,)}}, "hop_weights must name each head once"),
        ({"hop_weights": {(-1,): (0, 1)}}, "hop_weights heads must be one or more indices from 0"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"soft_temperature": math.inf}, "soft_temperature must be finite, got inf"),
        ({"graph": "clusters", "strength": 1.0}, "strength must not be set with graph='clusters'"),
        ({"heads": 2.0}, "heads must be a sequence of indices, got 2.0"),
        ({"heads": "odd:2"}, "heads must be a number, 'all', 'even:n' or indices, got 'odd:2'"),
        ({"heads": (1, 1)}, r"heads must not name an index twice, got \(1, 1\)"),
        ({"layers": (-1,)}, r"layers must be one or more indices from 0, got \(-1,\)"),
        ({"key_selection": "top"}, "key_selection must be one of all, .*, got 'top'"),
        ({"nodes": "some"}, "nodes must be one of all, selected, got 'some'"),
        ({"backend": "cuda"}, "backend must be one of auto, dense, .*, got 'cuda'"),
        ({"num_keys": 0}, "num_keys must be at least 1, got 0"),
        ({"num_keys": 2.5}, "num_keys must be an integer, got 2.5"),
        ({"key_factor": 0}, "key_factor must be above 0, got 0"),
        ({"key_step": 2}, "key_step needs key_selection='strided', got 'all'"),
        ({"key_step": 0, "key_selection": "strided"}, "key_step must be at least 1, got 0"),
        (
            {"key_step": 2, "num_keys": 3, "key_selection": "strided"},
            "num_keys must be None with key_step, .*, got 3",
        ),
        ({"same_sign_only": 1}, "same_sign_only must be True or False, got 1"),
        ({"soft_temperature": 0.0}, "soft_temperature must be above 0, got 0.0"),
        ({"soft_temperature": 1.0, "backend": "sparse"}, "needs backend='dense' or 'auto', got"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 2**63}, "seed must be below"),
        ({"graph": "stones", "vote_rate": 0.1}, "vote_rate needs graph='pairs', got 'stones'"),
        ({"graph": "stones", "hop_weights": (1, 1)}, "hop_weights must not be set with strength"),
        ({"graph": "stones", "backend": "threshold"}, "backend must be one of auto, dense, sp"),
        (
            {"graph": "stones", "backend": "sparse", "incidence": "sigmoid"},
            "incidence='sigmoid' needs backend='dense' or 'auto', got 'sparse'",
        ),
        (
            {"graph": "stones", "soft_temperature": 1.0},
            "soft_temperature needs incidence='sigmoid'",
        ),
        ({"sides": "positive"}, "sides needs graph='stones', got 'pairs'"),
        ({"graph": "stones", "self_weight": math.inf}, "self_weight must be finite"),
        ({"graph": "webs"}, "graph must be a PairGraph or a .* or clusters, got 'webs'"),
        ({"graph": "clusters", "groups": 0}, "groups must be at least 1, got 0"),
        ({"graph": "clusters", "keys": 0.5}, "keys must be an integer, got 0.5"),
        ({"graph": "clusters", "window": None}, "window must be an integer, got None"),
        ({"graph": "clusters", "clusters": 9}, "unknown .*'clusters', which version 0.2.0 of"),
        ({"graph": {"kind": "clusters", "refine": 2}}, "'refine', which version 0.2.0 of"),
        ({"min_weight": 0.5}, "unknown config field 'min_weight', which version 0.2.0 of"),
        ({"graph": "clusters", "dense_below": -1}, "dense_below must be at least 0, got -1"),
        ({"graph": "clusters", "propagate": 1}, "propagate must be True or False, got 1"),
        ({"graph": "clusters", "threshold": 1}, "threshold needs graph='pairs', got 'clusters'"),
        ({"keys": 8}, "keys needs graph='clusters', got 'pairs'"),
        ({"graph": "clusters", "hops": 2}, "hops must not be set with graph='clusters', got 2"),
        ({"graph": "clusters", "excluded_token_ids": [1]}, "excluded_token_ids must not be set"),
        ({"hops": 2}, "hops needs a strength, or hop_weights, got hops=2"),
        ({"strength": "much"}, "strength must be a number or 'learned', got 'much'"),
        ({"strength": (1, 2)}, "strength must be three numbers, for queries, keys and values, got"),
        ({"strength": (1, 2, 3), "hops": 2}, "strength must have three numbers for each of 2 hops"),
        ({"colour": 1}, "unknown config field 'colour', wanted one of .*'threshold'"),
        ({"treshold": 1}, r"unknown config field 'treshold', did you mean 'threshold'\?"),
        ({"version": CONFIG_VERSION + 1}, "config version must be at most 3 .* got 4; install"),
        ({"version": 0}, "config version must be at least 1, got 0"),
        ({"version": "1"}, "config version must be an integer, got '1'"),
        ({"hop_weights": [[[0], [0, 1], 2]]}, "hop_weights must be numbers or pairs"),
    ],
)
def test_bad_fields_are_named_in_one_line(fields, words):
    with pytest.raises(ValueError, match=words) as caught:
        JatConfig.from_dict(fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "nul"])
def test_a_file_that_is_no_config_is_named(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"config .*broken.json must be"):
        JatConfig.load(path)
    with pytest.raises(FileNotFoundError):
        JatConfig.load(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("heads", "chosen"), [(3, (0, 1, 2)), ("even:3", (0, 2, 4)), ((1, 5), (1, 5)), (12, range(12))]
)
def test_which_heads_jump(heads, chosen):
    assert JatConfig(heads=heads).head_indices(12) == tuple(chosen)


@pytest.mark.parametrize("heads", [13, (0, 12), "even:7"])
def test_heads_that_a_model_lacks_are_refused_where_something_jumps(heads):
    with pytest.raises(ValueError, match=r"heads=.* needs head 12, but .* 12 heads"):
        JatConfig(heads=heads).head_indices(12)
    for still in ({"hop_weights": (1,)}, {"strength": 0.0, "hops": 2}):
        assert JatConfig(heads=heads, **still).head_indices(2) == (0, 1)


@pytest.mark.parametrize("settings", [JatConfig, PairGraph, StoneGraph, ClusterGraph])
def test_settings_are_known_fields_by_name(settings):
    fields = ", ".join(field.name for field in dataclasses.fields(settings))
    for name in ("quux", "kind", "self", "cls"):
        known = rf"(wanted one of {fields}|did you mean 'window'\?)"
        with pytest.raises(
            ValueError, match=rf"\Aunknown field {name!r} of {settings.__name__}, {known}\Z"
        ):
            settings(**{name: 1})
    first = dataclasses.fields(settings)[0].name
    with pytest.raises(ValueError, match=rf"of {settings.__name__}, did you mean '{first}'\?"):
        settings(**{f"{first}s": 1})
    for value in ([1], None, "heads", 3, {1: 2}, [["layers", (1,)]]):
        with pytest.raises(ValueError, match=r"must be a dict of fields by name, got [^\n]*\Z"):
            JatConfig.from_dict(value)


def test_which_layers_jump():
    assert JatConfig().layer_indices(3) == (0, 1, 2)
    assert JatConfig(layers=(4, 1)).layer_indices(6) == (1, 4)
    with pytest.raises(ValueError, match=r"layers=\(1, 4\) needs layer 4, but .* 4 layers"):
        JatConfig(layers=(1, 4)).layer_indices(4)


def test_the_config_of_one_layer():
    config = JatConfig(
        PairGraph(threshold=((1, 2, 3), (4, math.inf, 6))),
        hop_weights={(5,): (0, 1), (1, 3): (0, 0, 1)},
        heads=(1, 3, 5),
        layers=(2, 7),
    )
    second = config.for_layer(1, (1, 3, 5))
    assert second.graph.threshold == ((4.0, math.inf, 6.0),)
    assert second.hop_weights == {(2,): (0.0, 1.0), (0, 1): (0.0, 0.0, 1.0)}
    assert (second.heads, second.layers) == (3, None)
    assert second.for_layer(0, (0, 1, 2)) == second


@pytest.mark.parametrize(
    ("settings", "row", "heads", "words"),
    [
        ({"graph": "clusters", "keys": ((1, 2),)}, 1, (0, 1), "keys needs a row for jump layer 1"),
        ({"threshold": ((1, 2),)}, 1, (0, 1), "threshold needs a row for jump layer 1"),
        ({"threshold": ((1, 2),)}, 0, (0, 1, 2), "threshold row 0 must have 3 entries.*got 2"),
        ({"hop_weights": {(0,): (1,)}}, 0, (0, 1), r"wanted \[0, 1\], got \[0\]"),
        ({"hop_weights": {(0, 3): (1,)}}, 0, (0, 1), r"wanted \[0, 1\], got \[0, 3\]"),
    ],
)
def test_a_table_or_mapping_that_does_not_fit_a_layer(settings, row, heads, words):
    with pytest.raises(ValueError, match=words):
        JatConfig.paper(**settings).for_layer(row, heads)


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(("even:2", "inf", "all", "dense")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*JatConfig.field_names(), "version"])
@settings(max_examples=40)
@given(value=junk)
def test_anything_is_a_config_or_a_value_error_that_names_the_field(name, value):
    try:
        config = JatConfig.from_dict({name: value})
    except ValueError as error:
        assert name in str(error)
        assert "\n" not in str(error)
    else:
        assert JatConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_heads_that_share_the_settings_of_clusters_are_read_together():
    config = JatConfig.clustered(
        keys=((32, 8, 32), (1, 2, 3)),
        dense_below=((0, 0, 0), (math.inf, 0, math.inf)),
        size=4,
        propagate=False,
    )
    first, second = (config.for_layer(row, (0, 1, 2)).graph for row in (0, 1))
    assert (first.keys, second.dense_below) == (((32, 8, 32),), ((math.inf, 0, math.inf),))
    assert (first.size, first.window, first.propagate) == (4, 64, False)
    rules = first.rules(3, causal=False)
    read = {heads: (rule.keys, rule.groups, rule.size) for rule, heads in rules.items()}
    assert read == {(0, 2): (32, 16, 4), (1,): (8, 16, 4)}
    assert [rule.dense_below for rule in second.rules(3, causal=True)] == [2**40, 0, 2**40]
    for causal, wanted in {True: (512, 64, 4096), False: (128, 0, 4095)}.items():
        ((rule, heads),) = ClusterGraph().rules(4, causal).items()
        assert (rule.keys, rule.window, rule.dense_below) == wanted
        assert heads == (0, 1, 2, 3)
    with pytest.raises(ValueError, match=r"keys row 0 must have 2 entries.*got 3"):
        first.rules(2, causal=False)


def test_hop_groups_cover_each_head_once():
    assert JatConfig().hop_groups(3) == {(0, 1, 2): (0.0, 1.0)}
    mapping = {(0, 2): (1.0,), (1,): (0.0, 1.0)}
    assert JatConfig(hop_weights=mapping).hop_groups(3) == mapping
    with pytest.raises(ValueError, match=r"wanted \[0, 1\], got \[0, 1, 2\]"):
        JatConfig(hop_weights=mapping).hop_groups(2)
