"""Attached models on graphs from outside, in every form, and until backward is done."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch
import torch_geometric.transforms as T
import transformers as hf
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import from_networkx

from jat_graph import JatConfig, attach, using_graphs
from tests.hf.models import (
    DECODERS,
    LENGTH,
    TEXT,
    main_output,
    run,
    tiny_config,
    tiny_inputs,
    tiny_model,
)

LENGTHS = (LENGTH, 7)


def chain(nodes: int, causal: bool = False) -> Data:
    forward = torch.arange(nodes - 1)
    edges = torch.stack([forward, forward + 1])
    edges = edges if causal else torch.cat([edges, edges.flip(0)], dim=1)
    return Data(edge_index=edges, num_nodes=nodes)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_model_jumps_along_graphs_from_outside(name, side):
    causal = name in ("gpt2", "llama", "bart")
    model = attach(tiny_model(name), tiny_config())
    inputs = tiny_inputs(name, LENGTHS, side=side)
    kwargs = {"use_cache": False} if causal else {}
    graphs = [chain(length, causal) for length in LENGTHS]
    with using_graphs(model, graphs):
        out = run(model, inputs, **kwargs)
        alone = run(model, inputs, **kwargs)
    assert torch.equal(out, alone)
    assert torch.equal(run(model, inputs, graphs=graphs, **kwargs), out)
    with pytest.raises(ValueError, match="graph"):  # late, in a layer
        run(model, inputs, graphs=[chain(3)] * 2, **kwargs)
    assert not torch.allclose(out, run(model, inputs, graphs=None, **kwargs), atol=1e-4)
    if causal:
        with pytest.raises(ValueError, match="to the future"):
            run(model, inputs, graphs=[chain(length) for length in LENGTHS], **kwargs)
    with using_graphs(model, graphs[1:]):
        short = run(model, {key: x[1:2] for key, x in inputs.items()}, **kwargs)
    valid = slice(None, 7) if side == "right" else slice(LENGTH - 7, None)
    assert_close(out[1, valid], short[0, valid], rtol=1e-4, atol=1e-5)


def test_graphs_of_words_reach_their_tokens():
    model = attach(tiny_model("bert"), tiny_config())
    inputs = tiny_inputs("bert", (6,))
    words = [[None, 0, 0, 1, 2, None]]
    edges = torch.tensor([[0, 2], [1, 0]])  # word 0 to word 1, word 2 to word 0
    graph = Data(edge_index=edges, num_nodes=3)
    by_hand = Data(
        edge_index=torch.tensor([[1, 2, 4, 4], [3, 3, 1, 2]]),
        edge_weight=torch.tensor([0.5, 0.5, 1.0, 1.0]),
        num_nodes=6,
    )
    with using_graphs(model, [graph], word_ids=words):
        out = main_output(model(**inputs))
    assert torch.equal(main_output(model(**inputs, graphs=[graph], word_ids=words)), out)
    with using_graphs(model, [by_hand]):
        assert_close(main_output(model(**inputs)), out)
    with using_graphs(model, graph, word_ids=words):  # one sequence needs no list
        assert torch.equal(main_output(model(**inputs)), out)
    with pytest.raises(ValueError, match=r"one for each sequence \(1\), got 2"):
        model(**inputs, graphs=[graph, graph], word_ids=words)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # that torch's CSR is in beta
def test_every_form_of_the_same_graphs_gives_the_same():
    model, inputs = attach(tiny_model("bert"), tiny_config()), tiny_inputs("bert", LENGTHS)
    graphs = [chain(length) for length in LENGTHS]
    with using_graphs(model, graphs):
        wanted = run(model, inputs)
    matrix = torch.zeros(2 * LENGTH, 2 * LENGTH)  # rows are targets
    for row, graph in enumerate(graphs):
        matrix[tuple(graph.edge_index.flip(0) + row * LENGTH)] = 1.0
    edges = matrix.nonzero().T.flip(0)  # by target
    forms: list[Any] = [
        Batch.from_data_list(graphs),
        [T.ToSparseTensor(layout=torch.sparse_csr)(graph.clone()) for graph in graphs],
        edges,
        (edges, torch.ones(edges.size(1))),
        matrix.to_sparse(),
        matrix.to_sparse_csr(),
    ]
    for form in forms:
        with using_graphs(model, form):
            assert_close(run(model, inputs), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["bert", "gpt2", "bart", "vit"])
def test_backward_may_come_later(name, reentrant):
    model = attach(tiny_model(name), tiny_config(strength=0.5)).train()
    inputs = tiny_inputs(name, LENGTHS) | ({"use_cache": False} if name in DECODERS else {})
    lengths = (17, 17) if name == "vit" else LENGTHS
    graphs = [chain(length, causal=name in DECODERS) for length in lengths]
    wanted = later_gradients(model, inputs, graphs)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    found = later_gradients(model, inputs, graphs)
    assert found.keys() == wanted.keys()
    for parameter, gradient in wanted.items():
        assert_close(found[parameter], gradient, rtol=1e-4, atol=1e-4)


def later_gradients(model: hf.PreTrainedModel, inputs: Any, graphs: Any) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(0)  # dropout
    main_output(model(**inputs, graphs=graphs)).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("between", [False, True])
def test_a_call_that_ctrl_c_ends_leaves_no_graphs_behind(between):
    model, inputs = attach(tiny_model("bert"), tiny_config()), tiny_inputs("bert", (7,))
    wanted = run(model, inputs)

    def interrupt(*call: object) -> None:
        raise KeyboardInterrupt

    hook = model.encoder.layer[0].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model, inputs, graphs=[chain(7)])
    hook.remove()
    if between:
        with using_graphs(model, [chain(7)]):
            assert not torch.equal(run(model, inputs), wanted)
    assert torch.equal(run(model, inputs), wanted)


def test_a_models_forward_alone_knows_its_graphs_but_no_part_of_a_layer_does():
    model, inputs = attach(tiny_model("bert"), tiny_config()), tiny_inputs("bert", (7,))
    with torch.no_grad(), using_graphs(model, [chain(7)]):
        assert torch.equal(main_output(model.forward(**inputs)), run(model, inputs))
        with pytest.raises(ValueError, match=r"was not given the graphs .* not a part of it"):
            model.encoder.layer[0].attention(torch.zeros(1, 7, 32))


@pytest.mark.slow
def test_a_compiled_model_takes_other_graphs():
    model, inputs = attach(tiny_model("bert"), tiny_config()), tiny_inputs("bert", (7,))
    compiled = torch.compile(model, backend="eager")
    for causal in (False, True):
        edges = chain(7, causal).edge_index
        with using_graphs(model, edges):
            wanted = run(model, inputs)
            assert_close(run(compiled, inputs), wanted, rtol=1e-5, atol=1e-5)
        assert_close(run(compiled, inputs, graphs=edges), wanted, rtol=1e-5, atol=1e-5)
    assert_close(run(compiled, inputs), run(model, inputs), rtol=1e-5, atol=1e-5)


def test_a_model_generates_along_a_graph_of_the_prompt():
    model, inputs = attach(tiny_model("gpt2"), tiny_config()), tiny_inputs("gpt2", (6,))
    options = {"max_new_tokens": 3, "do_sample": False}
    prompt = chain(6, causal=True)
    with using_graphs(model, [prompt]):
        with pytest.raises(ValueError, match="from outside need the queries of all tokens"):
            model.generate(**inputs, **options)
        with pytest.raises(ValueError, match="must have its 7 tokens as nodes, or name them"):
            model.generate(**inputs, **options, use_cache=False)
    prompt.token = torch.arange(6)
    with using_graphs(model, [prompt]):
        out = model.generate(**inputs, **options, use_cache=False)
        assert out[0, 8] == main_output(model(out[:, :8], use_cache=False))[0, -1].argmax()
    assert not torch.equal(out, model.generate(**inputs, **options))


def test_models_that_cannot_use_graphs_refuse_them(tmp_path):
    inputs, graphs = tiny_inputs("bert", LENGTHS), [chain(n) for n in LENGTHS]
    stones = attach(tiny_model("bert"), JatConfig.stones())
    for model, message in (
        (stones, "got graph='stones'"),
        (tiny_model("bert"), "jump heads on pairs for graphs from outside, got none"),
    ):
        with pytest.raises(ValueError, match=message), using_graphs(model, graphs):
            pass
    with pytest.raises(ValueError, match="got graph='stones'"):
        stones(**inputs, graphs=graphs)
    attach(tiny_model("bert"), tiny_config()).save_pretrained(tmp_path)
    by_name = hf.AutoModel.from_pretrained(tmp_path, attn_implementation="jat")
    with pytest.raises(ValueError, match="cannot take graphs: load its model with jat_graph"):
        by_name(**inputs, graphs=graphs)
    clustered = tiny_model("bert", attn_implementation="clustered")
    with pytest.raises(ValueError, match="passes graphs, which neither clusters nor SDPA can use"):
        clustered(**inputs, graphs=graphs)


HETERO = HeteroData({"word": {"x": torch.zeros(3, 1)}})
HETERO["word", "to", "word"].edge_index = chain(3).edge_index
WORDS = [[0, 1, 2]]
ROWS_OF = r"word_ids must be a list for each sequence, as \[encoding.word_ids\(0\)\], got "
WORDS_OF = "word_ids must be the word of each token, from 0, or None, got "


@pytest.mark.parametrize(
    ("graphs", "words", "message"),
    [
        ([HETERO], WORDS, r"got HeteroData; its to_homogeneous\(\) gives a Data"),
        ([nx.path_graph(3)], None, "got Graph of networkx; torch_geometric.utils.from_networkx"),
        ([nx.path_graph(3)], WORDS, "got Graph of networkx; torch_geometric.utils.from_networkx"),
        ([Data(num_nodes=3)], WORDS, "got Data without edges"),
        ([], None, "got list"),
        ([chain(3)], hf.BatchEncoding({"input_ids": [[1, 2, 3]]}), f"{ROWS_OF}{{'input_ids'"),
        ([chain(3)], WORDS[0], rf"{ROWS_OF}\[0, 1, 2\]"),
        ([chain(3)], torch.zeros(2, 3), f"{ROWS_OF}tensor"),
        ([chain(3)], [[0, 1, "2"]], rf"{WORDS_OF}\[0, 1, '2'\]"),
        ([chain(3)], [[0, 1, -2]], rf"{WORDS_OF}\[0, 1, -2\]"),
    ],
)
def test_what_is_no_graph_or_no_words_is_refused_in_one_line(graphs, words, message):
    model, inputs = attach(tiny_model("bert"), tiny_config()), tiny_inputs("bert", (3,))
    with pytest.raises(ValueError, match=message) as caught:
        run(model, inputs, graphs=graphs, word_ids=words)
    assert "\n" not in str(caught.value)
    good = [HETERO.to_homogeneous()], [from_networkx(nx.path_graph(3))]
    assert_close(*(run(model, inputs, graphs=graphs) for graphs in good))


def test_edges_of_words_without_a_token_are_not_left_out_unsaid():
    model, inputs = attach(tiny_model("bert"), tiny_config()), tiny_inputs("bert", (3,))
    want = run(model, inputs, graphs=[chain(3)], word_ids=WORDS)
    with pytest.warns(UserWarning, match="edges of words without a token, which are left out"):
        assert torch.equal(run(model, inputs, graphs=[chain(5)], word_ids=WORDS), want)
