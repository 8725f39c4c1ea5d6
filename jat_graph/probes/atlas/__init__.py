"""Many uses of one word as points in the plane, layer by layer."""
