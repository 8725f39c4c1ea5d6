"""All that fixes a graph: scores, which keys count, thresholds, the paper's rule, and stones."""
