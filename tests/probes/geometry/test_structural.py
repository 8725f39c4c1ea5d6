"""The structural probe on tiny models, and on a real one."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from jat_graph.hf import attach
from jat_graph.probes import Sentence, read_treebank, structural_probe
from jat_graph.probes.geometry.measures import MEASURES
from jat_graph.probes.geometry.study import Study, Training, TreeSets, compared
from jat_graph.probes.geometry.training import DISTANCE
from tests.data.support import STEMS, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.probes.geometry.support import TAGS, random_sentence


def bank(number: int, seed: int, shortest: int = 1) -> list[Sentence]:
    """Trees over words that the tiny tokenizer knows."""
    found = []
    for k in range(number):
        tree = random_sentence(shortest + (seed + k) % 8, seed + k, TAGS)
        words = tuple(STEMS[(seed + 3 * k + n) % len(STEMS)] for n in range(len(tree)))
        found.append(Sentence(words, tree.tags, tree.heads, tree.relations))
    return found


SETS = bank(30, 0), bank(12, 100), bank(15, 200)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_each_layer_has_a_row_and_controls(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    before = torch.random.get_rng_state()
    found = structural_probe(
        model, tiny_tokenizer(), *SETS, tmp_path, rank=4, epochs=2, seeds=(0, 1), most=20
    )
    assert torch.equal(before, torch.random.get_rng_state())
    rows = found.table
    models = ["model"] * 4 + ["random weights"] * 4 + ["words in a line"]
    assert rows["model"].tolist() == models
    assert rows["layer"].dropna().tolist() == [0, 1, 2, 3] * 2
    assert rows[list(MEASURES)].notna().all(axis=None)
    assert rows["UUAS"].between(0, 1).all()
    assert found.settings["sentences"] == {"train": 20, "dev": 12, "test": 15}
    assert "2 seeds" in found.caption
    assert len(found.save(tmp_path / "out")) == 8
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("probe-*.npy")}
    assert len(stamps) == 2 * 4 * 2 * 2  # models, layers, seeds, kinds
    again = structural_probe(
        model, tiny_tokenizer(), *SETS, tmp_path, rank=4, epochs=2, seeds=(0, 1), most=20
    )
    assert again.table.equals(rows)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("probe-*.npy")} == stamps


def test_jump_heads_stand_beside_their_base(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = attach(tiny_model("bert"), tiny_config(), tokenizer)
    options = {"rank": 4, "epochs": 1, "layers": (1, 3), "drawn": 7}
    rows = structural_probe(model, tokenizer, *SETS, tmp_path, **options).table
    assert rows["model"].drop_duplicates().tolist() == [
        "model",
        "jumps off",
        "random weights",
        "words in a line",
        "model − jumps off",
    ]
    values = rows.set_index(["model", "layer"])["DSpr"]
    for layer in (1, 3):
        change = values["model", layer] - values["jumps off", layer]
        assert values["model − jumps off", layer] == pytest.approx(change)
    plain = structural_probe(tiny_model("bert"), tokenizer, *SETS, tmp_path, **options).table
    alone = structural_probe(model, tokenizer, *SETS, tmp_path, **options, controls=False).table
    assert alone["model"].tolist() == ["model", "model", "words in a line"]
    assert alone[:2].equals(rows[:2])
    base = rows[rows["model"] == "jumps off"].drop(columns="model").reset_index(drop=True)
    assert plain[:2].drop(columns="model").equals(base)


def test_probes_of_other_trees_models_and_options_are_others(tmp_path: Path) -> None:
    tokenizer, model = tiny_tokenizer(), tiny_model("bert")
    sets = TreeSets(*SETS, most=None)
    turned = [Sentence(s.words, s.tags, s.heads[::-1], s.relations) for s in SETS[0] if len(s) < 2]
    first = Study.read(tmp_path, model, tokenizer, sets, Training(3, 1))
    first.probe(DISTANCE, 1, 0)
    for own, training, options in (
        (sets, Training(3, 2), (1, 0)),
        (sets, Training(2, 1), (1, 0)),
        (sets, Training(3, 1), (2, 0)),
        (sets, Training(3, 1), (1, 1)),
        (TreeSets(*SETS, most=9), Training(3, 1), (1, 0)),
        (TreeSets(SETS[0], turned, SETS[2], None), Training(3, 1), (1, 0)),
    ):
        known = set(tmp_path.glob("probe-*.npy"))
        Study.read(tmp_path, model, tokenizer, own, training).probe(DISTANCE, *options)
        assert len(set(tmp_path.glob("probe-*.npy")) - known) == 1
    last = list(compared(model))[-1][1]
    Study.read(tmp_path, last, tokenizer, sets, Training(3, 1)).probe(DISTANCE, 1, 0)
    assert len(list(tmp_path.glob("probe-*.npy"))) == 8


def test_a_sample_is_even_over_the_file() -> None:
    assert TreeSets(list(range(1, 11)), [1], [1], 5).sample == [1, 3, 5, 7, 9]
    assert TreeSets([1, 2, 3], [1], [1], 3).sample == [1, 2, 3]
    assert TreeSets([1, 2, 3], [1], [1], None).sample == [1, 2, 3]


def test_sentences_that_the_model_cannot_take_are_left_out(tmp_path: Path) -> None:
    long = random_sentence(90, 0)
    words = tuple(STEMS[n % len(STEMS)] for n in range(90))
    test = [Sentence(words, long.tags, long.heads, long.relations), *SETS[2]]
    options = {"rank": 4, "epochs": 1, "layers": (1,)}
    model, tokenizer = tiny_model("bert"), tiny_tokenizer()
    found = structural_probe(model, tokenizer, *SETS[:2], test, tmp_path, **options)
    assert "1 that the model cannot take whole" in found.caption
    whole = structural_probe(model, tokenizer, *SETS, tmp_path, **options)
    assert found.table.equals(whole.table)
    with pytest.raises(ValueError, match="drawn must be a sentence that the model can read, got 0"):
        structural_probe(model, tokenizer, *SETS[:2], test, tmp_path, **options, drawn=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": (4,)}, "layers must be at most 3, got 4"),
        ({"layers": ()}, "layers must be one or more indices"),
        ({"seeds": ()}, "seeds must be one or more indices"),
        ({"rank": 0}, "rank must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"most": 0}, "most must be at least 1, got 0"),
        ({"drawn": 15}, "drawn must be below 15, got 15"),
        ({"test": []}, "test must hold a sentence, got none"),
    ],
)
def test_wrong_options_are_refused(options: dict, said: str, tmp_path: Path) -> None:
    sets = dict(zip(("train", "dev", "test"), SETS, strict=True)) | {"folder": tmp_path}
    with pytest.raises(ValueError, match=said):
        structural_probe(tiny_model("bert"), tiny_tokenizer(), **sets | options)


def test_the_real_model_holds_more_than_one_without_training(
    minilm_path: str, data_dir: Path, tmp_path: Path
) -> None:
    home = data_dir / "ud_english_ewt"
    sets = [
        read_treebank(home / f"en_ewt-ud-{name}.conllu.gz", most=most, lengths=range(4, 16))
        for name, most in (("dev", 200), ("test", 60), ("test", 120))
    ]
    sets[2] = sets[2][60:]
    model, tokenizer = (kind.from_pretrained(minilm_path) for kind in (AutoModel, AutoTokenizer))
    found = structural_probe(model, tokenizer, *sets, tmp_path, layers=(3,), rank=32, epochs=10)
    own, random, line = found.table["UUAS"]
    assert own > random + 0.05
    assert own > line
