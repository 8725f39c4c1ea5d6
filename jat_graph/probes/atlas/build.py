"""The atlas of a word: sentences with it, what a model makes of it there, and a map of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.probes.atlas.clusters import find_clusters, renamed, telling_words
from jat_graph.probes.atlas.contexts import Context
from jat_graph.probes.atlas.layouts import UMAP, Floats, directions, lay_out
from jat_graph.probes.atlas.maps import CLUSTER, AtlasMaps, LayerMap
from jat_graph.probes.atlas.pictures import draw_atlas
from jat_graph.probes.atlas.search import Uses, find_uses
from jat_graph.probes.findings import Findings
from jat_graph.probes.meaning.wordnet import WordNet
from jat_graph.probes.storage import stream_states
from jat_graph.probes.words import WordReader, check_layers
from jat_graph.progress import watched
from jat_graph.viewer import AtlasView, Page
from jat_graph.viewer.content import PageContent

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LEAST = 5  # sentences: fewer make no map


@dataclass(frozen=True)
class Atlas(Findings):
    """What :func:`context_atlas` found: a table, pictures, and maps for the viewer.

    Args:
        views: The maps, by cluster and by each kind that is known. (default: none)
    """

    views: tuple[AtlasView, ...] = ()

    @property
    def page(self) -> Page:
        """The maps as a page, which a notebook shows and ``save`` writes."""
        return Page(PageContent(f"Uses of {self.settings['word']}", atlases=self.views))

    def save(self, folder: str | Path) -> list[Path]:
        """Write the table, the pictures, and the page as ``atlas.html``."""
        files = super().save(folder)
        path = Path(folder) / f"{self.name}.html"
        self.page.save(path)
        return [*files, path]


def context_atlas(
    word: str,
    contexts: Iterable[Context],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    most: int = 1000,
    layers: Sequence[int] | None = None,
    wordnet: WordNet | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> Atlas:
    """Lay out the uses of a word in the plane, layer by layer: one point a sentence.

    A point is the word's state where it first stands in the sentence. States of a layer are seen
    from their mean and brought to one length. UMAP lays them out, or PCA where umap-learn is
    missing; each layer begins where the one below ended. Clusters are those of k-means, of as many
    as give the best silhouette, from 2 to 8; a cluster keeps its number in the next layer where it
    keeps its points. Its words are those of whose sentences it has surely more than others have.
    Distances between far groups of a map by UMAP mean nothing, nor do clusters with a low
    silhouette.

    Args:
        word: The word, in any case. Other forms of it are other words.
        contexts: Sentences, from :func:`read_contexts`; of two with the same letters the first
            counts.
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        folder: Where states are kept.
        most: Most sentences, 5 or more; of more an even sample is drawn. (default: 1000)
        layers: Layers to show; 0 is the embeddings. (default: None, all)
        wordnet: From :func:`open_wordnet`, to say what senses are. (default: None, keys alone)
        seed: Seed of the sample, the layout and the clusters. (default: 0)
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Returns:
        A row for each cluster: its sentences, the words that tell, and the share of the most
        common part of speech and sense in it, with Wilson's 95 % interval; the row "all" of a layer
        has the share of all uses whose cluster is mostly of their kind. A picture for each kind.

    Raises:
        ValueError: If no sentence has the word, or fewer than 5 that fit the model, or an option
            is not in its range.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.1; McInnes
        et al., *UMAP*, 2018.
    """
    check_integer("most", most, least=LEAST)
    check_integer("seed", seed, least=0, below=2**32)
    chosen = check_layers(model, layers)
    reader = WordReader(model, tokenizer, batch_size=batch_size)
    uses = find_uses(word, contexts, most, seed)
    _check_enough(uses, "sentences")
    uses, states = _read(uses, reader, folder)
    _check_enough(uses, "sentences that fit the model")
    rows = [directions(states[layer]) for layer in chosen]
    places, method = lay_out(rows, seed)
    layer_maps = _layer_maps(uses, chosen, rows, places, seed)
    maps = AtlasMaps(uses, layer_maps, _definitions(uses, wordnet))
    names = {kind: f"atlas-{kind.replace(' ', '-')}" for kind in (CLUSTER, *maps.kinds)}
    return Atlas(
        name="atlas",
        caption=_caption(maps, method),
        table=maps.table(),
        settings=_settings(uses, chosen, method, seed),
        figures={name: draw_atlas(maps, kind, method) for kind, name in names.items()},
        views=tuple(maps.views()),
    )


def _definitions(uses: Uses, wordnet: WordNet | None) -> dict[str, str]:
    if wordnet is None:
        return {}
    pairs = zip(uses.contexts, uses.places, strict=True)
    keys = {own.senses[place] for own, place in pairs if own.senses is not None}
    return {key: wordnet.definition(key) for key in keys if key is not None}


def _check_enough(uses: Uses, what: str) -> None:
    number = len(uses.places)
    if number < LEAST:
        raise ValueError(f"word must stand in {LEAST} {what}, got {uses.word!r} in {number}")


def _read(uses: Uses, reader: WordReader, folder: str | Path) -> tuple[Uses, Floats]:
    """Read the states of the word, and leave out sentences that the model cannot take whole."""
    sentences = [context.words for context in uses.contexts]
    found = stream_states(folder, reader, sentences, [[place] for place in uses.places])
    kept = sorted(set(range(len(sentences))) - set(found.left_out))
    return uses.only(kept), found.values[:, kept].astype(np.float64)


def _layer_maps(
    uses: Uses, layers: Sequence[int], rows: Sequence[Floats], places: Floats, seed: int
) -> tuple[LayerMap, ...]:
    found: list[LayerMap] = []
    every = zip(layers, rows, places, strict=True)
    for layer, points, placed in watched(every, "Clustering layers", len(layers)):
        clusters, silhouette = find_clusters(points, seed)
        if found:
            clusters = renamed(clusters, found[-1].clusters)
        words = telling_words(uses, clusters)
        found.append(LayerMap(layer, placed, clusters, silhouette, words))
    return tuple(found)


def _caption(maps: AtlasMaps, method: str) -> str:
    """Say where the points come from, and against what shares are to be held."""
    uses, number = maps.uses, len(maps.uses.places)
    parts = [
        f"{number} sentences with {uses.word!r}, of {uses.found} among {uses.read} that were read; "
        f"each is a point, the word's state there, laid out by {method}. Clusters are of the "
        "states, not of the layout, and are few where the silhouette, from -1 to 1, is best; near "
        "0 there are no parts to speak of. Telling words stand in surely more sentences of a "
        "cluster than of the others."
    ]
    if method == UMAP:
        parts.append("Of the layout only who is near whom means something.")
    for kind, own in maps.kinds.items():
        known = Counter(name for name in own if name is not None)
        (common, most), total = known.most_common(1)[0], known.total()
        parts.append(
            f"Of {total} uses whose {kind} is known, {most / total:.0%} are {common}: a share in a "
            "cluster says something where its interval is above that."
        )
    return " ".join(parts)


def _settings(uses: Uses, layers: Sequence[int], method: str, seed: int) -> dict[str, Any]:
    return {
        "word": uses.word,
        "sentences_read": uses.read,
        "sentences_found": uses.found,
        "sentences_shown": len(uses.places),
        "layers": list(layers),
        "layout": method,
        "seed": seed,
    }
