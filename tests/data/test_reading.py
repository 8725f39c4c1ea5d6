"""What is read off tiny models, text by text, against their outputs."""

import pytest
import torch
from transformers import MambaConfig, MambaModel, PreTrainedModel

from jat_graph.config import JatConfig
from jat_graph.data.reading import Reading
from jat_graph.data.texts import encode_texts
from jat_graph.hf import attach, disabled
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import capture_batch
from tests.data.support import TEXTS, assert_is, attention_maps, slow_graph, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.support import MemoryMeter

HEADS = ((2, 3), (0, 1))


def reading(model: PreTrainedModel, **settings: object) -> Reading:
    defaults = {
        "nodes": "tokens",
        "edges": "attention",
        "heads": HEADS,
        "layer": 2,
        "min_weight": 0.02,
        "max_neighbors": 2,
    }
    return Reading.of(model, **defaults | settings)  # type: ignore[arg-type]


def eager(name: str) -> PreTrainedModel:
    model = tiny_model(name).double()
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "distilbert", "albert", "modernbert", "gpt2", "llama"]
)
@pytest.mark.parametrize("nodes", ["tokens", "words"])
def test_graphs_are_those_of_each_text_alone(name: str, nodes: str) -> None:
    model, tokenizer = eager(name), tiny_tokenizer(model_max_length=48)
    own, by_words = reading(model, nodes=nodes), nodes == "words"
    texts = encode_texts(TEXTS, model, tokenizer, None, by_words)
    graphs = list(own.graphs(model, texts, range(len(TEXTS)), 3))
    for text, graph in zip(TEXTS, graphs, strict=True):
        states, rows, words = attention_maps(model, tokenizer, text)
        maps = [rows[layer][head] for layer, head in HEADS]
        # Llama's softmax is in float32.
        tolerance = 1e-6 if name == "llama" else 1e-10
        wanted = slow_graph(states[2], maps, 0.02, 2, words if by_words else None)
        assert_is(graph, wanted, tolerance)
        ids = graph.word_ids if by_words else graph.input_ids
        tokens = tokenizer(text)["input_ids"]
        assert ids.tolist() == (list(range(len(text.split()))) if by_words else tokens)


@pytest.mark.parametrize(
    "config", [tiny_config(), JatConfig.stones(layers=(0, 2)), tiny_config(soft_temperature=0.1)]
)
def test_jumps_are_the_graphs_of_jump_heads(config: JatConfig) -> None:
    tokenizer = tiny_tokenizer()
    model = attach(tiny_model("bert").double(), config, tokenizer)
    heads = ((2, 2), (0, 0))
    own = reading(model, edges="jumps", heads=heads, min_weight=0.0, max_neighbors=None)
    texts = encode_texts(TEXTS, model, tokenizer, None, False)
    graphs = list(own.graphs(model, texts, range(len(TEXTS)), 5))
    assert any(graph.num_edges for graph in graphs)
    for text, graph in zip(TEXTS, graphs, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        layers = {own.layer: own for own in capture_batch(model, inputs)}
        maps = [
            layer_graph(layers[layer]).weights[0, layers[layer].heads.index(head)]
            for layer, head in heads
        ]
        with torch.no_grad():
            hidden = model(**inputs, output_hidden_states=True)
        assert_is(graph, slow_graph(hidden.hidden_states[2][0], maps, 0.0, None))


def test_attention_of_jump_heads_is_read_without_eager() -> None:
    tokenizer = tiny_tokenizer()
    model = attach(tiny_model("bert").double(), tiny_config())
    texts = encode_texts(TEXTS[:2], model, tokenizer, None, False)
    jumping = next(reading(model).graphs(model, texts, [1], 1))
    states, rows, _ = attention_maps(model, tokenizer, TEXTS[1])
    maps = [rows[layer][head] for layer, head in HEADS]
    assert_is(jumping, slow_graph(states[2], maps, 0.02, 2))
    with disabled(model):
        base = next(reading(model).graphs(model, texts, [1], 1))
    assert not torch.equal(base.x, jumping.x)


def test_the_mode_of_the_model_is_kept_and_dropout_is_off() -> None:
    model, tokenizer = eager("bert").train(), tiny_tokenizer()
    texts = encode_texts(TEXTS, model, tokenizer, None, False)
    first, second = (next(reading(model).graphs(model, texts, [3], 1)) for _ in range(2))
    assert model.training and torch.equal(first.x, second.x)
    assert not first.x.requires_grad


def test_low_precision_is_read_in_float32() -> None:
    model, tokenizer = eager("bert").bfloat16(), tiny_tokenizer()
    texts = encode_texts(TEXTS, model, tokenizer, None, True)
    graph = next(reading(model, nodes="words").graphs(model, texts, [1], 1))
    assert graph.x.dtype == graph.edge_attr.dtype == torch.float32


def test_memory_is_that_of_one_batch() -> None:
    model, tokenizer = eager("bert"), tiny_tokenizer()
    peaks = []
    for count in (4, 24):
        texts = encode_texts(["dook " * 40] * count, model, tokenizer, None, False)
        with MemoryMeter() as meter:
            for _ in reading(model).graphs(model, texts, range(count), 4):
                pass
        peaks.append(meter.peak)
    assert peaks[1] <= 1.1 * peaks[0]


def test_every_head_is_the_default() -> None:
    model = eager("bert")
    assert reading(model, heads=None).heads == tuple((a, b) for a in range(3) for b in range(4))
    attach(model, tiny_config(layers=(0, 2)))
    jumping = reading(model, heads=None, edges="jumps").heads
    assert jumping == ((0, 0), (0, 2), (2, 0), (2, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": "letters"}, "nodes must be one of tokens, words, got 'letters'"),
        ({"edges": "trees"}, "edges must be one of attention, jumps, got 'trees'"),
        ({"heads": ()}, r"heads must be one or more pairs \(layer, head\), got \(\)"),
        ({"heads": (3, 4)}, r"heads must be pairs \(layer, head\), got 3 among them"),
        ({"heads": [(0, 4)]}, r"heads must name heads of the model, got \(0, 4\)"),
        ({"heads": [(0, 1), [0, 1]]}, "heads must not name a head twice"),
        ({"layer": 4}, "layer must be below 4, got 4"),
        ({"layer": -5}, "layer must be at least -4, got -5"),
        ({"min_weight": -0.1}, "min_weight must be at least 0, got -0.1"),
        ({"max_neighbors": 0}, "max_neighbors must be at least 1, got 0"),
        ({"edges": "jumps"}, "model must have jump heads for edges='jumps', got none"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        reading(eager("bert"), **settings)
    assert "\n" not in str(caught.value)


def test_heads_without_jumps_have_none() -> None:
    model = attach(tiny_model("bert"), tiny_config(layers=(0,)))
    with pytest.raises(ValueError, match=r"heads must name jump heads of the model, got \(2, 3\)"):
        reading(model, edges="jumps")


def test_layers_that_share_a_module_have_one_graph_only() -> None:
    model = attach(tiny_model("albert"), tiny_config())
    with pytest.raises(ValueError, match="edges must be 'attention' where layers share a module"):
        reading(model, edges="jumps", heads=None)


def test_other_models_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="model must be a model of transformers, got Linear"):
        reading(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model must be one stack of layers, got a BartModel"):
        reading(tiny_model("bart"))
    mamba = MambaModel(MambaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, state_size=2))
    with pytest.raises(ValueError, match="model must have attention heads, got a MambaModel witho"):
        reading(mamba)


def test_attention_that_is_not_given_is_asked_for() -> None:
    model, tokenizer = tiny_model("bert"), tiny_tokenizer()
    texts = encode_texts(TEXTS, model, tokenizer, None, False)
    with pytest.raises(ValueError, match="load it with attn_implementation='eager'"):
        next(reading(model).graphs(model, texts, [0], 1))
