"""What heads on clusters read and lose: against whole matrices, and on the real model."""

import gzip
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BartForConditionalGeneration, LlamaModel

import jat_graph
from jat_graph import ClusterGraph, JatConfig
from jat_graph.hf import attached_config, register_clustered
from tests.hf.causal import CLUSTERS
from tests.hf.models import VOCABULARY, tiny_model
from tests.inspection.support import long_bert, measures, padded_batch, reference_fidelity

SHORT: Any = {"keys": 4, "size": 2, "segment": 8, "dense_below": 0}
# Each head has settings of its own.
MIXED = JatConfig.clustered(
    **SHORT | {"keys": [[4, 0, 9, 3], [5, 6, 7, 8]], "margin": [[4.0, 1.0, math.inf, 0.5]] * 2},
    groups=[[1, 2, 1, 1], [2, 2, 3, 1]],
)
CAUSAL = JatConfig.clustered(**CLUSTERS)
CAUSAL_LAYER = CAUSAL.replace(layers=(1,))
CAUSAL_BATCH = padded_batch((48, 31, 40, 6), ids=(3, VOCABULARY))  # the last is too short


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("bert", MIXED),
        ("bert", JatConfig.clustered(**SHORT)),
        ("bert", JatConfig.clustered(**SHORT | {"size": 1}, groups=1)),
        ("bert", JatConfig.clustered(**SHORT, propagate=False)),
        ("llama", CAUSAL_LAYER),
        ("llama", CAUSAL_LAYER.replace(dense_below=21)),
        ("gpt2", CAUSAL_LAYER.replace(propagate=False)),
    ],
)
def test_numbers_are_those_of_whole_rows(name, config):
    model, batch = long_bert(), padded_batch()
    if name != "bert":
        model, batch = tiny_model(name).double(), CAUSAL_BATCH
    report = jat_graph.fidelity(jat_graph.attach(model, config), [batch], queries=48)
    wanted = reference_fidelity(model, batch)
    assert {(head.layer, head.head): measures(head) for head in report.heads} == {
        index: pytest.approx(row, rel=1e-9, abs=1e-12) for index, row in wanted.items()
    }
    assert all(0.01 < head.tv < 0.9 and head.error > 0.01 for head in report.heads)
    assert {head.dense for head in report.heads} == {int(name != "bert")}
    mask = batch["attention_mask"]
    assert (report.sequences, report.tokens) == (len(mask), int(mask.sum()))


def test_cosines_are_those_of_two_runs() -> None:
    model, batch = long_bert(), padded_batch()
    report = jat_graph.fidelity(model, [batch], MIXED)
    with torch.no_grad():
        own = model(**batch).last_hidden_state
        given = jat_graph.attach(model, MIXED)(**batch).last_hidden_state
    valid = batch["attention_mask"].bool()
    tokens = F.cosine_similarity(own, given, dim=-1)[valid].mean()
    means = [torch.stack([x[n, valid[n]].mean(0) for n in range(3)]) for x in (own, given)]
    assert report.token_cosine == pytest.approx(float(tokens), abs=1e-9)
    whole = F.cosine_similarity(*means, dim=-1).mean()
    assert report.embedding_cosine == pytest.approx(float(whole), abs=1e-9)
    assert report.token_cosine < 0.999


@pytest.mark.slow
def test_a_sample_is_without_bias() -> None:
    model, batch = long_bert(1), padded_batch((200, 150))
    config = JatConfig.clustered(**SHORT | {"keys": 32}, margin=0.0)
    whole = jat_graph.fidelity(model, [batch], config, queries=200)
    samples = [jat_graph.fidelity(model, [batch], config.replace(seed=seed)) for seed in range(40)]
    for place, head in enumerate(whole.heads):
        found = torch.tensor([measures(report.heads[place]) for report in samples])
        spread = found.std(0) / len(samples) ** 0.5
        assert bool((found.std(0) > 0).all())
        assert bool(((found.mean(0) - torch.tensor(measures(head))).abs() < 4 * spread).all())
    assert jat_graph.fidelity(model, [batch], config) == samples[0]  # seed 0


def test_short_sequences_are_dense_and_counted() -> None:
    model, batch = long_bert(), padded_batch()
    report = jat_graph.fidelity(model, [batch])  # by default all of fewer than 4096 tokens
    assert report.config == JatConfig.clustered()
    assert report.dense == report.sequences == 3
    assert {tuple(measures(head)) for head in report.heads} == {(1.0, 1.0, 0.0, 0.0)}
    assert (report.token_cosine, report.embedding_cosine) == pytest.approx((1.0, 1.0))
    some = jat_graph.fidelity(model, [batch], MIXED.replace(dense_below=[[40] * 4, [0] * 4]))
    assert [head.dense for head in some.heads] == [1] * 4 + [0] * 4
    assert some.dense == 0
    assert "0 sequences read densely" in some.table()


# --- which model, which settings -----------------------------------------------------------------


def test_a_model_is_measured_as_it_reads_and_comes_back() -> None:
    batch, wanted = padded_batch(), JatConfig.clustered(**SHORT)
    report = jat_graph.fidelity(long_bert(), [batch], wanted)
    attached = jat_graph.attach(long_bert(), wanted)
    assert jat_graph.fidelity(attached, [batch]) == report
    assert attached_config(attached, ClusterGraph) == wanted
    other = wanted.replace(keys=6)
    assert jat_graph.fidelity(attached, [batch], other).config == other
    assert attached_config(attached, ClusterGraph) == wanted
    named = long_bert()
    named.set_attn_implementation(register_clustered(keys=4))
    named.config.clustered = {"size": 2, "segment": 8, "dense_below": 0}
    before = named(**batch).last_hidden_state
    assert jat_graph.fidelity(named, [batch]) == report
    assert named.config._attn_implementation == "clustered:keys=4"
    assert torch.equal(named(**batch).last_hidden_state, before)
    plain = long_bert().train()
    jat_graph.fidelity(plain, [batch], wanted)
    assert plain.training and attached_config(plain, ClusterGraph) is None
    assert torch.equal(plain.eval()(**batch).last_hidden_state, long_bert()(**batch)[0])


@pytest.mark.parametrize(
    ("name", "layers"), [("bart", [0, 1, 2, 3]), ("albert", [0]), ("distilbert", [0, 1, 2])]
)
def test_layers_that_clusters_serve_are_measured(name: str, layers: list[int]) -> None:
    batch = {"input_ids": torch.arange(3, 43)[None]}
    config = JatConfig.clustered(**CLUSTERS)
    report = jat_graph.fidelity(tiny_model(name), [batch], config)
    assert list(dict.fromkeys(head.layer for head in report.heads)) == layers
    assert all(0 < head.share < 1 and head.error > 0 for head in report.heads)
    assert 0.5 < report.token_cosine < 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batches": padded_batch()}, "list of dictionaries of inputs, got one dictionary"),
        ({"batches": []}, "batches must"),
        ({"config": JatConfig.stones()}, "graph must be 'clusters' here, got 'stones'"),
        ({"config": 3}, "config must be a JatConfig"),
        ({"queries": 0}, "queries must be at least 1"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jat_graph.fidelity(**({"model": long_bert(), "batches": [padded_batch()]} | changes))


# --- the report ----------------------------------------------------------------------------------


def test_a_report_is_saved(tmp_path):
    report = jat_graph.fidelity(long_bert(), [padded_batch()], MIXED)
    report.save(tmp_path / "report.json")
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert content == report.to_dict()
    assert content["heads"][0]["error"] == report.heads[0].error
    assert JatConfig.from_dict(content["config"]) == MIXED


def test_the_table_has_means_of_layers_or_heads() -> None:
    report = jat_graph.fidelity(long_bert(), [padded_batch()], MIXED)
    rows = re.findall(r"^ +(\d) +([\d.]+)% .* ([\d.]+)$", report.table(), re.MULTILINE)
    for layer, share, error in rows:
        own = [head for head in report.heads if head.layer == int(layer)]
        assert float(share) == pytest.approx(100 * sum(h.share for h in own) / 4, abs=0.051)
        assert float(error) == pytest.approx(sum(h.error for h in own) / 4, abs=0.00051)
    assert len(rows) == 2
    assert len(report.table(by_head=True).splitlines()) == 8 + 5
    ranked = report.ranked()
    assert [head.error for head in ranked] == sorted((h.error for h in report.heads), reverse=True)
    lines = replace(report, heads=ranked).table(by_head=True).splitlines()[1:9]
    assert [line.split()[:2] for line in lines] == [[str(h.layer), str(h.head)] for h in ranked]
    assert f"token states {report.token_cosine:.4f}" in report.table()


# --- decoders ------------------------------------------------------------------------------------


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


def test_the_loss_is_that_of_two_runs():
    model, batch = tiny_model("llama").double(), CAUSAL_BATCH
    report = jat_graph.fidelity(model, [batch, batch], CAUSAL)
    losses, likeliest = foretold(model, batch)
    others, other_tokens = foretold(jat_graph.attach(model, CAUSAL), batch)
    found = report.next_tokens
    assert found is not None
    assert found.positions == 2 * len(losses) == report.tokens - 8
    assert found.loss == pytest.approx(float(losses.mean()), abs=1e-9)
    assert found.change == pytest.approx(float((others - losses).mean()), abs=1e-9)
    assert found.changed == pytest.approx(float((likeliest != other_tokens).double().mean()))
    assert found.changed > 0 and found.low < found.change < found.high
    assert f"Loss {found.loss:.3f} per token, by clusters {found.change:+.4f} (95" in report.table()
    # Its own settings, by attachment or by name, and one text, of which there is no interval.
    alone = {name: x[:1] for name, x in batch.items()}
    single = jat_graph.fidelity(model, [alone])
    assert single.next_tokens is not None and single.next_tokens.low is None
    named = tiny_model("llama").double()
    named.set_attn_implementation(register_clustered(**CLUSTERS))
    assert jat_graph.fidelity(named, [alone]) == single


def test_only_what_foretells_has_a_loss() -> None:
    batch, llama = CAUSAL_BATCH, tiny_model("llama")
    inner = llama.model
    assert isinstance(inner, LlamaModel)
    assert jat_graph.fidelity(inner, [batch], CAUSAL).next_tokens is None
    embedded = {"inputs_embeds": inner.embed_tokens(batch["input_ids"])}
    assert jat_graph.fidelity(llama, [embedded], CAUSAL).next_tokens is None
    bart = BartForConditionalGeneration(tiny_model("bart").config)
    assert jat_graph.fidelity(bart, [batch], CAUSAL).next_tokens is None
    given = batch | {"decoder_input_ids": batch["input_ids"][:, :20]}
    report = jat_graph.fidelity(bart, [given], CAUSAL)
    assert report.next_tokens is not None
    assert (report.tokens, report.next_tokens.positions) == (4 * 20, 4 * 19)


@pytest.mark.slow
def test_a_tolerance_gives_settings_of_decoders() -> None:
    ids = torch.randint(3, VOCABULARY, (2, 160), generator=torch.Generator().manual_seed(0))
    model, batches = tiny_model("llama"), [{"input_ids": own[None]} for own in ids]
    config = CAUSAL.replace(groups=8)
    config = jat_graph.calibrate(model, batches, tolerance=0.25, config=config)
    graph: Any = config.graph
    assert {x for row in graph.keys for x in row} <= {8, 16, 32, 64, None}
    report = jat_graph.fidelity(model, batches[:1], config)
    assert all(0 < head.error <= 0.3 for head in report.heads)
    strict: Any = jat_graph.calibrate(model, batches, tolerance=1e-9, config=CAUSAL).graph
    assert {x for row in strict.dense_below for x in row} == {math.inf}


# --- the real model ------------------------------------------------------------------------------


@pytest.mark.slow
def test_minilm_on_wikipedia(minilm_path, data_dir):
    """Heads are off by a tenth where those without the rest are off by half."""
    model, tokenizer = (x.from_pretrained(minilm_path) for x in (AutoModel, AutoTokenizer))
    with gzip.open(data_dir / "lm" / "wikitext-2" / "valid.txt.gz", "rt", encoding="utf-8") as file:
        articles = re.split(r"\n = [^=].*? = \n", file.read())[1:4]
    cut: Any = {"truncation": True, "max_length": 512, "return_tensors": "pt"}
    batches = [tokenizer(article, **cut) for article in articles]
    config = JatConfig.clustered(keys=32, size=4, dense_below=0)
    report = jat_graph.fidelity(model, batches, config)
    assert (report.sequences, report.tokens, len(report.heads)) == (3, 1536, 72)
    mass, error = (sum(getattr(h, n) for h in report.heads) / 72 for n in ("mass", "error"))
    assert 0.52 < mass < 0.56
    assert 0.07 < error < 0.10
    assert report.token_cosine > 0.99
    assert report.embedding_cosine > 0.99
    without = jat_graph.fidelity(model, batches, config.replace(propagate=False))
    assert 0.5 < sum(head.error for head in without.heads) / 72 < 0.58
