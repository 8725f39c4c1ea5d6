"""Jump attention beside its oracle."""

import torch
from torch import Tensor

from jat_graph import JatConfig, jump_attention, jump_operator
from tests.support import Case, assert_equal, oracle_graph, oracle_output


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
