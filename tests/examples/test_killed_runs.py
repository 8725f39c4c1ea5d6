"""Runs that are killed at random moments and started again: they end as if nothing had been.

With all other tests two are killed once; ``JAT_KILLS=10`` kills each of them ten times.
"""

import os
import random
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.examples.conftest import Rows, Write, sentences
from tests.examples.test_run_classification import JUMPS, ROOT, rows
from tests.examples.test_run_question_answering import rows as questions
from tests.examples.test_run_tagging import rows as tagged

KILLS = int(os.environ.get("JAT_KILLS", "1"))
LEARNED = ("--jat_preset", "stones")
TEXTS = [{"text": text} for text in sentences(48)]
SCRIPTS: dict[str, tuple[Rows, tuple[str, ...]]] = {
    "classification": (rows(48), JUMPS),
    "question_answering": (questions(48), ("--doc_stride", "8", *LEARNED)),
    "tagging": (tagged(48, spans=True), LEARNED),
    "language_modelling": (TEXTS, ("--jat_preset", "clustered")),
}
FEW = ("classification", "language_modelling")


def started(script: str, words: list[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", f"examples.run_{script}", *words]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with open(os.devnull, "wb") as unread:
        return subprocess.Popen(command, env=variables, stdout=unread, stderr=unread)


def steps_of(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("checkpoint-*")}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS if KILLS > 1 else FEW)
def test_a_run_that_is_killed_goes_on_to_the_same_weights(
    script: str, write: Write, tiny_model: str, tiny_decoder: str, tmp_path: Path
) -> None:
    own, heads = SCRIPTS[script]
    file, model = write("own.jsonl", own), tiny_decoder if "language" in script else tiny_model
    words = ["--model_name_or_path", model, "--train_file", file, "--max_length", "24"]
    words += "--do_train --use_cpu --max_steps 40 --save_steps 1 --learning_rate 3e-3".split()
    words += ["--resume_from_checkpoint", "last", *heads]
    whole, cut, draw = tmp_path / "whole", tmp_path / "cut", random.Random(script)
    main = import_module(f"examples.run_{script}").main
    main([*words, "--output_dir", str(whole)])
    words += ["--output_dir", str(cut)]
    killed = 0
    while killed < KILLS:
        run, before = started(script, words), steps_of(cut)
        while run.poll() is None and len(steps_of(cut) - before) < 3:  # until it is at work
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.4))
        run.send_signal(signal.SIGKILL)
        if run.wait(timeout=60) == 0:
            break  # it was through before
        assert run.returncode == -signal.SIGKILL
        killed += 1
    assert killed > 0
    first = cut / "checkpoint-1" / "trainer_state.json"
    written = first.stat().st_mtime_ns
    main(words)
    assert first.stat().st_mtime_ns == written  # or it would have begun again
    for file in ("model.safetensors", "checkpoint-40/model.safetensors"):
        one, other = load_file(whole / file), load_file(cut / file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
