"""Numbers that would be misread come with a line that says what they mean."""

import re
from functools import partial
from typing import Any

import pytest
from transformers import AutoModel, AutoTokenizer

from jat_graph import JatConfig
from jat_graph.hf import attach, detach
from jat_graph.inspection import calibrate, inspect_text, view_head
from jat_graph.probes import view

TEXT = "Book costs more than pencil. Book costs less than computer."
LAYER: Any = {"layers": (1,)}
MISFIT = "Threshold .* does not fit: it joins .*% of the pairs. Calibrate it .* stones or clusters"
ZERO = "Strengths are 0, as before training, so attention is that of the base"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "said"),
    [
        (JatConfig.paper(**LAYER), MISFIT),
        (JatConfig.paper(threshold=1e9, **LAYER), MISFIT),
        (JatConfig.stones(**LAYER), ZERO),
        (JatConfig.stones(strength=0.5, **LAYER), None),
        (None, None),
    ],
)
def test_what_does_not_fit_is_said(config, said, minilm_path, caplog):
    tokenizer, model = (kind.from_pretrained(minilm_path) for kind in (AutoTokenizer, AutoModel))
    batch = tokenizer(TEXT, return_tensors="pt")
    config = config or calibrate(model, [batch], density=0.1, config=JatConfig(**LAYER))
    given = attach(model, config), tokenizer, TEXT
    for look in (inspect_text, partial(view_head, layer=1, head=1)):
        caplog.clear()
        look(*given)
        lines = [record.getMessage() for record in caplog.records]
        assert [bool(re.search(str(said), line)) for line in lines] == [True] * (said is not None)
    (shown,) = view(*given, layers=1, heads=1).texts
    assert bool(re.search(f"{MISFIT}|{ZERO}", shown.heads[0].note)) == (said is not None)
    if not config.jump_graph.kind == "stones":
        with pytest.raises(ValueError, match=r"got \[0, 1, 2, 3\]; with --set heads=all, in Pyth"):
            view_head(*given, layer=1, head=7)
        attach(detach(model), config.replace(heads="all", threshold=6.0))
        assert view_head(*given, layer=1, head=7).report.head == 7
