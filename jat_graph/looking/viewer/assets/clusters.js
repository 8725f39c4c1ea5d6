// A token of a head that reads by clusters: what it reads of the tree over the keys.

function describeDescent(index) {
  const { members, sizes, exact, read, means } = head().tree;
  const list = (nodes) => el("ol", {}, ...nodes.map(([node, share]) => {
    const shown = members[node].slice(0, MOST_MEMBERS), hidden = sizes[node] - shown.length;
    return el("li", { class: "node" }, `${percent(share)}: `, ...shown.flatMap((row) => [named(row), " "]),
      hidden ? `and ${hidden} more` : null);
  }));
  detail(
    el("h3", {}, named(index)),
    el("p", {}, `${percent(exact[index])} of its attention is exact: on the first keys, on those in no cluster, and on those of the clusters that it reads.`),
    ...(read[index].length ? [el("h3", {}, "Clusters whose keys it reads"), list(read[index])] : []),
    ...(means[index].length ? [el("h3", {}, "Nodes that stand for their keys, as their mean"), list(means[index])] : []),
  );
}
