"""The kernel for GPUs reads what the formula reads: on a GPU, or in Triton's interpreter."""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings

pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from triton.runtime import interpreter

import jat_graph.hf  # noqa: F401  # transformers then knows "clustered"
from examples.benchmarks import gpu, roofline
from examples.benchmarks.measure import Settings
from jat_graph.clusters import choice as choices
from jat_graph.clusters import naive
from jat_graph.clusters import tree as trees
from jat_graph.clusters.api import read_long
from jat_graph.clusters.attend import KERNELS, Kernel, kernel_for, read_next
from jat_graph.clusters.choice import Choice, Nodes, Rule, empty_choice, grow_for
from jat_graph.clusters.gpu import (
    averaging,
    backward,
    building,
    halving,
    kernel,
    launching,
    reading,
    splitting,
)
from jat_graph.clusters.operator import read_tree
from jat_graph.clusters.tree import halve_torch, halve_triton
from tests.clusters.support import Deep, cases, random_heads, run, tree_heads, with_twins
from tests.jumps.kernels.support import DEVICE

pytestmark = pytest.mark.slow
SMALL = Deep(keys=6, groups=2, size=2, segment=16, window=5, margin=3.0)
ENCODER = Deep(keys=8, groups=2, size=4, window=3, margin=4.0, causal=False)


@pytest.fixture(autouse=True, scope="module")
def mended() -> Iterator[None]:
    """Let the interpreter multiply bfloat16 and round to it, and make its language once."""
    # Triton's issue 11584: it multiplies the bits as integers, and cuts off what it rounds.
    build, function = interpreter.InterpreterBuilder, interpreter.InterpretedFunction
    dot, cast, patch = build.create_dot, build.cast_impl, interpreter._patch_lang
    done = set[Any]()

    def widened(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        data = (x.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(data, tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return dot(self, widened(a), widened(b), *others)

    def cast_impl(self: Any, x: Any, kind: Any) -> Any:
        if x.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(self, x, kind)
        nearest = torch.from_numpy(np.ascontiguousarray(x.data)).bfloat16().view(torch.int16)
        data = nearest.numpy().view(np.uint16).reshape(np.shape(x.data))
        return interpreter.TensorHandle(data, tl.bfloat16)

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.fn not in done:
            patch(self.fn)
            done.add(self.fn)
        return self.rewrite()(*arguments, **options)

    with pytest.MonkeyPatch.context() as context:
        if DEVICE.type == "cpu":
            context.setattr(build, "create_dot", create_dot)
            context.setattr(build, "cast_impl", cast_impl)
            context.setattr(function, "__call__", call)
        yield


def both(
    length: int, rule: Rule, dtype: torch.dtype = torch.float32, **shape: Any
) -> tuple[tuple[Choice, Any], tuple[Choice, Any]]:
    """Return choices, and outputs with log-sum-exp, of the formula and of the kernel."""
    heads = [x.to(DEVICE, dtype) for x in random_heads(length, **shape)]
    # Heads are apart, as in a cache that has room.
    rooms = (F.pad(x, (0, 0, 0, 7))[:, : x.size(1)] for x in (1.5 * heads[1], heads[2]))
    query, (key, value) = heads[0].float(), rooms
    tree = grow_for(rule, key)
    nodes = Nodes.of(tree, key, value, rule)
    assert kernel.unsupported(key, empty_choice(query, length, tree, rule)) is None
    found = []
    for one in (naive, kernel):
        choice = empty_choice(query, length, tree, rule)
        for lists in (choice.opened, choice.read) if one is kernel else ():
            lists.fill_(77)  # as memory is that was not written to
        found.append((choice, one.read(query, key, value, choice, nodes, chosen=False)))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("length", "rule", "shape"),
    [
        (110, SMALL, {}),
        (110, SMALL._replace(rest=False, margin=float("inf")), {"widths": (20, 17)}),
        (83, SMALL._replace(dense_below=50), {"rows": 41}),
        (150, SMALL._replace(segment=64), {"heads": (3, 1), "rows": 1}),
        (100, Rule(keys=5, groups=3, size=4, segment=32, window=7), {"heads": (5, 1), "rows": 6}),
        (40, SMALL._replace(window=64), {}),  # no cluster yet
        (2, SMALL, {"rows": 1}),  # fewer than all tokens read
        (60, SMALL, {"rows": 20, "heads": (2, 1), "widths": (128, 64)}),
        (40, SMALL, {"rows": 20, "heads": (1, 1), "widths": (64, 256)}),
        (90, ENCODER, {}),
        (77, ENCODER._replace(window=0, keys=3, size=3), {"heads": (2, 1)}),
    ],
    ids=[
        *("prompt", "no rest", "last tokens", "a token", "odd", "short", "two", "wide", "wider"),
        *("encoder", "no near keys"),
    ],
)
def test_it_chooses_and_reads_as_the_formula_does(
    length: int, rule: Rule, shape: dict[str, Any]
) -> None:
    (wanted, right), (choice, found) = both(length, rule, **shape)
    assert torch.equal(choice.opened, wanted.opened) and torch.equal(choice.read, wanted.read)
    torch.testing.assert_close(found, right, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_sums_in_float32(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "PARTS", 2)
    # All clusters are read, so that no rounding chooses others.
    rule = SMALL._replace(keys=16, groups=8, margin=float("inf"))
    for rows in (40, 2):
        (_, right), (_, found) = both(40, rule, dtype, widths=(16, 16), heads=(2, 1), rows=rows)
        assert found[0].dtype == dtype and found[1].dtype == torch.float32
        within = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(found[0].float(), right[0], rtol=within, atol=within)
        torch.testing.assert_close(found[1], right[1], rtol=within, atol=within)


@pytest.mark.parametrize(("parts", "segment"), [(4, 16), (2, 64)])
def test_several_programs_read_a_token(
    parts: int, segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More nodes than all programs meet at a time; the last tokens see other clusters.
    monkeypatch.setattr(launching, "PARTS", parts)
    rule = SMALL._replace(segment=segment, groups=3, window=3)
    length = 640 + trees.SINKS + rule.window + 1
    (wanted, right), (choice, found) = both(length, rule, heads=(3, 1), rows=4)
    assert len(wanted.seen.unique()) == 2
    assert torch.equal(choice.opened, wanted.opened) and torch.equal(choice.read, wanted.read)
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("length", "rule", "shape"),
    [
        (110, SMALL, {}),
        (110, SMALL._replace(rest=False), {"widths": (20, 17)}),
        (150, SMALL._replace(segment=64, dense_below=90), {"heads": (3, 1)}),
        (70, SMALL, {"rows": 3}),
        (40, SMALL._replace(window=64), {}),
        (90, ENCODER, {}),
        (77, ENCODER._replace(keys=3, size=3), {"heads": (2, 1)}),
    ],
    ids=["prompt", "no rest", "levels", "a token", "short", "encoder", "odd"],
)
def test_what_is_chosen_is_read_and_gradients_are_the_formulas(
    length: int, rule: Rule, shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward, "EACH", 48)  # tokens from which several programs sum
    heads = [x.to(DEVICE) for x in random_heads(length, **shape)]
    kernel_for(DEVICE)
    found = []
    for one, dtype in (naive, torch.float64), (kernel, torch.float32):
        own = Kernel(one.choose, one.read, one.differentiate)
        monkeypatch.setitem(KERNELS, DEVICE.type, own)
        found.append([x.double() for x in run(tree_heads, [x.to(dtype) for x in heads], rule)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_batch_goes_through_the_operator(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = random_heads(60, (2, 1), widths=(16, 16))
    documents = (torch.arange(-5, 55, device=DEVICE).div(35, rounding_mode="floor"))[None]
    # All clusters are read, so that no rounding chooses others.
    rule = [float(x) for x in SMALL._replace(keys=16, groups=8, margin=float("inf"))]
    kernel_for(DEVICE)
    found = []
    for one, own_dtype in (naive, torch.float64), (kernel, dtype):
        own = Kernel(one.choose, one.read, one.differentiate)
        monkeypatch.setitem(KERNELS, DEVICE.type, own)
        monkeypatch.setattr(choices, "BY_TRITON", {DEVICE.type} if one is kernel else set())
        leaves = [x.to(DEVICE, dtype).to(own_dtype)[None].requires_grad_() for x in heads]
        output = read_tree(*leaves, documents, None, None, 0.25, 0.0, rule)[0]
        grads = torch.autograd.grad(output.sin().sum(), leaves)
        found.append([x.double() for x in (output, *grads)])
    within = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found[1], found[0], rtol=within, atol=within)


@settings(max_examples=12)
@given(cases(longest=150))
def test_random_heads_are_read_with_their_gradients(case: tuple[list[torch.Tensor], Rule]) -> None:
    heads, rule = case
    rule = rule._replace(keys=rule.keys or 5, segment=16 * rule.size)  # or the formula reads
    query, key, value = (x.float().to(DEVICE) for x in heads)
    query *= query.size(-1) ** -0.5
    tree = grow_for(rule, key)
    nodes = Nodes.of(tree, key, value, rule)
    empty = empty_choice(query, key.size(1), tree, rule)
    for lists in (empty.opened, empty.read):
        lists.fill_(-1)
    choice = naive.choose(query, key, empty, nodes)
    assert kernel.unsupported(key, choice) is None
    exact = [x.double() for x in (query, key, value)]
    means = Nodes(*([x.double() for x in part] for part in nodes[:3]))
    found = kernel.read(query, key, value, choice, nodes)
    right = naive.read(*exact, choice, means)
    torch.testing.assert_close([x.double() for x in found], [*right], rtol=1e-4, atol=1e-5)
    ours = kernel.differentiate(found[0], *found, query, key, value, choice, nodes)
    theirs = naive.differentiate(right[0], *right, *exact, choice, means)
    flat = [[*x[:3], *x[3], *x[4]] for x in (ours, theirs)]
    torch.testing.assert_close(*([x.double() for x in y] for y in flat), rtol=1e-4, atol=1e-4)


def test_what_it_does_not_read_the_formula_reads() -> None:
    heads = random_heads(60, (2, 1))
    query, key, value = (x.float().to(DEVICE) for x in heads)
    for rule, kept, why in (
        (SMALL, (0.9, 3), "dropout"),
        (SMALL._replace(keys=0), None, "keys=0"),
        (SMALL._replace(segment=8), None, "a segment that is no multiple of 16"),
    ):
        tree = grow_for(rule, key)
        nodes = Nodes.of(tree, key, value, rule)
        choices = [empty_choice(query, 60, tree, rule) for _ in range(2)]
        assert kernel.unsupported(key, choices[0], kept) == why
        given = nodes, False, kept
        found = kernel.read(query, key, value, choices[0], *given)
        assert torch.equal(found[0], naive.read(query, key, value, choices[1], *given)[0])
    assert kernel.unsupported(heads[1], choices[0]) == "float64"


@pytest.mark.parametrize(("keys", "nodes", "width"), [(32, 16, 20), (16, 2, 16), (128, 16, 5)])
@pytest.mark.parametrize("twins", [False, True], ids=["", "twins"])
def test_keys_are_halved_as_torch_halves_them(
    keys: int, nodes: int, width: int, twins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "BLOCK", 32)  # more are halved by torch first
    key = random_heads(3 * keys, (2, 2), widths=(width, width))[1].float()
    key = (with_twins(key) if twins else key).unflatten(1, (3, keys)).to(DEVICE)
    found = halve_triton(key, nodes)
    assert torch.equal(found, halve_torch(key, nodes))
    assert torch.equal(found.flatten(1).sort().values[0].cpu(), torch.arange(3 * keys).int())


def test_other_numbers_of_keys_are_halved_by_torch() -> None:
    key = random_heads(48, (1, 1))[1].to(DEVICE)[None]
    for own, nodes in ((key.float(), 16), (key[:, :, :32], 4), (key[:, :, :32].float(), 1)):
        assert torch.equal(halve_triton(own, nodes), halve_torch(own, nodes))


@pytest.mark.parametrize(
    ("length", "rule", "widths"),
    [
        (200, SMALL, (5, 6)),
        (150, ENCODER._replace(size=3), (20, 3)),
        (90, Rule(size=8, segment=64, window=5), (16, 16)),
        (40, SMALL._replace(window=64), (8, 8)),
    ],
)
def test_means_are_those_of_torch(
    length: int, rule: Rule, widths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key, value = (x.to(DEVICE) for x in random_heads(length, (2, 2), widths=widths))
    tree = grow_for(rule, key)
    given = tree, key.float(), value.float(), rule
    flat = tree, key.float().mT.contiguous().mT, value.float(), rule  # other strides
    monkeypatch.setattr(choices, "BY_TRITON", set())
    wanted = Nodes.of(*given)
    known = Nodes.of(tree.crop(1), *given[1:]) if rule.causal else None
    monkeypatch.setattr(choices, "BY_TRITON", {DEVICE.type})
    for found in (Nodes.of(*given), Nodes.of(*flat), Nodes.of(*given, known)):
        torch.testing.assert_close(found[:3], wanted[:3])
    assert Nodes.of(tree, key, value, rule).keys[0].dtype == torch.float64


class Launches(TorchDispatchMode):
    """Counts what would be launched on a GPU, and refuses to wait for one."""

    WAITS = frozenset("_local_scalar_dense nonzero is_nonzero equal _unique2".split())
    WAITS |= {"masked_select", "unique_consecutive"}

    def __init__(self) -> None:
        super().__init__()
        self.names = list[str]()
        self.bytes = 0  # that are made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if name == "read_tree":  # what is inside counts
            with self:
                return read_tree._init_fn(*args)
        given = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        chosen = name in ("index", "index_put_") and any(x.dtype == torch.bool for x in given[1:])
        assert name not in self.WAITS and not chosen, name
        made = func(*args, **(kwargs or {}))
        results = [x for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
        places = {x.untyped_storage().data_ptr() for x in given}
        view = all(x.untyped_storage().data_ptr() in places for x in results)
        # In tests, memory that is not written to is filled with NaN.
        filled = name == "fill_" and args[0].is_floating_point()
        free = "empty" in name or filled or (view and not name.endswith("_"))
        self.names += [] if free else [name]
        self.bytes += 0 if view else sum(x.nbytes for x in results)
        return made

    def of(self, name: str) -> Any:
        """Return a kernel that is counted, and not launched."""
        return type(
            name, (), {"__getitem__": lambda _, grid: lambda *x, **y: self.names.append(name)}
        )()


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launches]]:
    """What layers launch that run by name, as if on a GPU."""
    kernel_for(torch.device("cpu"))
    monkeypatch.setitem(KERNELS, "cpu", Kernel(kernel.choose, kernel.read, kernel.differentiate))
    for module in choices, sys.modules[read_next.__module__]:
        monkeypatch.setattr(module, "BY_TRITON", {"cpu"})
    monkeypatch.setattr(trees, "pick", lambda device, plain, cpu, cuda, slow=False: cuda)
    attend: Any = AttentionInterface()["clustered"]
    found = list[Launches]()

    def counted(settings: Any, *args: Any, **options: Any) -> Any:
        with Launches() as launched, monkeypatch.context() as context:
            for file in (halving, averaging, reading, splitting):
                for name in {"halve", "average", "look", "read", "combine"} & vars(file).keys():
                    context.setattr(file, name, launched.of(name))
            context.setattr(torch.Tensor, "tolist", None, raising=False)
            output = attend.func(settings, *args, **options)
        found.append(launched)
        return output

    AttentionInterface.register("clustered", partial(counted, *attend.args))
    yield found
    AttentionInterface.register("clustered", attend)


def test_few_kernels_are_launched_and_none_waits(launches: list[Launches]) -> None:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=9, hidden_size=64, intermediate_size=64, **sizes)
    config.clustered = {"keys": 16, "groups": 4, "size": 4, "segment": 32, "window": 8}
    config.clustered |= {"dense_below": 60}
    model = LlamaForCausalLM(config).bfloat16().eval()
    model.set_attn_implementation("clustered")
    for length in (260, 1028):
        tokens = torch.randint(9, (1, length))
        with torch.no_grad():
            model(tokens, use_cache=False)
            cache = model(tokens).past_key_values
            for _ in range(2):  # the first of which grows the tree that stays
                model(tokens[:, :1], past_key_values=cache)
    most = 3 * [roofline.PROMPT[1]] + [roofline.TOKEN[1]]
    for launched, number in zip(launches, 2 * most, strict=True):
        assert launched.names.count("read") == 1 and len(launched.names) <= number, launched.names
    made = [launched.bytes for launched in launches]
    # A prompt takes room in proportion to its length, a token as much after any.
    assert made[4] < 1028 / 260 * 1.3 * made[0] and made[7] < 1.1 * made[3], made


@pytest.mark.parametrize("before", [0, 30])
def test_first_tokens_are_read_by_sdpa(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [x.float()[None].to(DEVICE) for x in random_heads(90, (4, 2))]
    rule = SMALL._replace(dense_below=60)
    kernel_for(DEVICE)
    monkeypatch.setitem(
        KERNELS, DEVICE.type, Kernel(naive.choose, naive.read, kernel.differentiate)
    )
    both = []
    for names in (set(), {DEVICE.type}):
        monkeypatch.setattr(sys.modules[read_next.__module__], "BY_TRITON", names)
        leaves = [x.clone().requires_grad_() for x in heads]
        whole = read_long(*leaves, rule, dropout_p=0.0, scale=0.3)
        found = [whole, *torch.autograd.grad(whole.square().sum(), leaves)]
        query, key, value = (x[0].detach() for x in leaves)
        for end in (70, 50):  # a prompt after others that reaches trees, and one that does not
            given = query[:, before:end], key[:, :end], value[:, :end]
            found.append(read_next(*given, rule, 0.3)[0])
        both.append(found)
    torch.testing.assert_close(both[1], both[0], rtol=1e-4, atol=1e-5)


def test_errors_are_measured_and_large_ones_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_for(DEVICE)
    own = Kernel(kernel.choose, kernel.read, kernel.differentiate)
    monkeypatch.setitem(KERNELS, DEVICE.type, own)
    monkeypatch.setattr(gpu, "RULE", SMALL)
    how = Settings(DEVICE.type, 1, torch.float32)
    found = gpu.errors(90, how, 16, "float32")
    assert found["facts"]["alike"] == 1 and found["ours"]["median"] < 1e-5

    def wrong(*given: Any, **options: Any) -> Any:
        output, lse = kernel.read(*given, **options)
        return output * 1.001, lse

    monkeypatch.setitem(KERNELS, DEVICE.type, own._replace(read=wrong))
    with pytest.raises(AssertionError, match="errors must be at most 4"):
        gpu.errors(90, how, 16, "float32")
