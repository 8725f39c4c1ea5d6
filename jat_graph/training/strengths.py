"""Learned strengths in training: a learning rate of their own, and a Trainer that knows heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer
from transformers import Trainer

from jat_graph.core.files import write_text
from jat_graph.core.numbers import check_finite
from jat_graph.hf import attached_config, keep_graphs, model_card_text, save_heads
from jat_graph.hf.adapter import find_attachment
from jat_graph.jumps.heads import JumpStrength

if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object

# A step of Adam moves a parameter by about its learning rate, however small the gradient: weights
# are to move little, and strengths from 0 to where they jump.
TIMES = 100


def parameter_groups(
    model: nn.Module, *, lr: float, strength_lr: float | None = None, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Return what an optimizer of torch takes, with a learning rate of its own for strengths.

    Of parameters that require a gradient each is in one group: weights, then biases and norms, as
    transformers' ``Trainer`` makes them, then what heads learned of how strongly to jump.

    Args:
        model: A model with heads that :func:`jat_graph.attach` placed, one with layers of
            :mod:`jat_graph.nn`, or a wrapper around one, such as PEFT's.
        lr: Learning rate of the first two groups.
        strength_lr: Learning rate of the third. (default: None, 100 times ``lr``)
        weight_decay: Of the first group; the others have none. (default: 0.0)

    Returns:
        Three groups with ``params``, ``lr`` and ``weight_decay``; one may have no parameters.

    Raises:
        ValueError: If a rate is negative, or no number.

    Reference:
        Loshchilov & Hutter, *Decoupled Weight Decay Regularization*, ICLR 2019.

    Example:
        >>> import jat_graph, torch
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.stones())
        >>> groups = jat_graph.training.parameter_groups(model, lr=2e-5, strength_lr=1e-2)
        >>> optimizer = torch.optim.AdamW(groups)
        >>> [(len(group["params"]), group["lr"]) for group in groups]
        [(76, 2e-05), (123, 2e-05), (12, 0.01)]
    """
    lr = check_finite("lr", lr, least=0.0)
    weight_decay = check_finite("weight_decay", weight_decay, least=0.0)
    rate = TIMES * lr if strength_lr is None else strength_lr
    check_finite("strength_lr", rate, least=0.0)
    # It looks at the model alone, at no Trainer.
    decaying = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
    strengths = strength_parameters(model)
    own = set(strengths)
    rest = {name: p for name, p in model.named_parameters() if p.requires_grad and p not in own}
    weights = [p for name, p in rest.items() if name in decaying]
    others = [p for name, p in rest.items() if name not in decaying]
    return [
        {"params": weights, "lr": lr, "weight_decay": weight_decay},
        {"params": others, "lr": lr, "weight_decay": 0.0},
        {"params": strengths, "lr": rate, "weight_decay": 0.0},
    ]


def strength_parameters(model: nn.Module) -> list[nn.Parameter]:
    """What the jump heads of a model learn of how strongly to jump, each once."""
    found = dict.fromkeys(
        parameter
        for module in model.modules()
        if isinstance(module, JumpStrength)
        for parameter in module.parameters(recurse=False)
    )
    return [parameter for parameter in found if parameter.requires_grad]


class JatTrainerMixin(_Base):
    """Mix into a Trainer: ``class MyTrainer(JatTrainerMixin, Trainer)``.

    Learned strengths get a learning rate of their own, with the schedule of the rest and without
    weight decay (:func:`parameter_groups`). Activations that are computed again in the backward
    pass take the graphs of the forward pass. Rows keep what a :class:`GraphCollator` makes batches
    of. Saved models and adapters say which heads they have, and so does the model card.

    Attributes:
        strength_learning_rate: Of strengths, set before training; None is 100 times the others'.
    """

    strength_learning_rate: float | None = None

    def create_optimizer(self, model: Any = None) -> Optimizer:
        """Make the optimizer, with a group for strengths where the model learns some."""
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        trained: Any = self.model if model is None else model
        strengths = strength_parameters(trained) if is_new else []
        if strengths:  # they are among the others until now
            own, rate = set(strengths), self.strength_learning_rate
            for group in optimizer.param_groups:
                group["params"] = [p for p in group["params"] if p not in own]
            rate = TIMES * self.args.learning_rate if rate is None else rate
            optimizer.add_param_group({"params": strengths, "lr": rate, "weight_decay": 0.0})
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

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        known: Any = self._signature_columns
        own = getattr(self.data_collator, "columns", ())  # those of GraphCollator
        if own and find_attachment(self.model) is None:  # type: ignore[arg-type]
            name = type(self.model).__name__
            raise ValueError(f"model must have jump heads for graphs, got a {name} without")
        known += [name for name in own if name not in known]

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the Trainer's model card, and which heads the model has."""
        from huggingface_hub import ModelCard

        super().create_model_card(*args, **kwargs)
        model: Any = self.model
        if self.is_world_process_zero() and find_attachment(model) is not None:
            path = Path(str(self.args.output_dir), "README.md")
            heads = ModelCard(model_card_text(model)).text
            write_text(path, f"{path.read_text(encoding='utf-8')}\n{heads}")

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        model: Any = self.model
        if self.args.should_save and find_attachment(model) is not None:
            save_heads(model, output_dir or str(self.args.output_dir))
