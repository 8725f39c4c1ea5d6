"""What clusters read and lose in causal order: against whole rows, and what decoders foretell."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BartForConditionalGeneration, LlamaModel

import jat_graph
from jat_graph import ClusterGraph, JatConfig
from jat_graph.hf import CapturedLayer, capture_scores, register_clustered
from jat_graph.inspection import Fidelity
from tests.hf.models import VOCABULARY, tiny_model
from tests.inspection.test_fidelity import measures
from tests.oracles import causal_choice, causal_cluster_scores

LENGTH = 48
CONFIG = JatConfig.clustered(keys=4, block=4, dense_below=0)


def padded_batch() -> dict[str, Tensor]:
    """Return sequences with padding on either side, and one that is too short for clusters."""
    ids = torch.randint(3, VOCABULARY, (4, LENGTH), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, :17], mask[2, 40:], mask[3, 6:] = 0, 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def whole_rows(query: Tensor, key: Tensor, value: Tensor, graph: ClusterGraph) -> Tensor:  # [n, 4]
    """Compare all rows of one head, by their definition."""
    scale, rows = query.size(-1) ** -0.5, []
    for token in range(len(query)):
        choice = causal_choice(query, key, token, scale=scale, keys=graph.keys, block=graph.block)
        if token < math.ceil(graph.dense_below / graph.block) * graph.block:
            choice = None
        exact = scale * key[: token + 1] @ query[token]
        given = causal_cluster_scores(query, key, token, choice, scale)
        is_read = torch.ones_like(exact, dtype=torch.bool)
        if choice is not None:
            is_read[: len(choice.best)] = choice.best
        if not graph.propagate:
            given = given.masked_fill(~is_read, -torch.inf)
        p, q = exact.softmax(-1), given.softmax(-1)
        own, other = (x @ value[: token + 1] for x in (p, q))
        error = (other - own).norm() / own.norm()
        share, mass, tv = is_read.double().mean(), p[is_read].sum(), (p - q).abs().sum() / 2
        rows.append(torch.stack([share, mass, tv, error]))
    return torch.stack(rows)


def captured(model: Any, batch: dict[str, Tensor], config: JatConfig) -> list[CapturedLayer]:
    """Return what the heads of each layer see on the model's own attention."""
    jat_graph.attach(model, config)
    with jat_graph.disabled(model), capture_scores(model, ClusterGraph) as layers, torch.no_grad():
        model(**batch, use_cache=False)
    jat_graph.detach(model)
    return layers


def foretold(logits: Tensor, batch: dict[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return losses and most likely next tokens of each sequence."""
    valid = batch["attention_mask"].bool()
    rows = [x[own][:-1] for x, own in zip(logits, valid, strict=True)]
    ids = [x[own][1:] for x, own in zip(batch["input_ids"], valid, strict=True)]
    losses = [F.cross_entropy(*pair, reduction="none") for pair in zip(rows, ids, strict=True)]
    return losses, [x.argmax(-1) for x in rows]


@pytest.mark.parametrize(
    ("name", "changes"),
    [("llama", {}), ("llama", {"dense_below": 21}), ("gpt2", {"propagate": False})],
)
def test_numbers_are_those_of_whole_rows(name: str, changes: dict[str, Any]) -> None:
    model, batch, config = (
        tiny_model(name).double(),
        padded_batch(),
        CONFIG.replace(layers=(1,), **changes),
    )
    (layer,) = captured(model, batch, config)
    report = jat_graph.fidelity(model, [batch], config, queries=LENGTH)
    graph: Any = config.graph
    for head in report.heads:
        parts = [x[:, head.head] for x in (layer.query, layer.key, layer.value)]
        rows = [
            whole_rows(*(x[n, own.bool()] for x in parts), graph)
            for n, own in enumerate(batch["attention_mask"])
        ]
        assert measures(head) == pytest.approx(torch.cat(rows).mean(0).tolist(), rel=1e-9)
        assert head.error > 0.01
        assert head.dense == 1
    assert (report.sequences, report.tokens) == (4, int(batch["attention_mask"].sum()))


def test_the_loss_is_that_of_two_runs() -> None:
    model, batch = tiny_model("llama").double(), padded_batch()
    report = jat_graph.fidelity(model, [batch, batch], CONFIG)
    with torch.no_grad():
        own = foretold(model(**batch).logits, batch)
        given = foretold(jat_graph.attach(model, CONFIG)(**batch).logits, batch)
    found = report.next_tokens
    assert found is not None
    assert found.positions == 2 * (report.tokens // 2 - 4)
    losses, others = torch.cat(own[0]), torch.cat(given[0])
    assert found.loss == pytest.approx(float(losses.mean()), abs=1e-9)
    assert found.change == pytest.approx(float((others - losses).mean()), abs=1e-9)
    assert found.changed == pytest.approx(
        float((torch.cat(own[1]) != torch.cat(given[1])).double().mean())
    )
    assert found.changed > 0 and found.low < found.change < found.high
    assert f"Loss {found.loss:.3f} a token, by clusters {found.change:+.4f} (95" in report.table()
    assert Fidelity.from_dict(report.to_dict()) == report
    # Its own settings, by attachment or by name, and one text, of which there is no interval.
    alone = {name: x[:1] for name, x in batch.items()}
    single = jat_graph.fidelity(model, [alone])
    assert single.next_tokens is not None and single.next_tokens.low is None
    named = tiny_model("llama").double()
    named.set_attn_implementation(register_clustered(keys=4, block=4, dense_below=0))
    assert jat_graph.fidelity(named, [alone]) == single


def test_only_what_foretells_has_a_loss() -> None:
    batch, llama = padded_batch(), tiny_model("llama")
    inner = llama.model
    assert isinstance(inner, LlamaModel)
    assert jat_graph.fidelity(inner, [batch], CONFIG).next_tokens is None
    embedded = {"inputs_embeds": inner.embed_tokens(batch["input_ids"])}
    assert jat_graph.fidelity(llama, [embedded], CONFIG).next_tokens is None
    bart = BartForConditionalGeneration(tiny_model("bart").config)
    assert jat_graph.fidelity(bart, [batch], CONFIG).next_tokens is None
    given = batch | {"decoder_input_ids": batch["input_ids"][:, :20]}
    report = jat_graph.fidelity(bart, [given], CONFIG)
    assert report.next_tokens is not None
    assert (report.tokens, report.next_tokens.positions) == (4 * 20, 4 * 19)


def test_a_tolerance_gives_settings_of_decoders() -> None:
    ids = torch.randint(3, VOCABULARY, (2, 160), generator=torch.Generator().manual_seed(0))
    model, batches = tiny_model("llama"), [{"input_ids": own[None]} for own in ids]
    config = jat_graph.calibrate(model, batches, tolerance=0.25, config=CONFIG)
    graph: Any = config.graph
    assert {x for row in graph.clusters for x in row} == {None}
    assert {x for row in graph.keys for x in row} & {8, 16}
    report = jat_graph.fidelity(model, batches[:1], config)
    assert all(0 < head.error <= 0.3 for head in report.heads)
    strict: Any = jat_graph.calibrate(model, batches, tolerance=1e-9, config=CONFIG).graph
    assert {x for row in strict.dense_below for x in row} == {math.inf}
