"""Who votes on which pairs of tokens, and by which rule."""
