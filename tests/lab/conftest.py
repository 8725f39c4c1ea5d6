"""What the tests of comparisons train: a tiny model on a tiny corpus."""

from tests.training.conftest import cola_dir, one_thread, options, tiny_model

__all__ = ["cola_dir", "one_thread", "options", "tiny_model"]
