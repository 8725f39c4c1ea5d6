"""Bad input to probes, which each refuses in one line."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jat_graph.probes import attention_probe, best_heads, graphs_and_trees, structural_probe
from tests.probes.support import random_sentence, tiny
from tests.probes.support import random_sentences as trees

SOME = trees(20, least=4)
attention: Any = partial(attention_probe, train=SOME, test=SOME)
heads: Any = partial(best_heads, sentences=SOME)
graphs: Any = partial(graphs_and_trees, sentences=SOME, maps="attention")
tree: Any = partial(structural_probe, train=SOME, dev=SOME, test=SOME, rank=2, epochs=1)


@pytest.mark.parametrize(
    ("probe", "options", "said"),
    [
        (attention, {"train": []}, "train must be one or more sentences"),
        (attention, {"relations": 1}, "relations must be at least 2, got 1"),
        (attention, {"seeds": ()}, "seeds must be one or more indices"),
        (attention, {"train": SOME[:5]}, "train must give pairs of 10 sentences"),
        (attention, {"train": [random_sentence(2, 0)]}, "train and test must share two relations"),
        (attention, {"train": trees(30, most=2)}, "sentences must have words without a relation"),
        (heads, {"sentences": ["dook"]}, "sentences must hold sentences of a treebank, got 'dook'"),
        (heads, {"least": 0}, "least must be at least 1, got 0"),
        (heads, {"least": 999}, "sentences must have a relation of 999 words"),
        (heads, {"maps": "hidden"}, "maps must be one of attention, graph"),
        (heads, {"maps": "graph"}, "model must have jump heads"),
        (graphs, {"maps": "scores"}, "maps must be one of attention, graph, got 'scores'"),
        (graphs, {"density": 1.0}, "density must be below 1, got 1.0"),
        (graphs, {"density": math.nan}, "density must be a number, got nan"),
        (graphs, {"sentences": trees(3, most=1)}, "sentences must have two words, got none"),
        (tree, {"layers": ()}, "layers must be one or more indices"),
        (tree, {"seeds": (1, 1)}, "seeds must not name an index twice"),
        (tree, {"controls": 1}, "controls must be True or False"),
        (tree, {"layers": (4,)}, "layers must be at most 3, got 4"),
        (tree, {"rank": 0}, "rank must be at least 1, got 0"),
        (tree, {"test": []}, "test must be one or more sentences"),
    ],
)
def test_bad_input_is_refused(
    probe: Any, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        probe(tiny(tmp_path), **options)
