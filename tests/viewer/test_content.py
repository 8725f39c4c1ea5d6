"""Maps whose layers do not fit their points are refused."""

import pytest

from jat_graph.viewer import AtlasLayer, AtlasPoint, AtlasView

POINTS = (AtlasPoint("bank", "the bank of the river"), AtlasPoint("bank", "a bank lends"))
PLACES = ((0.0, 1.0), (2.0, 3.0))


def test_a_map_has_a_place_for_each_point() -> None:
    view = AtlasView("bank", POINTS, [AtlasLayer("layer 0", PLACES, ("NOUN", "NOUN"))])
    assert view.layers[0].labels == ()


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        ((), "layers must be at least one, got none"),
        (
            (AtlasLayer("layer 0", PLACES[:1]),),
            "'layer 0' must have a place.*2 points, got 1 and 0",
        ),
        ((AtlasLayer("layer 0", PLACES, ("NOUN",)),), "got 2 and 1"),
        ((AtlasLayer("layer 0", (PLACES[0], (0.0, float("nan")))),), r"finite \(x, y\), got \(0.0"),
        ((AtlasLayer("layer 0", (PLACES[0], (0.0,))),), r"finite \(x, y\), got \(0.0,\)"),  # type: ignore[arg-type]
    ],
)
def test_layers_that_do_not_fit_are_refused(layers: tuple[AtlasLayer, ...], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        AtlasView("bank", POINTS, layers)
