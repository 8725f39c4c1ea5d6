"""What transformers' Trainer does not know of heads of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import Trainer

from jat_graph.hf import attached_config, keep_graphs, model_card_text, save_heads
from jat_graph.hf.adapter import find_attachment
from jat_graph.training.strengths import set_apart, strength_parameters

if TYPE_CHECKING:
    from torch.optim import Optimizer

    _Base = Trainer
else:
    _Base = object


class JatTrainerMixin(_Base):
    """Mix into a Trainer: ``class MyTrainer(JatTrainerMixin, Trainer)``.

    Learned strengths get a learning rate of their own, with the schedule of the rest and without
    weight decay (:func:`parameter_groups`). Activations that are computed again in the backward
    pass take the graphs of the forward pass. Saved models and adapters say which heads they have,
    and so does the model card.

    Attributes:
        strength_learning_rate: Of learned strengths; None is 100 times that of the rest. Set it
            before training begins.

    Example:
        >>> from transformers import Trainer
        >>> class MyTrainer(JatTrainerMixin, Trainer):
        ...     strength_learning_rate = 1e-2
    """

    strength_learning_rate: float | None = None

    def create_optimizer(self, model: Any = None) -> Optimizer:
        """Make the optimizer, with a group for strengths where the model learns some."""
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        trained: Any = self.model if model is None else model
        strengths = strength_parameters(trained) if is_new else []
        if strengths:
            set_apart(optimizer, strengths, self.args.learning_rate, self.strength_learning_rate)
        return optimizer

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; what is computed again in the backward pass leaves graphs as they were."""
        model: Any = self.model
        if self.args.activation_checkpointing and attached_config(model) is not None:
            self.args.activation_checkpointing = False  # written as JSON, it takes no function
            model.activation_checkpointing_enable(
                {"use_reentrant": False, "context_fn": keep_graphs}
            )
        return super().train(*args, **kwargs)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the Trainer's model card, and which heads the model has."""
        from huggingface_hub import ModelCard

        super().create_model_card(*args, **kwargs)
        model: Any = self.model
        if self.is_world_process_zero() and find_attachment(model) is not None:
            path = Path(str(self.args.output_dir), "README.md")
            heads = ModelCard(model_card_text(model)).text
            path.write_text(f"{path.read_text(encoding='utf-8')}\n{heads}", encoding="utf-8")

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        model: Any = self.model
        if self.args.should_save and find_attachment(model) is not None:
            save_heads(model, output_dir or str(self.args.output_dir))
