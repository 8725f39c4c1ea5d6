"""Words of UD English EWT with their parts of speech and relations."""

import gzip
import re
from pathlib import Path

import pytest

from jat_graph.tasks import EwtTask, WordTaggingTask, get_task

POS, RELATIONS = get_task("ewt-pos"), get_task("ewt-relations")
DOGS = """\
1\tDogs\tdog\tNOUN\tNNS\t_\t4\tnsubj:outer\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tbark\tbark\tVERB\tVB\t_\t0\troot\t_\t_

"""
WORDS = ["Dogs", "do", "n't", "bark"]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("home", ["", "ud_english_ewt", "UD_English-EWT"])
def test_words_have_tags_and_relations_without_subtypes(
    home: str, packed: bool, tmp_path: Path
) -> None:
    folder = tmp_path / home
    folder.mkdir(exist_ok=True)
    name = f"en_ewt-ud-dev.conllu{'.gz' if packed else ''}"
    (folder / name).write_bytes(gzip.compress(DOGS.encode()) if packed else DOGS.encode())
    found = [
        task.load(tmp_path, ["validation"])["validation"].to_list() for task in (POS, RELATIONS)
    ]
    assert found == [
        [{"tokens": WORDS, "tags": ["NOUN", "AUX", "PART", "VERB"]}],
        [{"tokens": WORDS, "tags": ["nsubj", "aux", "advmod", "root"]}],
    ]


def test_counts_are_the_files(data_dir: Path) -> None:
    splits = RELATIONS.load(data_dir)
    counts = {name: (len(rows), sum(map(len, rows["tags"]))) for name, rows in splits.items()}
    assert counts == {
        "train": (12544, 204577),
        "validation": (2001, 25147),
        "test": (2077, 25094),
    }
    roots = sum(tag == "root" for tags in splits["train"]["tags"] for tag in tags)
    assert roots == 12544
    own = POS.load(data_dir / "ud_english_ewt", ["test"])["test"]
    assert own["tokens"] == splits["test"]["tokens"]


def test_the_tags_are_those_of_universal_dependencies() -> None:
    assert isinstance(POS, EwtTask) and isinstance(POS, WordTaggingTask)
    assert (len(POS.labels), len(get_task("ewtrelations").labels)) == (17, 37)
    for task in (POS, RELATIONS):
        assert isinstance(task, EwtTask) and list(task.labels) == sorted(set(task.labels))


# --- wrong inputs --------------------------------------------------------------------------------


def test_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "en_ewt-ud-train.conllu"
    path.write_text(DOGS + DOGS.replace("VERB", "verb"))
    said = re.escape(f"{path}, sentence 2: tags must be among ADJ, ADP,")
    with pytest.raises(ValueError, match=f"^{said}.* got 'verb'$"):
        POS.load(tmp_path, ["train"])
    assert len(RELATIONS.load(tmp_path, ["train"])["train"]) == 2
    path.write_text("no tree at all\n\n")
    with pytest.raises(ValueError, match="must be CoNLL-U"):
        POS.load(tmp_path, ["train"])
    with pytest.raises(FileNotFoundError, match=r"task ewtpos needs en_ewt-ud-test.conllu or"):
        POS.load(tmp_path, ["test"])
    with pytest.raises(ValueError, match="task ewtrelations cannot be loaded by name"):
        RELATIONS.load(None)
