"""What is said of a precision before anything is trained."""

import logging

import pytest
import torch

from jat_graph.training import TrainingOptions
from jat_graph.training.arguments import check_device, precision_of


def _options(precision: str) -> TrainingOptions:
    return TrainingOptions(
        model="m", task="cola", output_dir="o", mixed_precision=precision, device="cpu"
    )


@pytest.mark.parametrize(
    ("precision", "has", "warned"),
    [
        ("bf16", {"avx512_bf16": False, "amx_bf16": False, "avx2": True}, True),
        ("bf16", {"avx512_bf16": True, "amx_bf16": False}, False),
        ("bf16", {"avx512_bf16": False, "amx_bf16": True}, False),
        ("no", {"avx512_bf16": False, "amx_bf16": False}, False),
        ("auto", {"avx512_bf16": False, "amx_bf16": False}, False),
    ],
)
def test_a_cpu_without_bf16_is_named(
    precision: str,
    has: dict[str, bool],
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    with caplog.at_level(logging.WARNING, "jat_graph"):
        check_device(_options(precision))
    assert [record.message for record in caplog.records] == [
        "mixed_precision='bf16' may be slower than 'no' here: this CPU does not multiply in it"
    ] * warned


@pytest.mark.parametrize("has", [True, False])
def test_auto_is_bf16_where_the_cpu_multiplies_in_it(
    has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": has, "avx2": True})
    assert precision_of(_options("auto")) == ("bf16" if has else "no")
    assert {name: precision_of(_options(name)) for name in ("no", "bf16")} == {
        "no": "no",
        "bf16": "bf16",
    }


def test_fp16_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match="fp16' needs a GPU, got the CPU"):
        check_device(_options("fp16"))
