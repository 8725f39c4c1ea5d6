"""Sums that come out alike in every run, and products that TF32 does not touch."""

import pytest
import torch
from torch.testing import assert_close

from jat_graph.core.compiling import full_precision
from jat_graph.core.tensors import add_rows


def test_rows_of_one_index_are_added(device):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 5, generator=generator).to(device)
    index = torch.randint(7, (300,), generator=generator).to(device)
    expected = torch.stack([rows[index == place].sum(0) for place in range(7)])
    found = [torch.zeros(7, 5, device=device) for _ in range(3)]
    for total in found:
        add_rows(total, index, rows)
        assert torch.equal(total, found[0])
    assert_close(found[0], expected)


@pytest.mark.parametrize("given", ["tf32", "ieee", "none"])
@pytest.mark.parametrize("old", [True, False])
def test_full_precision_leaves_what_torch_was_told(given, old):
    own, every = torch.backends.cuda.matmul, torch.backends
    try:
        if old:  # for products alone, with names that torch had before
            own.allow_tf32 = given == "tf32"
        else:
            every.fp32_precision = given  # as TrainingArguments(tf32=True) does
        before = own.fp32_precision
        with full_precision(torch.device("cuda")):
            assert own.fp32_precision == "ieee"
        assert own.fp32_precision == before
        if not old:
            every.fp32_precision = other = "ieee" if given == "tf32" else "tf32"
            assert own.fp32_precision == other  # from then on, for products, too
    finally:
        own.fp32_precision = every.fp32_precision = "none"
