"""Learned strengths are trained without weight decay, by a learning rate of their own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import Trainer, TrainingArguments

from jat_graph import JatConfig, PairGraph, attach, from_pretrained
from jat_graph.hf import attached_config
from jat_graph.nn import JumpSelfAttention
from jat_graph.training import JatTrainerMixin, parameter_groups
from tests.hf.models import tiny_inputs, tiny_model


class JatTrainer(JatTrainerMixin, Trainer):
    """A Trainer of somebody's own."""


class Block(nn.Module):
    """A layer of ours between others, a weight of which serves twice."""

    def __init__(self, strength: object = "learned") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attention = JumpSelfAttention(8, 2, JatConfig.stones(strength=strength), qkv_bias=True)
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight


@given(
    frozen=st.sets(st.integers(0, 11)),
    rates=st.tuples(*[st.floats(0, 10)] * 3),
    learned=st.booleans(),
)
def test_each_parameter_that_is_trained_is_in_one_group(frozen, rates, learned):
    model = Block("learned" if learned else 0.5)
    for place, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(place not in frozen)
    lr, strength_lr, weight_decay = rates
    assert parameter_groups(model, lr=2e-5)[2]["lr"] == pytest.approx(2e-3)  # a hundred times
    groups = parameter_groups(model, lr=lr, strength_lr=strength_lr, weight_decay=weight_decay)
    assert [group["lr"] for group in groups] == [lr, lr, strength_lr]
    assert [group["weight_decay"] for group in groups] == [weight_decay, 0, 0]
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    listed = [p for group in groups for p in group["params"]]
    assert len(listed) == len(trained) and set(listed) == set(trained.values())
    names = {parameter: name for name, parameter in trained.items()}
    weights, others, strengths = (
        {names[parameter] for parameter in group["params"]} for group in groups
    )
    assert strengths == trained.keys() & ({"attention.strength.theta"} if learned else set())
    assert all(name.endswith("weight") and "norm" not in name for name in weights)
    assert all("bias" in name or "norm" in name for name in others)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("wrapped", [False, True], ids=["attached", "PEFT"])
def test_strengths_of_an_attached_model(wrapped):
    model: nn.Module = attach(tiny_model("bert"), JatConfig.stones(layers=(1,)))
    if wrapped:
        peft = pytest.importorskip("peft")
        modules = {"target_modules": ["query"], "modules_to_save": ["strength"]}
        model = peft.get_peft_model(model, peft.LoraConfig(**modules))
    weights, others, strengths = (group["params"] for group in parameter_groups(model, lr=0.1))
    (theta,) = strengths
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert ".strength." in names[theta] and "original" not in names[theta]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len([*weights, *others, theta]) == len(trained)
    assert {*weights, *others, theta} == set(trained)
    assert {"lora" in names[parameter] for parameter in weights} == ({True} if wrapped else {False})


@pytest.mark.parametrize("optim", ["adamw_torch", "adafactor", "sgd"])
@pytest.mark.parametrize("strength_lr", [None, 0.3])
def test_the_trainer_makes_the_same_groups_for_any_optimizer(optim, strength_lr, tmp_path):
    model = Block()
    args = TrainingArguments(
        str(tmp_path), optim=optim, learning_rate=1e-3, weight_decay=0.1, use_cpu=True
    )
    trainer = JatTrainer(model=model, args=args)
    trainer.strength_learning_rate = strength_lr
    trainer.create_optimizer_and_scheduler(10)
    made = trainer.optimizer
    assert trainer.create_optimizer() is made
    wanted = parameter_groups(model, lr=1e-3, strength_lr=strength_lr, weight_decay=0.1)
    assert len(made.param_groups) == len(wanted)
    for found, group in zip(made.param_groups, wanted, strict=True):
        assert [*map(id, found["params"])] == [*map(id, group["params"])]
        assert (found["initial_lr"], found["weight_decay"]) == (group["lr"], group["weight_decay"])
    model.attention(torch.randn(2, 16, 8)).square().sum().backward()
    made.step()
    trainer.lr_scheduler.step()
    for found in made.param_groups:
        assert found["lr"] == pytest.approx(0.9 * found["initial_lr"])


def test_the_trainer_of_a_model_without_strengths_is_that_of_transformers(tmp_path):
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    ours = JatTrainer(model=Block(0.5), args=args).create_optimizer()
    theirs = Trainer(model=Block(0.5), args=args).create_optimizer()
    sizes = [[len(x["params"]) for x in made.param_groups] for made in (ours, theirs)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", ["lr", "strength_lr", "weight_decay"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "high"])
def test_bad_rates_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        parameter_groups(Block(), **{"lr": 0.1, name: value})  # type: ignore[arg-type]


def test_a_trainer_saves_heads_and_describes_them(tmp_path):
    model = attach(tiny_model("bert"), JatConfig.stones())
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    trainer = JatTrainer(model=model, args=args)
    trainer.save_model()
    assert "jat_graph.from_pretrained" in (tmp_path / "README.md").read_text()
    trainer.create_model_card(dataset="my sentences")
    card = (tmp_path / "README.md").read_text()
    assert "my sentences" in card and "jat_graph.from_pretrained" in card
    again = from_pretrained(type(model), tmp_path)
    assert attached_config(again) == attached_config(model)


@pytest.mark.slow
def test_activations_computed_again_take_the_graphs_that_there_are(tmp_path):
    losses = []
    for again in (False, True):
        torch.manual_seed(0)
        model = attach(tiny_model("bert"), JatConfig(PairGraph(threshold=0.1)))
        args = TrainingArguments(
            str(tmp_path),
            use_cpu=True,
            activation_checkpointing=again,
            max_steps=2,
            disable_tqdm=True,
        )
        rows = [{name: x[0] for name, x in tiny_inputs("bert", (8,)).items()} for _ in range(4)]
        loss = lambda outputs, labels, num_items_in_batch=None: outputs[0].square().mean()  # noqa: E731
        trainer = JatTrainer(model=model, args=args, train_dataset=rows, compute_loss_func=loss)
        losses.append(trainer.train().training_loss)
        assert model.is_activation_checkpointing == again
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
