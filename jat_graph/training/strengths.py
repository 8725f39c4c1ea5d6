"""Learned strengths in training: which parameters they are, and a learning rate of their own."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import Trainer

from jat_graph.attention.heads import JumpStrength
from jat_graph.checks.numbers import check_finite

# A step of Adam moves a parameter by about its learning rate, however small the gradient: weights
# are to move little, and strengths from 0 to where they jump.
TIMES = 100


def parameter_groups(
    model: nn.Module, *, lr: float, strength_lr: float | None = None, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Return what an optimizer of torch takes, with a learning rate of its own for strengths.

    Of parameters that require a gradient each is in one group: weights, then biases and norms,
    then what heads learned of how strongly to jump. The first two are those that transformers'
    ``Trainer`` makes.

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
    if strength_lr is not None:
        strength_lr = check_finite("strength_lr", strength_lr, least=0.0)
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
        _group(strengths, lr, strength_lr),
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


def set_apart(
    optimizer: Optimizer, strengths: list[nn.Parameter], lr: float, strength_lr: float | None
) -> None:
    """Give strengths a group of their own in an optimizer that has them among others."""
    own = set(strengths)
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if p not in own]
    optimizer.add_param_group(_group(strengths, lr, strength_lr))


def _group(strengths: list[nn.Parameter], lr: float, strength_lr: float | None) -> dict[str, Any]:
    rate = TIMES * lr if strength_lr is None else strength_lr
    return {"params": strengths, "lr": rate, "weight_decay": 0.0}
