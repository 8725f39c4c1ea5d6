"""What clusters change in what decoders foretell, and a tolerance in causal order."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BartForConditionalGeneration, LlamaModel

import jat_graph
from jat_graph import JatConfig
from jat_graph.hf import register_clustered
from jat_graph.inspection import Fidelity
from tests.hf.causal import CLUSTERS
from tests.hf.models import VOCABULARY, tiny_model
from tests.inspection.support import padded_batch

CONFIG = JatConfig.clustered(**CLUSTERS)
BATCH = padded_batch((48, 31, 40, 6), ids=(3, VOCABULARY))


def foretold(model: Any, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return losses and most likely next tokens, those of all sequences."""
    losses, likeliest = [], []
    with torch.no_grad():
        logits = model(**batch).logits
    for row, ids, mask in zip(logits, batch["input_ids"], batch["attention_mask"], strict=True):
        row, ids = row[mask.bool()][:-1], ids[mask.bool()][1:]
        losses.append(F.cross_entropy(row, ids, reduction="none"))
        likeliest.append(row.argmax(-1))
    return torch.cat(losses), torch.cat(likeliest)


def test_the_loss_is_that_of_two_runs() -> None:
    model, batch = tiny_model("llama").double(), BATCH
    report = jat_graph.fidelity(model, [batch, batch], CONFIG)
    losses, likeliest = foretold(model, batch)
    others, other_tokens = foretold(jat_graph.attach(model, CONFIG), batch)
    found = report.next_tokens
    assert found is not None
    assert found.positions == 2 * len(losses) == report.tokens - 8
    assert found.loss == pytest.approx(float(losses.mean()), abs=1e-9)
    assert found.change == pytest.approx(float((others - losses).mean()), abs=1e-9)
    assert found.changed == pytest.approx(float((likeliest != other_tokens).double().mean()))
    assert found.changed > 0 and found.low < found.change < found.high
    assert f"Loss {found.loss:.3f} per token, by clusters {found.change:+.4f} (95" in report.table()
    assert Fidelity.from_dict(report.to_dict()) == report
    # Its own settings, by attachment or by name, and one text, of which there is no interval.
    alone = {name: x[:1] for name, x in batch.items()}
    single = jat_graph.fidelity(model, [alone])
    assert single.next_tokens is not None and single.next_tokens.low is None
    named = tiny_model("llama").double()
    named.set_attn_implementation(register_clustered(**CLUSTERS))
    assert jat_graph.fidelity(named, [alone]) == single


def test_only_what_foretells_has_a_loss() -> None:
    batch, llama = BATCH, tiny_model("llama")
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
    config = CONFIG.replace(groups=8)
    config = jat_graph.calibrate(model, batches, tolerance=0.25, config=config)
    graph: Any = config.graph
    assert {x for row in graph.keys for x in row} <= {8, 16, 32, 64, None}
    report = jat_graph.fidelity(model, batches[:1], config)
    assert all(0 < head.error <= 0.3 for head in report.heads)
    strict: Any = jat_graph.calibrate(model, batches, tolerance=1e-9, config=CONFIG).graph
    assert {x for row in strict.dense_below for x in row} == {math.inf}
