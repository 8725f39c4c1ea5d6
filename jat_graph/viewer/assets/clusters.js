// A token of a head that reads by clusters: what it reads exactly, and how it reads all else.

/** How a token reads another one: with the score of the pair, or with its cluster's. */
function howRead({ clusters }, i, k) {
  const { joined, keys, whole, block } = clusters, [from, to] = [i, k].map((row) => text().positions[row]);
  if (block && Math.abs(Math.floor(from / block) - Math.floor(to / block)) <= 1) return "exact: in the blocks around it";
  if (keys[joined[i]].some((own) => own[0] === k)) return "exact: a best key of its cluster";
  return whole ? "its cluster's score" : "its cluster's score, unless it is a best key that is not in the file";
}

function describeToken(index) {
  const { joined, exact, sizes, keys, left_out: leftOut, block } = head().clusters, own = joined[index];
  const members = joined.flatMap((other, row) => (other === own ? [row] : []));
  const items = members.map((row) => {
    const entry = button(el("span", {}, named(row)), () => show({ token: { index: row, side: 0 }, pair: null }),
      { "aria-pressed": row === index, class: "member" });
    entry.append(el("span", {}, percent(exact[row])));
    return el("li", {}, entry);
  });
  const rows = keys[own].map(([row, score]) => el("tr", {}, el("td", {}, named(row)), el("td", {}, number(score))));
  const hidden = sizes[own] - members.length, others = leftOut[own];
  detail(
    el("h3", {}, named(index)),
    el("p", {}, `${percent(exact[index])} of its attention is exact: `,
      block ? `on the three blocks of ${block} tokens around it, and on the best keys of its cluster.` : "on the best keys of its cluster."),
    el("h3", {}, `Its cluster: ${sizes[own]} token${sizes[own] === 1 ? "" : "s"}, and what is exact of each`),
    el("ol", {}, ...items), hidden ? el("p", {}, `and ${hidden} not shown`) : null,
    el("h3", {}, "Best keys, and the cluster's scores"),
    el("table", { class: "keys" }, el("tbody", {}, ...rows)),
    others ? el("p", {}, `${rows.length ? "and " : ""}${others} not shown`) : null,
  );
}

/** What a token reads that descends a tree over the keys. */
function describeDescent(index) {
  const { members, sizes, exact, read, means } = head().tree;
  const list = (nodes) => el("ol", {}, ...nodes.map(([node, share]) => {
    const shown = members[node].slice(0, MOST_MEMBERS), hidden = sizes[node] - shown.length;
    return el("li", { class: "node" }, `${percent(share)}: `, ...shown.flatMap((row) => [named(row), " "]),
      hidden ? `and ${hidden} more` : null);
  }));
  detail(
    el("h3", {}, named(index)),
    el("p", {}, `${percent(exact[index])} of its attention is exact: on the first keys, on those near it, and on the keys of some clusters.`),
    ...(read[index].length ? [el("h3", {}, "Clusters whose keys it reads"), list(read[index])] : []),
    ...(means[index].length ? [el("h3", {}, "Nodes that stand for their keys, as their mean"), list(means[index])] : []),
  );
}
