"""Tasks of saying what comes next, in a text or in a sequence of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.base import Task
from jat_graph.tasks.metrics import score_losses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class LanguageModelTask(Task):
    """Say what comes next, in a text or in a sequence of tokens that need no tokenizer.

    The only column is ``text``, or ``tokens`` with numbers from 0 to ``vocabulary_size - 1``.

    Args:
        vocabulary_size: Number of different tokens; None for text, which the model's tokenizer
            cuts. (default: None)
    """

    primary_metric: str = "perplexity"
    vocabulary_size: int | None = None

    @property
    def greater_is_better(self) -> bool:
        """False: a model is the better, the less it is surprised."""
        return False

    @property
    def unit(self) -> str:
        """What bits are counted for: ``"character"`` of a text, else ``"token"``."""
        return "character" if self.vocabulary_size is None else "token"

    def compute_metrics(
        self, losses: NDArray[np.floating[Any]], units: int | None = None
    ) -> dict[str, float]:
        r"""Summarise how surprised a model was.

        Perplexity is :math:`\exp(\mathrm{mean}(-\ln p))` over the model's tokens, so that it
        depends on the tokenizer; bits for each character do not.

        Args:
            losses: :math:`-\ln p` of each token that was to be said.
            units: Characters that these tokens stand for. (default: None, one for each)

        Shapes:
            losses: ``[N]``.

        Returns:
            The primary metric, then the other: ``perplexity`` and ``bits_per_character`` or
            ``bits_per_token``.

        Raises:
            ValueError: If there is no loss, one is negative or NaN, or ``units`` is below 1.
        """
        scores = score_losses(losses, units, self.unit)
        return {name: scores[name] for name in (self.primary_metric, *self.other_metrics)}
