"""What a tile of queries reads, in Triton, by the online softmax: keys, and means of nodes."""

import triton
import triton.language as tl

from jat_graph.clusters.gpu.descent import children, load


@triton.jit
def rows_of(tokens, group, shift, TOGETHER: tl.constexpr, ROWS: tl.constexpr):
    """Return a program's head of keys, the token and the query of each row, and which there are."""
    share = tl.cdiv(group, TOGETHER)
    head = (tl.program_id(1) // share).to(tl.int64)
    row = tl.arange(0, ROWS)
    token = tl.program_id(0) * (ROWS // TOGETHER) + row // TOGETHER - shift
    own = tl.program_id(1) % share * TOGETHER + row % TOGETHER  # head of queries in the group
    place = (head * group + own) * tokens + token
    return head, token, place, (token >= 0) & (token < tokens) & (own < group)


@triton.jit
def top_of(number, limit, TOP: tl.constexpr):
    """Return of which level the nodes are that tokens meet, by the clusters that they see."""
    top = 0
    for level in tl.static_range(TOP):
        higher = ((number >> 2 * level) > limit) & (number >= 4 << 2 * level)
        top = tl.where((top == level) & higher, level + 1, top)
    return top


@triton.jit
def of_level(level: tl.constexpr, x0, x1, x2, x3):
    """Return one of four."""
    if level == 0:
        return x0
    elif level == 1:
        return x1
    elif level == 2:
        return x2
    else:
        return x3


@triton.jit
def among(nodes, listed):
    """Return which nodes, [rows or 1, n], are in the lists [rows, k]."""
    return tl.max((nodes[:, :, None] == listed[:, None, :]).to(tl.int32), 2) > 0


@triton.jit
def _read_some(q, come, k, v, fits, bias, most, mass, total, OWN: tl.constexpr, BACK: tl.constexpr):
    """Read keys or nodes: those that all queries share, [n, D], or ``OWN`` ones, [rows, n, D].

    ``BACK`` adds to the gradients of queries, where ``most`` is the logarithm of the sum of e to
    all scores, and ``mass`` what gradients that come make of outputs.
    """
    if OWN:
        scores = tl.sum(q[:, None, :].to(tl.float32) * k.to(tl.float32), 2)
    else:
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(fits, scores + bias, float("-inf"))
    if BACK:
        weights = tl.exp(scores - most[:, None])
        if OWN:
            by_weight = tl.sum(come[:, None, :].to(tl.float32) * v.to(tl.float32), 2)
            by_score = weights * (by_weight - mass[:, None])
            total += tl.sum(by_score[:, :, None] * k.to(tl.float32), 1)
        else:
            by_weight = tl.dot(come, tl.trans(v), input_precision="ieee")
            by_score = weights * (by_weight - mass[:, None])
            total += tl.dot(by_score.to(k.dtype), k, input_precision="ieee")
    else:
        new = tl.maximum(most, tl.max(scores, 1))
        safe = tl.where(new > float("-inf"), new, 0.0)
        factor = tl.exp(most - safe)
        weights = tl.exp(scores - safe[:, None])
        most = new
        mass = mass * factor + tl.sum(weights, 1)
        total *= factor[:, None]
        if OWN:
            total += tl.sum(weights[:, :, None] * v.to(tl.float32), 1)
        else:
            total += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return most, mass, total


@triton.jit
def read_near(
    q, come, key, value, start, last, valid, length, part, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, SINKS: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Read sinks and near keys, or a part of them."""
    some = tl.arange(0, KEYS)
    sinks = some < tl.minimum(SINKS, length)
    k = load(key, some, sinks, width, WIDTH)
    v = load(value, some, sinks, wide, WIDE)
    fits = sinks[None, :] & (some[None, :] <= last[:, None]) & valid[:, None]
    most, mass, total = _read_some(
        q, come, k, v, fits & (part == 0), 0.0, most, mass, total, False, BACK
    )
    end = tl.max(tl.where(valid, last, -1), 0) + 1
    first = tl.min(tl.where(valid, start, length), 0)
    for block in range(first + part * KEYS, end, PARTS * KEYS):
        index = block + some
        k = load(key, index, index < length, width, WIDTH)
        v = load(value, index, index < length, wide, WIDE)
        fits = (index[None, :] >= start[:, None]) & (index[None, :] <= last[:, None])
        fits &= valid[:, None]
        most, mass, total = _read_some(q, come, k, v, fits, 0.0, most, mass, total, False, BACK)
    return most, mass, total


@triton.jit
def read_rest(
    q, come, means, values, number, part, chosen, active, bias, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr,
    BACK: tl.constexpr,
):  # fmt: skip
    """Read the means of all nodes of a level but of the chosen ones."""
    for block in range(part * KEYS, number, PARTS * KEYS):
        index = block + tl.arange(0, KEYS)
        k = load(means, index, index < number, width, WIDTH)
        v = load(values, index, index < number, wide, WIDE)
        fits = (index < number)[None, :] & active[:, None] & ~among(index[None, :], chosen)
        most, mass, total = _read_some(q, come, k, v, fits, bias, most, mass, total, False, BACK)
    return most, mass, total


@triton.jit
def read_closed(
    q, come, means, values, above, part, chosen, active, bias, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, GROUPS: tl.constexpr, FEW: tl.constexpr,
    PARTS: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Read the means of the children of opened nodes but of the chosen ones."""
    for block in range(part * FEW, 4 * GROUPS, PARTS * FEW):
        node, there = children(above, block + tl.arange(0, FEW), active, GROUPS)
        fits = there & ~among(node, chosen)
        k = load(means, node, fits, width, WIDTH)
        v = load(values, node, fits, wide, WIDE)
        most, mass, total = _read_some(q, come, k, v, fits, bias, most, mass, total, True, BACK)
    return most, mass, total


@triton.jit
def read_picked(
    q, come, key, value, members, listed, part, active, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, CLUSTERS: tl.constexpr, SIZE: tl.constexpr,
    SINKS: tl.constexpr, FEW: tl.constexpr, PARTS: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Read the keys of the clusters that each query picked."""
    for block in range(part * FEW, CLUSTERS * SIZE, PARTS * FEW):
        slot = block + tl.arange(0, FEW)
        inside = active[:, None] & (slot < CLUSTERS * SIZE)[None, :]
        cluster = tl.load(listed[:, None] + (slot // SIZE)[None, :], mask=inside, other=-1)
        fits = cluster >= 0
        member = cluster * SIZE + (slot % SIZE)[None, :]
        index = SINKS + tl.load(members + member, mask=fits, other=0)
        k = load(key, index, fits, width, WIDTH)
        v = load(value, index, fits, wide, WIDE)
        most, mass, total = _read_some(q, come, k, v, fits, 0.0, most, mass, total, True, BACK)
    return most, mass, total
