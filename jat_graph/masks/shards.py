"""One sequence over many processes: the shard that this one has, and what takes all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class SequenceShard:
    """The tokens of a sequence that this process has; sums and gathered tokens have gradients.

    Where each process calls ``backward`` on its own share of a loss, each gets the gradient of all
    shares together. All of them must do so, and in one order.
    """

    group: dist.ProcessGroup
    lengths: tuple[int, ...]  # of the shards, in the order of the group's ranks
    start: int  # of this shard in the sequence

    @classmethod
    def of(cls, group: dist.ProcessGroup, x: Tensor) -> SequenceShard:  # [B, H, L_r, D]
        """Return the shard that is as long as this tensor."""
        own = torch.tensor([x.size(2)], device=x.device)
        lengths = tuple(collectives.all_gather_single(own, 0, group).tolist())
        return cls(group, lengths, sum(lengths[: dist.get_rank(group)]))

    @property
    def rank(self) -> int:
        """Number of this process in the group."""
        return dist.get_rank(self.group)

    @property
    def total(self) -> int:
        """Tokens of the whole sequence, L."""
        return sum(self.lengths)

    @property
    def rows(self) -> slice:
        """Where this shard is in the sequence."""
        return slice(self.start, self.start + self.lengths[self.rank])

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, of one shape in each."""
        found: Tensor = collectives.all_reduce(x.contiguous(), "sum", self.group)
        return found

    def highest(self, x: Tensor) -> Tensor:
        """Return the largest numbers of all processes, without a gradient."""
        found: Tensor = collectives.all_reduce(x.detach().contiguous(), "max", self.group)
        return found

    def each(self, x: Tensor) -> Tensor:
        """Return a tensor of one shape of every process, ``[processes, ...]``."""
        found: Tensor = collectives.all_gather_single(x[None].contiguous(), 0, self.group)
        return found

    def before(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes before this one."""
        return self.each(x)[: self.rank].sum(0)

    def after(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes after this one."""
        return self.each(x)[self.rank + 1 :].sum(0)

    def counts(self, valid: Tensor | None, batch: int) -> Tensor:  # [B|1, L_r]; [processes, B]
        """Return how many valid tokens of each sequence each process has."""
        if valid is None:
            return torch.tensor(self.lengths).unsqueeze(1).expand(-1, batch)
        return self.each(valid.sum(-1).expand(batch)).cpu()

    def gather(self, x: Tensor) -> Tensor:  # [B, H, L_r, D], [B, H, L, D]
        """Return the tokens of all shards."""
        longest = max(self.lengths)
        padded = F.pad(x, (0, 0, 0, longest - x.size(2))).contiguous()
        gathered = collectives.all_gather_single(padded, 0, self.group)
        parts = gathered.chunk(len(self.lengths))
        pairs = zip(parts, self.lengths, strict=True)
        return torch.cat([part[:, :, :length] for part, length in pairs], dim=2)

    def at(self, x: Tensor, index: Tensor) -> Tensor:  # [B, H, L_r, D], [B, H, n]; [B, H, n, D]
        """Return the tokens at some positions of the whole sequence: who has one gives it."""
        position = (index - self.start).unsqueeze(-1)
        elsewhere = (position < 0) | (position >= x.size(2))
        own = x.take_along_dim(position.clamp(0, x.size(2) - 1), 2)
        return self.sum(own.masked_fill(elsewhere, 0.0))

    def fetch(self, x: Tensor, owner: Tensor, row: Tensor) -> Tensor:  # [rows, ...], [n], [n]
        """Return rows that processes have, each from its owner, ``[n, ...]``."""
        order = owner.argsort(stable=True)
        asked = owner.bincount(minlength=len(self.lengths))
        given = collectives.all_to_all_single(asked, None, None, self.group)
        sizes = asked.tolist(), given.tolist()
        wanted = collectives.all_to_all_single(row[order], *sizes[::-1], self.group)
        found = collectives.all_to_all_single(x.index_select(0, wanted), *sizes, self.group)
        return found.index_select(0, order.argsort())
