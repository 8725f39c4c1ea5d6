"""What every operator must do: a test class to inherit from."""

from __future__ import annotations

from functools import partial
from unittest import TestCase

import torch
from torch import Tensor
from torch.testing import assert_close

from jat_graph.operators import Operator

assert_equal = partial(assert_close, rtol=1e-10, atol=1e-10)  # the error that float64 is allowed


class OperatorContract:
    """Tests that an operator passes if it multiplies by the matrix it stands for.

    A subclass, named ``Test...`` so that pytest finds it, gives :meth:`create_operator` and
    :meth:`dense_truth`, and :meth:`create_inputs` if its inputs are not queries and keys::

        class TestMyOperator(OperatorContract):
            def create_operator(self, query, key):
                return MyOperator(query, key)

            def dense_truth(self, query, key):
                return ...  # the matrix by its definition, [B, H, L, L]

    Inputs are float64 and have the batch as their first axis. ``device`` is a class attribute.

    Reference:
        linear_operator's ``LinearOperatorTestCase``.
    """

    device: str = "cpu"

    def create_inputs(self) -> tuple[Tensor, ...]:
        """Return what both :meth:`create_operator` and :meth:`dense_truth` take.

        Returns:
            Queries and keys ``[2, 3, 12, 8]``; a threshold of 6 joins about half of the pairs.
        """
        generator = torch.Generator().manual_seed(0)
        random = torch.randn(2, 2, 3, 12, 8, dtype=torch.float64, generator=generator)
        query, key = 1.45 * random.to(self.device)
        return query, key

    def create_operator(self, *inputs: Tensor) -> Operator:
        """Return the operator to test.

        Args:
            inputs: The tensors of :meth:`create_inputs`.

        Returns:
            The operator.
        """
        raise NotImplementedError

    def dense_truth(self, *inputs: Tensor) -> Tensor:
        """Return the matrix that the operator stands for, with its gradients.

        Args:
            inputs: The tensors of :meth:`create_inputs`.

        Returns:
            The matrix ``[B, H, L, L]``.
        """
        raise NotImplementedError

    def test_truth_is_neither_empty_nor_full(self) -> None:
        """Between 10 and 90 % of the entries off the diagonal are not zero."""
        truth = self.dense_truth(*self.create_inputs())
        length = truth.shape[-1]
        diagonal = torch.eye(length, dtype=torch.bool, device=truth.device)
        share = (truth != 0).masked_fill(diagonal, False).sum() / (truth.numel() * (1 - 1 / length))
        assert 0.1 <= share <= 0.9, f"{share:.0%} of the pairs are joined"

    def test_shape(self) -> None:
        """The operator has the shape, dtype and device of its matrix."""
        operator, truth, _ = self._case()
        assert tuple(operator.shape) == tuple(truth.shape)
        assert operator.dtype == truth.dtype
        assert operator.device == truth.device

    def test_matmul(self) -> None:
        """``matmul(x, diagonal=d)`` is (A + d I) x."""
        operator, truth, x = self._case()
        for diagonal in (0.0, 1.0, -0.5):
            assert_equal(operator.matmul(x, diagonal), truth @ x + diagonal * x)
        assert_equal(operator.matmul(x[..., :1]), truth @ x[..., :1])

    def test_to_dense(self) -> None:
        """``to_dense()`` is the matrix, and ``degree`` its row sum."""
        operator, truth, _ = self._case()
        assert_equal(operator.to_dense(), truth)
        assert_equal(operator.degree, truth.sum(-1))

    def test_to_edge_index(self) -> None:
        """Each entry that is not zero is one edge from its column to its row."""
        operator, truth, _ = self._case()
        (source, target), weight = operator.to_edge_index()
        length = truth.shape[-1]
        matrix = torch.zeros_like(truth).flatten(0, 1)
        assert torch.equal(source // length, target // length)
        matrix[source // length, target % length, source % length] = weight
        assert_equal(matrix.view_as(truth), truth)
        assert len(weight) == int(truth.count_nonzero())

    def test_gradients(self) -> None:
        """Gradients of the product reach the features and the inputs exactly."""
        inputs = [t.detach().clone() for t in self.create_inputs()]
        leaves = [t.requires_grad_() for t in inputs if t.is_floating_point()]
        truth = self.dense_truth(*inputs)
        x = self._features(truth).requires_grad_()
        cotangent, given = self._features(truth, seed=2), [x, *leaves]
        product = self.create_operator(*inputs).matmul(x)
        got, want = (
            torch.autograd.grad(result, given, cotangent, materialize_grads=True)
            for result in (product, truth @ x)
        )
        assert_equal(got, want)

    def test_batch_independence(self) -> None:
        """A batch gives what its items give one by one."""
        inputs = self.create_inputs()
        x = self._features(self.dense_truth(*inputs))
        whole = self.create_operator(*inputs).matmul(x)
        items = [
            self.create_operator(*(t[b : b + 1] for t in inputs)).matmul(x[b : b + 1])
            for b in range(len(x))
        ]
        assert_equal(torch.cat(items), whole)

    def test_runs_are_equal(self) -> None:
        """Two runs are equal, bit for bit."""
        first, second = (self._case() for _ in range(2))
        assert torch.equal(first[0].matmul(first[2]), second[0].matmul(second[2]))

    def test_dtype_of_features_is_kept(self) -> None:
        """The result has the dtype of the features."""
        operator, truth, x = self._case()
        result = operator.matmul(x.float())
        assert result.dtype == torch.float32
        assert_close(result.double(), truth @ x.float().double(), rtol=1e-6, atol=1e-6)

    def test_wrong_shape_is_refused(self) -> None:
        """Features of another length raise a ValueError."""
        operator, _, x = self._case()
        for bad in (x[..., :-1, :], x[0]):
            with TestCase().assertRaises(ValueError, msg=f"for features {tuple(bad.shape)}"):
                operator.matmul(bad)

    def _case(self) -> tuple[Operator, Tensor, Tensor]:
        """Return an operator, its matrix and some features."""
        inputs = self.create_inputs()
        truth = self.dense_truth(*inputs)
        return self.create_operator(*inputs), truth, self._features(truth)

    def _features(self, truth: Tensor, seed: int = 1) -> Tensor:
        """Return random features: [B, H, L, 5]."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(*truth.shape[:-1], 5, dtype=truth.dtype, generator=generator)
        return x.to(truth.device)
