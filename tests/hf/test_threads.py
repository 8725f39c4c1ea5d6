"""Forwards of one model that run side by side do not take each other's inputs."""

from threading import Thread
from typing import Any

import pytest
import torch
import transformers as hf
from torch.testing import assert_close

from jat_graph.hf import attach
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model
from tests.hf.test_stones import tiny_stones


@pytest.mark.parametrize("name", ["gpt2", "bert", "stones"])
def test_another_thread_takes_nothing(name: str) -> None:
    """Run a second forward in a thread, just before the first one's attention runs."""
    if name == "stones":  # which exclude tokens
        model = tiny_stones("bert")
    else:
        model = attach(tiny_model(name), tiny_config())
    ids = tiny_inputs("bert" if name == "stones" else name)["input_ids"]
    wanted = [run(model, {"input_ids": row[None]}) for row in ids[:2]]
    got: list[torch.Tensor] = []

    def forward(row: int) -> None:
        inputs: dict[str, Any] = {"input_ids": ids[row : row + 1]}
        if name == "gpt2":
            cache = hf.DynamicCache()
            parts = [{"input_ids": part} for part in inputs["input_ids"].split([7, 5], dim=1)]
            got.append(torch.cat([run(model, p, past_key_values=cache) for p in parts], dim=1))
        else:
            got.append(run(model, inputs))

    def interrupt(*_: Any) -> None:
        hook.remove()
        thread = Thread(target=forward, args=(1,))
        thread.start()
        thread.join()

    attention = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
    attention = attention.self if hasattr(attention, "self") else attention
    hook = attention.register_forward_pre_hook(interrupt)
    forward(0)
    assert len(got) == 2
    assert_close(got[::-1], wanted, rtol=0, atol=1e-5)
