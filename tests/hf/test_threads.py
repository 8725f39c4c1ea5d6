"""Contexts count for the calls of their own thread or task, whoever else runs the model."""

from __future__ import annotations

import _thread
import asyncio
import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import copy_context

import psutil
import pytest
import torch
from torch_geometric.data import Data

from jat_graph import JatConfig, PairGraph, attach, disabled, using_global_tokens, using_graphs
from jat_graph.hf import capture_scores, register_clustered
from tests.hf.causal import FAMILIES
from tests.hf.models import VOCABULARY, main_output, run, tiny_model

IDS = torch.randint(3, VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(0))
INPUTS = {"input_ids": IDS}
CLUSTERS = {"keys": 4, "size": 4, "dense_below": 0}


def edges(seed):
    drawn = torch.randint(0, 40, (2, 120), generator=torch.Generator().manual_seed(seed))
    return Data(edge_index=drawn, num_nodes=40)


def tokens(seed):
    mask = torch.zeros(2, 40, dtype=torch.bool)
    mask[:, 4 * seed : 4 * seed + 3] = True
    return mask


@contextmanager
def captured(model):
    with capture_scores(model) as layers:
        yield model
        assert [layer.layer for layer in layers] == [0, 1, 2]
        assert all(layer.query.size(0) == 2 for layer in layers)  # one call, this thread's own


def by_name():
    model = tiny_model("bert")
    model.set_attn_implementation(register_clustered(**CLUSTERS))
    return model


def on_clusters():
    return attach(tiny_model("bert"), JatConfig.clustered(**CLUSTERS))


def on_pairs():
    return attach(tiny_model("bert"), JatConfig(PairGraph(threshold=0.1), heads=2))


def odd_ones(context):
    return lambda model, seed: context(model) if seed % 2 else nullcontext()


def with_tokens(model, seed):
    return using_global_tokens(model, tokens(seed))


CONTEXTS = {
    "graphs": (on_pairs, lambda model, seed: using_graphs(model, [edges(seed)] * 2)),
    "global tokens": (on_clusters, with_tokens),
    "global by name": (by_name, with_tokens),
    "disabled": (on_pairs, odd_ones(disabled)),
    "captured": (on_pairs, odd_ones(captured)),
}


def inside(model, context, seed):
    with context(model, seed):
        return run(model, INPUTS)


@pytest.mark.parametrize("which", CONTEXTS)
def test_eight_threads_share_a_model_and_each_has_its_own(which):
    make, context = CONTEXTS[which]
    model = make()
    wanted = [inside(model, context, seed) for seed in range(8)]
    plain = run(model, INPUTS)
    together = threading.Barrier(8, timeout=60)

    def work(seed):
        for _ in range(3):
            together.wait()
            with context(model, seed):
                together.wait()  # all are inside
                got = run(model, INPUTS)
            assert torch.equal(got, wanted[seed])
        return run(model, INPUTS)

    with ThreadPoolExecutor(8) as pool:
        after = [*pool.map(work, range(8))]
    assert all(torch.equal(own, plain) for own in (*after, run(model, INPUTS)))
    if which != "captured":
        assert not torch.equal(wanted[1], wanted[2])


@pytest.mark.parametrize("which", ["graphs", "global by name", "disabled"])
def test_tasks_have_their_own_and_give_it_to_the_threads_that_they_ask(which):
    make, context = CONTEXTS[which]
    model = make()
    wanted = [inside(model, context, seed) for seed in range(4)]

    async def work(seed):
        with context(model, seed):
            await asyncio.sleep(0.01)  # the others come in
            here = run(model, INPUTS)
            there = await asyncio.to_thread(run, model, INPUTS)
        return torch.equal(here, wanted[seed]) and torch.equal(there, wanted[seed])

    async def all_of_them():
        return await asyncio.gather(*(work(seed) for seed in range(4)))

    assert all(asyncio.run(all_of_them()))


def test_contexts_end_in_any_order_and_an_inner_one_counts():
    model = on_pairs()
    plain, base = run(model, INPUTS), inside(model, CONTEXTS["disabled"][1], 1)
    graphs = inside(model, CONTEXTS["graphs"][1], 3)
    entered, left = threading.Event(), threading.Event()

    def stay():
        with using_graphs(model, [edges(5)] * 2), disabled(model):
            entered.set()
            left.wait(60)

    with ExitStack() as stack:
        stack.enter_context(using_graphs(model, [edges(3)] * 2))
        thread = threading.Thread(target=stay, daemon=True)
        thread.start()
        assert entered.wait(60)
        assert torch.equal(run(model, INPUTS), graphs)
        with disabled(model):
            assert torch.equal(run(model, INPUTS), base)
        assert torch.equal(run(model, INPUTS), graphs)
    assert torch.equal(run(model, INPUTS), plain)
    left.set()
    thread.join()
    assert torch.equal(run(model, INPUTS), plain)


def in_a_thread_of_another_kind(work):
    """Run as autograd's threads on a GPU do, where a checkpoint is computed again."""
    found, done = [], threading.Event()

    def call():
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)
        done.set()

    _thread.start_new_thread(call, ())
    assert done.wait(60)
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_threads_that_python_did_not_start_take_the_context_that_is_open_or_their_own():
    model = on_pairs()
    plain, base = run(model, INPUTS), inside(model, CONTEXTS["disabled"][1], 1)
    graphs = inside(model, CONTEXTS["graphs"][1], 3)
    with disabled(model):
        assert torch.equal(in_a_thread_of_another_kind(lambda: run(model, INPUTS)), base)
        with_own = in_a_thread_of_another_kind(lambda: inside(model, CONTEXTS["graphs"][1], 3))
        assert torch.equal(with_own, base)  # the heads are off
    with using_graphs(model, [edges(5)] * 2):
        assert torch.equal(
            in_a_thread_of_another_kind(lambda: inside(model, CONTEXTS["graphs"][1], 3)), graphs
        )
    assert torch.equal(in_a_thread_of_another_kind(lambda: run(model, INPUTS)), plain)


@pytest.mark.parametrize("which", ["graphs", "probabilities"])
def test_checkpoints_are_computed_again_in_threads_of_another_kind(which):
    name = "bert" if which == "graphs" else "gpt2"
    model = attach(tiny_model(name), JatConfig(PairGraph(threshold=0.1), heads=2)).train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    with using_graphs(model, [edges(3)] * 2) if which == "graphs" else nullcontext():
        output = model(**INPUTS, output_attentions=which != "graphs")
        loss = main_output(output).square().sum()
        in_a_thread_of_another_kind(loss.backward)
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0


def test_a_context_that_ends_in_another_one_leaves_nothing_behind():
    model = on_pairs()
    plain = run(model, INPUTS)

    def held():
        with disabled(model), using_graphs(model, [edges(3)] * 2):
            yield

    generator = held()
    copy_context().run(next, generator)
    assert not model._jat_attachment.enabled  # as compiled code would see it
    copy_context().run(lambda: next(generator, None))
    assert model._jat_attachment.enabled and model._jat_attachment.graphs is None
    assert torch.equal(run(model, INPUTS), plain)


def soaked(model, job):
    """Encode a text, encode it on a graph, or generate, as the number of a job says."""
    length = (9, 23, 40, 57)[job % 4]
    draw = torch.Generator().manual_seed(job)
    inputs = {"input_ids": torch.randint(3, VOCABULARY, (1 + job % 2, length), generator=draw)}
    if job % 3 == 0:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        return model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None)
    graphs = nullcontext()
    if job % 3 == 1:
        ends = torch.randint(0, length, (2, 3 * length), generator=draw)
        graph = Data(edge_index=ends.sort(0)[0], num_nodes=length)
        graphs = using_graphs(model, [graph] * len(inputs["input_ids"]))
    with graphs:
        return run(model, inputs, use_cache=False)


@pytest.mark.slow
def test_eight_threads_for_a_long_time_give_what_one_gives():
    """For as many seconds as JAT_SOAK_SECONDS says; above a minute memory may not grow, too."""
    seconds = float(os.environ.get("JAT_SOAK_SECONDS", "2"))
    model = attach(FAMILIES["qwen2"](), JatConfig(PairGraph(threshold=0.1), heads=(0, 1)))
    attach(model, JatConfig.clustered(heads=(2, 3), **CLUSTERS, segment=8, window=1))
    jobs = range(24)
    wanted = [soaked(model, job) for job in jobs]
    process = psutil.Process()
    resident = list[int]()
    runs = [0] * 8
    start = time.monotonic()

    def work(seed):
        draw = torch.Generator().manual_seed(seed)
        while time.monotonic() - start < seconds:
            job = int(torch.randint(len(jobs), (), generator=draw))
            assert torch.equal(soaked(model, job), wanted[job])
            runs[seed] += 1
            if seed == 0 and runs[0] % 20 == 0:
                gc.collect()
                resident.append(process.memory_info().rss)

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(work, range(8))] == [None] * 8
    assert min(runs) > 0
    settled = resident[len(resident) // 4 :]  # threads and arenas come first
    if seconds > 60:
        assert max(settled[-5:]) < 1.05 * max(settled[:5])
