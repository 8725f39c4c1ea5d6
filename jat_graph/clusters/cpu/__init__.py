"""Choosing and reading on a CPU, in matrix products and in loops of numba."""
