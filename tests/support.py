"""What the tests of the core share: random cases, and the oracle's answer to a config."""

import math
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jat_graph import JatConfig, attention_graph, jump_attention, jump_operator
from jat_graph.hf import CapturedLayer, capture_scores
from tests.inputs import critical_products, random_padding_mask
from tests.jumps.adjacency.support import sampled_ranks, sampled_triples
from tests.oracles import reference_graph, reference_jump_attention, reference_mask

PADDING_MASKS = ("none", "right", "left", "scattered", "per head", "empty row", "padding bias")
CAUSAL_MASKS = ("causal", "causal right", "causal left", "causal 4d", "causal additive")
PAIR_MASKS = ("pairs", "pairs per head", "pairs additive", "pairs causal", "documents")
MASKS = PADDING_MASKS + CAUSAL_MASKS + PAIR_MASKS
SELECTIONS = ("all", "significance", "sampled", "strided", "sampled_queries")
NO_TORCH_SPARSE = "torch-scatter and torch-sparse are not installed"
needs_torch_sparse = pytest.mark.skipif(find_spec("torch_sparse") is None, reason=NO_TORCH_SPARSE)
HOPS = ((2.0,), (0.0, 1.0), (0.0, 0.0, 1.0), (0.5, 0.5), (1.0, -0.5, 0.25), (-1.0, 0.5), (0.0, 2.0))


class Case(NamedTuple):
    """Heads and their mask."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The mask and the scale, as the library's functions take them."""
        return {"attention_mask": self.mask, "is_causal": self.is_causal, "scale": self.scale}

    def to(self, device: torch.device) -> "Case":
        """Return the case on a device."""
        mask = None if self.mask is None else self.mask.to(device)
        query, key, value = (t.to(device) for t in self[:3])
        return self._replace(query=query, key=key, value=value, mask=mask)

    @property
    def pairs(self) -> Tensor:
        """M."""
        return reference_mask(self.query, self.mask, self.is_causal).pairs

    @property
    def valid(self) -> Tensor:
        """1 for tokens that some query may attend to: [B, H, L, 1]."""
        visible = reference_mask(self.query, self.mask).visible
        return visible.any(-2).unsqueeze(-1).to(self.query.dtype)


def random_tensors(seed: int, *shapes: tuple[int, ...], spread: float = 1.5) -> list[Tensor]:
    """Return Gaussian float64 tensors."""
    generator = torch.Generator().manual_seed(seed)
    return [
        spread * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    ]


def make_mask(
    kind: str, batch: int, heads: int, length: int, seed: int = 0
) -> tuple[Tensor | None, bool]:
    """Return a mask of a kind in ``MASKS``, and whether it goes with ``is_causal``."""
    generator = torch.Generator().manual_seed(seed)
    side = kind.removeprefix("causal ")
    if kind in ("none", "causal"):
        return None, kind == "causal"
    if side in ("right", "left", "scattered"):
        mask = random_padding_mask(batch, length, side=side, seed=seed)
        return mask, kind.startswith("causal")
    if kind == "per head":
        return torch.rand(batch, heads, 1, length, generator=generator) < 0.7, False
    if kind == "empty row":
        mask = random_padding_mask(batch, length, seed=seed)
        mask[-1] = False
        return mask, False
    if kind == "padding bias":
        bias = torch.randn(batch, 1, 1, length, generator=generator, dtype=torch.float64)
        hidden = ~random_padding_mask(batch, length, side="scattered", seed=seed)
        return bias.masked_fill(hidden[:, None, None], -math.inf), False
    triangle = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    if kind == "causal 4d":
        padding = random_padding_mask(batch, length, side="left", seed=seed)
        return triangle & padding[:, None, None, :], False
    if kind == "causal additive":
        zeros = torch.zeros(1, 1, length, length, dtype=torch.float64)
        return zeros.masked_fill(~triangle, torch.finfo(torch.float64).min), False
    return _pair_mask(kind, batch, heads, length, generator)


def _pair_mask(
    kind: str, batch: int, heads: int, length: int, generator: torch.Generator
) -> tuple[Tensor, bool]:
    """Return a mask that is neither padding nor causal, most of the time."""
    shape = (batch, heads if kind == "pairs per head" else 1, length, length)
    pairs = torch.rand(shape, generator=generator) < 0.75
    if kind == "documents":
        document = torch.randint(2, (batch, length), generator=generator).cumsum(-1)
        return (document[:, :, None] == document[:, None, :]).unsqueeze(1), False
    if kind == "pairs additive":
        bias = torch.randn(shape, generator=generator, dtype=torch.float64)
        return bias.masked_fill(~pairs, -math.inf), False
    if kind == "pairs causal":
        return pairs | torch.eye(length, dtype=torch.bool), True
    return pairs, False


def oracle_settings(config: JatConfig, length: int) -> dict[str, Any]:
    """Return the oracle's arguments for a config, with the library's own samples."""
    names = (
        "vote_rate key_selection num_keys key_factor key_step same_sign_only normalize_keys "
        "inclusive nodes soft_temperature"
    ).split()
    settings = {name: getattr(config.graph, name) for name in names}
    threshold = config.graph.threshold
    if isinstance(threshold, tuple):
        threshold = torch.tensor(threshold, dtype=torch.float64)
    settings["threshold"] = threshold
    if config.graph.key_selection in ("sampled", "sampled_queries"):
        settings["sample_ranks"] = {n: sampled_ranks(config, n) for n in range(1, length + 1)}
    if config.graph.vote_rate is not None:
        settings["triples"] = {n: sampled_triples(config, n) for n in range(2, length + 1)}
    return settings


def oracle_graph(config: JatConfig, case: Case) -> Any:
    """Return the oracle's graph."""
    settings = oracle_settings(config, case.query.size(2))
    return reference_graph(case.query, case.key, **case.options, **settings)


def oracle_output(config: JatConfig, case: Case, *, pattern: Tensor | None = None) -> Tensor:
    """Return the oracle's outputs, with scores read where ``pattern`` is True."""
    settings = oracle_settings(config, case.query.size(2))
    return reference_jump_attention(
        case.query,
        case.key,
        case.value,
        hop_weights=config.hop_weights,
        pattern=pattern,
        **case.options,
        **settings,
    )


def with_half_joined(config: JatConfig, case: Case, *, least_pairs: int = 10) -> JatConfig:
    """Return the config at a threshold that joins half of the allowed pairs, or of those it can.

    The threshold lies between two products, so that no rounding decides a vote. With at least
    ``least_pairs`` allowed pairs, 10 to 90 % are joined; the case is rejected where none could.
    """
    settings = oracle_settings(config, case.query.size(2))
    settings |= {"threshold": math.inf, "vote_rate": None}
    graph, rule = reference_graph(case.query, case.key, **case.options, **settings), config.graph
    norm = case.key.norm(dim=-1).clamp(min=1.0) if rule.normalize_keys else None
    critical = critical_products(graph.scores, case.pairs, graph.voters, norm, rule.same_sign_only)
    if rule.nodes == "selected":
        nodes = graph.voters[..., :, None] & graph.voters[..., None, :]
        critical = critical.masked_fill(~nodes, math.nan)
    critical = critical[~critical.isnan()]
    positive = sorted({value for value in critical.tolist() if value > 0})
    if len(critical) >= least_pairs:
        assume(len(positive) >= 4 and (critical > 0).double().mean() > 0.2)
    if not positive:
        return config
    place = min(len(positive) - 1, max(1, len(positive) - max(1, len(set(critical.tolist())) // 2)))
    below = positive[place - 1] if place else 0.0
    config = config.replace(threshold=(below + positive[place]) / 2)
    if len(critical) >= least_pairs:
        assert 0.1 <= (critical > config.graph.threshold).double().mean() <= 0.9
    return config


@st.composite
def heads_and_masks(draw: st.DrawFn, masks: tuple[str, ...] = MASKS) -> Case:
    """Draw heads of odd and even sizes, and a mask of one of the kinds."""
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    length, head_dim = draw(st.sampled_from((1, 2, 3, 7, 8, 13))), draw(st.sampled_from((1, 4, 7)))
    width = draw(st.sampled_from((head_dim, 3)))
    seed = draw(st.integers(0, 2**20))
    query, key, value = random_tensors(
        seed, *[(batch, heads, length, size) for size in (head_dim, head_dim, width)]
    )
    mask, is_causal = make_mask(draw(st.sampled_from(masks)), batch, heads, length, seed)
    return Case(query, key, value, mask, is_causal, draw(st.sampled_from((None, 0.8))))


@st.composite
def configs(draw: st.DrawFn, backend: str, masks: tuple[str, ...], heads: int) -> JatConfig:
    """Draw a config that a backend can run under every mask of the given kinds."""
    general = masks == PADDING_MASKS
    settings: dict[str, Any] = {"backend": backend, "seed": draw(st.integers(0, 99))}
    for name in ("same_sign_only", "normalize_keys", "inclusive"):
        settings[name] = draw(st.booleans())
    settings["key_selection"] = draw(st.sampled_from(SELECTIONS if general else ("all",)))
    if masks == CAUSAL_MASKS and draw(st.booleans()):
        settings |= {"key_selection": "strided", "key_step": draw(st.integers(1, 3))}
    elif draw(st.booleans()):
        settings["num_keys"] = draw(st.sampled_from((1, 2, 5)))
    settings["key_factor"] = draw(st.sampled_from((0.3, 1.0, 2.5)))
    settings["nodes"] = draw(st.sampled_from(("all", "selected")))
    if backend in ("dense", "auto"):
        settings["soft_temperature"] = draw(st.sampled_from((None, None, 0.1, 1.0)))
    each = st.sampled_from(HOPS)
    settings["hop_weights"] = draw(
        each | st.fixed_dictionaries({(head,): each | st.just((1.0,)) for head in range(heads)})
    )
    return JatConfig.paper(**settings)


def captured_layers(model: torch.nn.Module, inputs: Mapping[str, Tensor]) -> list[CapturedLayer]:
    """Return what the jump heads of a model see of inputs."""
    with torch.no_grad(), capture_scores(model.eval()) as layers:
        model(**inputs)
    return layers


def layer_weights(layer: CapturedLayer) -> Tensor:
    """Return A of hard votes, or P without what stays, of a layer: ``[B, H, L, L]``."""
    valid = layer.mask.valid
    options: dict[str, Any] = {
        "config": layer.config.replace(soft_temperature=None),
        "attention_mask": None if valid is None else valid[:, 0],
        "is_causal": layer.mask.causal,
        "scale": layer.scale,
    }
    if layer.config.graph.kind == "stones":
        walk = jump_operator(layer.query, layer.key, **options).to_dense()
        return walk - torch.diag_embed(walk.diagonal(dim1=-2, dim2=-1))
    batch, heads, length, _ = layer.query.shape
    weights = layer.query.new_zeros(batch, heads, length, length)
    for graph in attention_graph(layer.query, layer.key, **options).to_data_list():
        source, target = graph.token[graph.edge_index]
        weights[graph.sequence, graph.head, target, source] = graph.edge_weight
    return weights


def assert_equal(got: Tensor | Sequence[Tensor], want: Tensor | Sequence[Tensor]) -> None:
    """Compare tensors, or as many of them, within the error that float64 is allowed."""
    assert_close(got, want, rtol=1e-10, atol=1e-10)


class MemoryMeter(TorchDispatchMode):
    """Record the largest tensor and the most memory that was alive at once, forward and backward.

    Attributes:
        largest: Elements of the largest tensor that an operation gave.
        peak: Bytes that were alive at once.
        allocated: Elements of the largest tensor that each operation allocated, by its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.peak = self._alive = 0
        self.allocated: Counter[str] = Counter()
        self._storages: dict[int, Any] = {}

    def restart(self) -> None:
        """Forget what was before, but for the memory that is still alive."""
        self.largest, self.peak = 0, self._alive
        self.allocated.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._see(str(func), tensor)
        return result

    def _see(self, name: str, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided:
            tensor = tensor.values()
        storage = tensor.untyped_storage()
        self.largest = max(self.largest, storage.nbytes() // tensor.element_size())
        if storage._cdata not in self._storages:
            elements = storage.nbytes() // tensor.element_size()
            self.allocated[name] = max(self.allocated[name], elements)
            self._alive += storage.nbytes()
            self.peak = max(self.peak, self._alive)
            self._storages[storage._cdata] = weakref.finalize(
                storage, self._forget, storage._cdata, storage.nbytes()
            )

    def _forget(self, name: int, size: int) -> None:
        del self._storages[name]
        self._alive -= size


@contextmanager
def count_operations() -> Iterator[Counter[str]]:
    """Count the operations that run inside the ``with``, forward and backward, by their names."""
    seen: Counter[str] = Counter()

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen[str(func)] += 1
            return func(*args, **(kwargs or {}))

    with Mode():
        yield seen


def sdpa_kernels(operations: Counter[str]) -> set[str]:
    """Name the kernels of SDPA among operations: "flash", "efficient", "cudnn" or "math"."""
    names = [name.split(".")[1] for name in operations]
    return {
        kernel
        for kernel, sign in {
            "flash": "_scaled_dot_product_flash_attention",
            "efficient": "_scaled_dot_product_efficient_attention",
            "cudnn": "_scaled_dot_product_cudnn_attention",
            "math": "_safe_softmax",
        }.items()
        if any(name.startswith(sign) for name in names)
    }


def assert_within_budget(
    fast: Tensor, low_precision: Tensor, truth: Tensor, *, factor: float = 2.0, ulps: float = 4.0
) -> None:
    """Assert that a result is at most twice as wrong as plain code at the same precision.

    It may be off by 2 max |low − truth| + 4 ε max |truth|; the last term lets through what no code
    can avoid, where the plain code happens to be exact. ``truth`` is the reference in float64; the
    rule is that of flash-attention's tests.
    """
    assert fast.shape == low_precision.shape == truth.shape
    assert fast.dtype == low_precision.dtype and truth.dtype == torch.float64
    if truth.numel() == 0:
        return
    floor = ulps * torch.finfo(fast.dtype).eps * truth.abs().max().item()
    error, low_error = (
        (result.detach().double() - truth.detach()).abs().max().item()
        for result in (fast, low_precision)
    )
    budget = factor * low_error + floor
    assert error <= budget, f"error {error:.3e} is above its budget {budget:.3e}"  # nor is it NaN


def gradients(output: Tensor, leaves: list[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of all leaves, zeros where there is none."""
    return torch.autograd.grad(output, leaves, cotangent, materialize_grads=True)


def check_against_oracle(
    config: JatConfig,
    case: Case,
    device: str | torch.device = "cpu",
    *,
    pattern: Tensor | None = None,
) -> None:
    """Compare outputs and gradients of valid tokens with the oracle's, in float64."""
    here = case.to(torch.device(device))
    leaves, twins = ([x.clone().requires_grad_() for x in heads[:3]] for heads in (here, case))
    output = jump_attention(*leaves, config=config, **here.options)
    assert output.isfinite().all()
    truth = oracle_output(config, Case(*twins, *case[3:]), pattern=pattern)
    assert_equal(output.cpu() * case.valid, truth * case.valid)
    cotangent = torch.randn(output.shape, dtype=output.dtype) * case.valid
    found = gradients(output, leaves, cotangent.to(device))
    assert all(gradient.isfinite().all() for gradient in found)
    wanted = gradients(truth, twins, cotangent)
    assert_equal([x.cpu() * case.valid for x in found], [x * case.valid for x in wanted])
    operator = jump_operator(*here[:2], config=config, **here.options)
    assert_equal(operator.to_dense().cpu(), oracle_graph(config, case).adj_norm)
