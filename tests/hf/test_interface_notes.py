"""Forwards of one model that run side by side do not take each other's notes."""

from threading import Thread
from typing import Any

import pytest
import torch
import transformers as hf
from torch.testing import assert_close
from transformers import DynamicCache

from jat_graph.hf import TripletConfig, attach
from jat_graph.hf.interface import note_inputs, take_note
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model


def test_a_note_is_taken_once_by_its_module() -> None:
    model, hidden, cache = attach(tiny_model("bert"), tiny_config()), torch.zeros(1), DynamicCache()
    one, other = (layer.attention.self for layer in model.encoder.layer[:2])
    note_inputs(one, (hidden, None), {"past_key_values": cache})
    assert [take_note(one), take_note(one)] == [(hidden, cache), (None, None)]
    note_inputs(one, (), {"hidden_states": hidden})
    assert [take_note(other), take_note(one)] == [(None, None), (None, None)]


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_another_thread_takes_nothing(name: str) -> None:
    """Run a second forward in a thread, just after the first one's note at an attention module."""
    model = attach(tiny_model(name), tiny_config() if name == "gpt2" else TripletConfig())
    ids = tiny_inputs(name)["input_ids"]
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
