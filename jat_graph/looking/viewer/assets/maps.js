// A point for each sentence, and what the layers make of them.

const BESIDE = 9; // from a point to the words beside it

function pointNode(atlas, layer, index, [x, y], groups) {
  const [label, sentence] = atlas.points[index], group = layer.groups[index] ?? "";
  const order = groups.indexOf(group), kind = (order + Math.floor(order / 8)) % 8;
  const node = draw("g", { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "button",
    "aria-label": `${shown(label)}${group ? `, ${shown(group)}` : ""}: ${shown(sentence, 300)}`,
    class: state.point === index ? "chosen" : null },
  draw("path", { d: SHAPES[kind], class: `dot g${order % 8}` }), draw("circle", { r: 8, class: "ring" }));
  for (const event of ["focus", "mouseenter", "click"])
    node.addEventListener(event, () => describePoint(atlas, layer, index));
  return { node, x, y };
}

function describePoint(atlas, layer, index) {
  const [label, sentence, start, end] = atlas.points[index], group = layer.groups[index];
  state.point = index;
  byId("sentence").replaceChildren(el("h3", {}, el("bdi", {}, shown(label, 60))), el("p", {}, ...(end > start
    ? [sentence.slice(0, start), el("mark", {}, sentence.slice(start, end)), sentence.slice(end)] : [sentence])),
  group ? el("p", {}, `Group: ${shown(group, 60)}`) : "");
}

function groupKey(groups, counts) {
  return el("div", { class: "key" }, ...groups.flatMap((group, order) => !counts.has(group) ? [] : [
    draw("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": true },
      draw("path", { d: SHAPES[(order + Math.floor(order / 8)) % 8], class: `g${order % 8}` })),
    el("span", {}, `${group ? shown(group, 40) : "not known"} (${counts.get(group)})`),
  ]));
}

/** Move labels that are drawn beside their points, into the picture, and down from those above. */
function spread(labels, width) {
  const placed = [];
  for (const label of labels) {
    const own = label.getBBox(), half = own.width / 2, point = Number(label.getAttribute("x"));
    const beside = point + BESIDE + own.width <= width ? point + BESIDE + half : point - BESIDE - half;
    const x = Math.min(Math.max(beside, half), Math.max(width - half, half));
    const covers = ([left, top, wide]) => Math.abs(x - left) < (own.width + wide) / 2 && Math.abs(y - top) < own.height;
    let y = Number(label.getAttribute("y"));
    while (placed.some(covers)) y += own.height;
    fill(label, { x: x.toFixed(1), y: y.toFixed(1) }, []);
    placed.push([x, y, own.width]);
  }
}

function drawMap() {
  const atlas = page.atlases[state.atlas], layer = atlas.layers[state.layer];
  const width = Math.min(860, room()), height = Math.max(320, Math.round(width * 0.6));
  const counts = new Map(), edge = 24;
  atlas.points.forEach((_, n) => counts.set(layer.groups[n] ?? "", (counts.get(layer.groups[n] ?? "") ?? 0) + 1));
  // Of all layers: a group keeps its colour and its shape from layer to layer.
  const groups = [...new Set(["", ...atlas.layers.flatMap((own) => own.groups)])].sort((a, b) => !a - !b || (a < b ? -1 : 1));
  const [xs, ys] = [0, 1].map((axis) => layer.positions.map((own) => own[axis]));
  const scale = (value, all, room) => ((value - Math.min(...all)) / (Math.max(...all) - Math.min(...all) || 1)) * room;
  const at = (x, y) => [edge + scale(x, xs, width - 2 * edge), height - edge - scale(y, ys, height - 2 * edge)];
  const items = layer.positions.map((own, index) => pointNode(atlas, layer, index, at(...own), groups));
  roving(items, state.point ?? 0);
  const labels = layer.labels.map(([x, y, words]) => {
    const [left, top] = at(x, y);
    return draw("text", { x: left, y: top + 4, "text-anchor": "middle", class: "label" }, shown(words, 48));
  });
  put(`${shown(atlas.title, 80)}: ${shown(layer.name, 40)}`, picture(width, height, "Map, a point for each sentence",
    ...items.map((item) => item.node), ...labels));
  spread(labels, width);
  say([layer.caption, atlas.caption].filter(Boolean).join(" "));
  detail(el("div", { id: "sentence" }, el("p", {}, "Point at a place, or go there with the arrow keys, to read its sentence.")),
    el("h3", {}, "Groups"), groupKey(groups, counts));
  if (state.point !== null) describePoint(atlas, layer, state.point);
}
