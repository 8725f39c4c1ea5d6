"""Pictures of what is found of senses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jat_graph.probes.meaning.answers import (
    ALL,
    FIRST,
    FREQUENT,
    NEAREST,
    PROBE,
    RANDOM,
    RANDOM_MAP,
)
from jat_graph.probes.meaning.pairs import ALONE, CHANCE, OPPOSITE
from jat_graph.viz import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito, which differ under every colour blindness; shapes differ as well.
STYLES = {
    NEAREST: ("#0072B2", "o", "-"),
    RANDOM: ("#777777", "s", "--"),
    PROBE: ("#D55E00", "^", "-"),
    RANDOM_MAP: ("#CC79A7", "v", "--"),
}
RATIO_STYLES = {
    ALONE: ("#0072B2", "o", "-"),
    CHANCE: ("#777777", "s", "--"),
    OPPOSITE: ("#D55E00", "^", "-"),
}
LEVELS = {FIRST: ":", FREQUENT: "-."}


def draw_senses(table: pd.DataFrame) -> Figure:
    """Draw F1 on all sets after each layer, and the two levels that need no model."""
    figure = new_figure(7.2, 4.4, heading="Senses found, all sets together", size=11)
    axis = figure.subplots()
    for method, (colour, marker, line) in STYLES.items():
        own = table[table["method"] == method]
        if len(own):
            layers = own["layer"].astype(int)
            if method in (NEAREST, RANDOM):  # those of maps would lie on them
                axis.fill_between(
                    layers, own[f"{ALL}_low"], own[f"{ALL}_high"], color=colour, alpha=0.15, lw=0
                )
            axis.plot(layers, own[ALL], line, color=colour, marker=marker, ms=5, label=method)
    for method, line in LEVELS.items():
        level = float(table.loc[table["method"] == method, ALL].iloc[0])
        axis.axhline(level, color="black", ls=line, lw=1, label=method)
    label_layers(axis, table["layer"].dropna().astype(int).unique().tolist())
    axis.set_ylabel("F1 (band: 95 % interval)", fontsize=9)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def label_layers(axis: Axes, layers: list[int]) -> None:
    """Write layers along the side, each as a whole number."""
    axis.set_xticks(layers)
    axis.set_xlabel("layer (0: embeddings)", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def draw_ratios(table: pd.DataFrame) -> Figure:
    """Draw the ratio after each layer: states as they are, and after the semantic probe."""
    heading = (
        "Mean cosine with the centroid of the own sense, divided by that with the other sense's"
    )
    figure = new_figure(7.6, 3.6, heading=heading, size=11)
    kinds = table["states"].unique()
    for axis, kind in zip(figure.subplots(1, len(kinds), sharey=True), kinds, strict=True):
        some = table[table["states"] == kind]
        for where, (colour, marker, line) in RATIO_STYLES.items():
            own = some[some["sentence"] == where]
            layers = own["layer"]
            axis.fill_between(
                layers, own["ratio_low"], own["ratio_high"], color=colour, alpha=0.15, lw=0
            )
            axis.plot(layers, own["ratio"], line, color=colour, marker=marker, ms=5, label=where)
        axis.axhline(1, color="black", lw=0.8)
        label_layers(axis, some["layer"].unique().tolist())
        axis.set_title(kind, fontsize=10)
    figure.axes[0].set_ylabel("ratio (band: 95 % interval)", fontsize=9)
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure
