"""How a sparse pattern is run: four backends, and the choice between them."""
