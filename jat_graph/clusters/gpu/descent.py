"""Which nodes are the best of each query: integers in the order of scores, a few kept at a time."""

import triton
import triton.language as tl

NOTHING = tl.constexpr(-0x7FFFFFFFFFFFFFFF)  # below all that is packed


@triton.jit
def _packed(scores, nodes, fits):
    """Return integers in the order of scores, of equal ones the first node's before others'."""
    bits = scores.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    both = (bits.to(tl.int64) << 32) | (0x7FFFFFFF - nodes).to(tl.int64)
    return tl.where(fits, both, NOTHING)


@triton.jit
def _merge(best, more, ROWS: tl.constexpr, KEEP: tl.constexpr):
    """Return the best of two as many."""
    return tl.topk(tl.reshape(tl.join(best, more), [ROWS, 2 * KEEP]), KEEP)


@triton.jit
def listed_of(best, WANTED: tl.constexpr, KEEP: tl.constexpr):
    """Return the nodes of the best in rising order, and -1 for none after them."""
    fits = (best > NOTHING) & (tl.arange(0, KEEP) < WANTED)[None, :]
    nodes = tl.sort(tl.where(fits, 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32), 0x7FFFFFFF))
    return tl.where(nodes < 0x7FFFFFFF, nodes, -1)


@triton.jit
def load(rows, index, there, width, WIDTH: tl.constexpr):
    """Load rows of a table, [..., features], zero where there is none."""
    index = tl.expand_dims(index, -1) * WIDTH + width
    return tl.load(rows + index, mask=tl.expand_dims(there, -1) & (width < WIDTH), other=0.0)


@triton.jit
def clear(
    opened, picked, place, valid, TOP: tl.constexpr, GROUPS: tl.constexpr, CLUSTERS: tl.constexpr,
    KEEP_GROUPS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Write that nothing is chosen."""
    for level in tl.static_range(TOP):
        slot = tl.arange(0, KEEP_GROUPS)
        lists = opened + (place[:, None] * TOP + level) * GROUPS + slot[None, :]
        tl.store(lists, -1, mask=valid[:, None] & (slot < GROUPS)[None, :])
    slot = tl.arange(0, KEEP)
    lists = picked + place[:, None] * CLUSTERS + slot[None, :]
    tl.store(lists, -1, mask=valid[:, None] & (slot < CLUSTERS)[None, :])
    tl.debug_barrier()


@triton.jit
def choose_top(
    q, means, spreads, part, number, least, lean, width,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, KEEP: tl.constexpr, SOME: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Return the best of all nodes of a level, or of every so many, packed."""
    KEYS: tl.constexpr = max(KEEP, SOME)
    best = tl.zeros((ROWS, KEEP), tl.int64) + NOTHING
    for block in range(part * KEYS, number, PARTS * KEYS):
        index = block + tl.arange(0, KEYS)
        k = load(means, index, index < number, width, WIDTH)
        spread = tl.load(spreads + index, mask=index < number, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") + lean[:, None] * spread[None, :]
        fits = (scores >= least[:, None]) & (index < number)[None, :]
        more = _packed(scores, index[None, :], fits)
        if KEYS > KEEP:
            more = tl.topk(more, KEEP)
        best = _merge(best, more, ROWS, KEEP)
    return best


@triton.jit
def merge_parts(
    bests, least, place, active, PARTS: tl.constexpr, ROWS: tl.constexpr, KEEP: tl.constexpr,
    STRIDE: tl.constexpr,
):  # fmt: skip
    """Return the best of what parts found, of those alone that have some score."""
    best = tl.zeros((ROWS, KEEP), tl.int64) + NOTHING
    for part in range(PARTS):
        slot = (place[:, None] * PARTS + part) * STRIDE + tl.arange(0, KEEP)[None, :]
        best = _merge(best, tl.load(bests + slot, mask=active[:, None], other=NOTHING), ROWS, KEEP)
    bits = (best >> 32).to(tl.int32)
    scores = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    return tl.where((best > NOTHING) & (scores >= least[:, None]), best, NOTHING)


@triton.jit
def choose_children(
    query, means, spreads, above, active, least, lean,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Return the best of the four children of each opened node, packed."""
    best = tl.zeros((ROWS, KEEP), tl.int64) + NOTHING
    for block in range(0, 4 * GROUPS, KEEP):
        node, there = children(above, block + tl.arange(0, KEEP), active, GROUPS)
        scores = tl.zeros((ROWS, KEEP), tl.float32)
        for feature in range(0, WIDTH):
            k = tl.load(means + node * WIDTH + feature, mask=there, other=0.0)
            own = tl.load(query + feature, mask=active, other=0.0)
            own = own.to(k.dtype).to(tl.float32)  # as where tokens meet the tree
            scores += own[:, None] * k.to(tl.float32)
        scores += lean[:, None] * tl.load(spreads + node, mask=there, other=0.0)
        more = _packed(scores, node, there & (scores >= least[:, None]))
        best = _merge(best, more, ROWS, KEEP)
    return best


@triton.jit
def children(above, child, active, GROUPS: tl.constexpr):
    """Return some of the children of the nodes of a list, and which there are."""
    inside = active[:, None] & (child < 4 * GROUPS)[None, :]
    parent = tl.load(above[:, None] + (child // 4)[None, :], mask=inside, other=-1)
    return parent * 4 + (child % 4)[None, :], parent >= 0
