"""What does not fit a script is said in one line."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.examples.conftest import WORDS, Call

PICTURE = "--model {tiny} --sentence book --layer 0 --head 0 --output {folder}/picture.png"
LONG = "--model {tiny} --file {folder}/long.txt --lengths 24 96 --texts 2 --rounds 1"
BYTES = "--data-dir {folder} --length 24 --model"
# A script, words that would do, and some that do not.
WRONG = [
    ("jat_graph_transformer", "", "--data-dir nowhere", "nowhere"),
    (
        "jat_graph_transformer",
        "--data-dir {folder}",
        "--epochs 0",
        "epochs must be at least 1, got",
    ),
    ("byte_models", f"{BYTES} area_transformer", "--length 5000", "length must be 2 to .*, got 50"),
    ("byte_models", f"{BYTES} area_transformer", "--max-width 0", "max_width must be at least 1"),
    ("byte_models", f"{BYTES} area_transformer", "--steps 0", "steps must be at least 1, got 0"),
    ("byte_models", f"{BYTES} memory_compressed", "--data-dir nowhere", "nowhere"),
    (
        "byte_models",
        f"{BYTES} jat_decoder",
        "--data-dir {folder}/empty",
        "must hold input.txt, itself or in lm/tinyshakespeare or t",
    ),
    ("byte_models", f"{BYTES} jat_decoder", "--threshold -1", "threshold must be"),
    ("byte_models", f"{BYTES} jat_decoder", "--key-step 0", "key_step must be"),
    ("byte_models", f"{BYTES} sparse_transformer", "--pattern strided:0", "stride of strided"),
    ("jat_encoder", "", "--threshold -1", "threshold must be"),
    ("jat_encoder", "", "--min-length 9 --max-length 8", "min_length must be from 4 to max_length"),
    ("jat_encoder", "", "--train-size 0", "train must be 1 or more, got 0"),
    ("jat_encoder", "", "--seeds 0", "seeds must be at least 1, got 0"),
    ("jat_encoder", "", "--batch-size 0", "batch_size must be at least 1, got 0"),
    ("jat_encoder", "", "--learning-rate 0", r"learning_rate must be above 0, got 0\.0"),
    ("jat_encoder", "", "--conv GraphConv2", "conv must name a layer of torch_geometric.nn or jat"),
    ("jat_encoder", "", "--conv APPNP", "conv APPNP of {}: "),
    (
        "jat_graph_transformer",
        "--data-dir {folder}",
        "--trees 0",
        "trees must be at least 1, got 0",
    ),
    ("jat_graph_transformer", "--data-dir {folder}", "", r"must hold en_ewt-ud-train\.conllu"),
    ("long_inputs", LONG, "--texts 9", "file must have 864 tokens, got"),
    ("long_inputs", LONG, "--settings key=4", "unknown config field 'key'"),
    ("long_inputs", LONG, "--settings keys", "settings must be NAME=VALUE"),
    ("long_inputs", LONG, "--plot lengths.jpg", "ending in .png"),
    ("long_inputs", LONG, "--file none.txt", "none.txt must be a file, got none"),
    ("music_transformer", "--data-dir {folder}", "--length 6", "length must be a multiple of 4"),
    ("music_transformer", "--data-dir {folder}", "", r"must hold jsb-chorales-16th\.json"),
    ("sentence_graph", PICTURE, "--model nowhere", "load the files"),
    ("sentence_graph", PICTURE, "--head 99", "head 99 must be a jump head"),
    ("sentence_graph", PICTURE, "--output graph.jpg", "ending in .png"),
]


@pytest.mark.parametrize(("name", "words", "wrong", "message"), WRONG)
def test_wrong_use_is_one_line(
    name: str,
    words: str,
    wrong: str,
    message: str,
    tiny_model: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    call: Call,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "input.txt").write_text("to be or not to be\n" * 60)
    (tmp_path / "long.txt").write_text(" ".join(WORDS * 30))
    given = f"{words} {wrong}".replace("{tiny}", tiny_model).replace("{folder}", str(tmp_path))
    if "{data}" in given:
        given = given.replace("{data}", str(request.getfixturevalue("data_dir")))
    with pytest.raises(SystemExit, match=f"^{name}: error: .*{message}") as caught:
        call(import_module(f"examples.{name}"), *given.split())
    assert "\n" not in str(caught.value) and not list(tmp_path.glob("*.png"))
