// A pair of tokens, the stones that joined it, and all jumps of a head.

const jumpOf = (pair) => pair && head().jumps.find((jump) => jump[0] === pair[0] && jump[1] === pair[1]);

function describePair(pair) {
  if (!pair) return detail(el("p", {}, "Choose a token to see its links alone, or a link or a square to see its numbers."));
  const [i, k] = pair, own = head(), jump = jumpOf(pair);
  const rows = kindsOf(own).map((kind) => {
    const value = valueAt(own, kind, i, k);
    const known = value === null ? "not in the file, or 0" : valueText(kind, value);
    return el("tr", {}, el("td", {}, kindName(kind)), el("td", {}, known));
  });
  detail(el("h3", {}, named(i), " → ", named(k)), el("table", {}, el("tbody", {}, ...rows)),
    ...(jump ? stoneTable(jump) : []));
}

function stoneTable([, , , , , more, stones]) {
  const sided = stones.some((stone) => stone[3] !== null);
  const names = ["stone", "from", "to", ...(sided ? ["side", "share"] : [])];
  const rows = stones.map(([j, query, key, side, share]) => el("tr", {}, el("td", {}, named(j)),
    ...[number(query), number(key), ...(sided ? [side < 0 ? "−" : "+", percent(share)] : [])]
      .map((value) => el("td", {}, value))));
  return [
    el("h3", {}, "Stepping stones, and how both tokens score them"),
    el("table", { class: "stones" }, el("thead", {}, el("tr", {}, ...names.map((name) => el("th", {}, name)))),
      el("tbody", {}, ...rows)),
    more ? el("p", {}, `and ${more} more`) : null,
  ];
}

function jumpList() {
  const items = head().jumps.map((jump) => {
    const [i, k, weight, before, after] = jump, chosen = jumpOf(state.pair) === jump;
    const words = el("span", {}, named(i), " → ", named(k));
    const entry = button(words, () => show({ pair: [i, k] }), { "aria-pressed": chosen, class: "jump" });
    entry.append(el("span", {}, after === before ? number(weight) : signed(after - before)));
    return el("li", {}, entry);
  });
  return el("ol", {}, ...items);
}

/** Tokens in a column; those of the list, as far as there is room for them. */
function column(indices, x, anchor) {
  return new Map(indices.map((index, row) => [index, { x, y: 40 + row * 22, anchor, index }]));
}

function curve(from, to, attributes, label) {
  const middle = (from.x + to.x) / 2;
  const d = `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  return draw("path", { d, ...attributes }, draw("title", {}, label));
}

function jumpLines(left, right, chosen) {
  const full = Math.max(1e-9, ...head().jumps.map((jump) => jump[2]));
  return head().jumps.map((jump) => {
    const [i, k, weight] = jump, size = strength(weight, full);
    const line = curve(left.get(i), right.get(k), {
      class: chosen ? "link faint" : "link", "stroke-width": 0.6 + 2.4 * size,
      "stroke-opacity": chosen ? null : 0.15 + 0.85 * size,
    }, `${place(i)} → ${place(k)}: ${number(weight)}`);
    line.addEventListener("click", () => show({ pair: [i, k] }));
    return line;
  });
}

/** The ways of one jump: over each stone, as wide as its share, or as the product of its scores. */
function stoneLines(jump, left, right, middle, half) {
  const weights = jump[6].map(([, query, key, , share]) => share ?? Math.abs(query * key));
  const full = Math.max(1e-9, ...weights);
  return jump[6].flatMap(([j, query, key, side, share], n) => {
    const at = middle[n], width = 1 + (5 * weights[n]) / full;
    const kind = { class: side < 0 ? "link less way" : "link way", "stroke-width": width };
    const words = `${token(j)}${side === null ? "" : side < 0 ? " −" : " +"}`;
    return [
      curve(left.get(jump[0]), { x: at.x - half, y: at.y }, kind, number(query)),
      curve({ x: at.x + half, y: at.y }, right.get(jump[1]), kind, number(key)),
      draw("rect", { x: at.x - half, y: at.y - 17, width: 2 * half, height: 34, rx: 14, class: "stone" }),
      draw("text", { x: at.x, y: at.y - 1, "text-anchor": "middle" }, shown(words, Math.floor(half / 3.8))),
      draw("text", { x: at.x, y: at.y + 12, "text-anchor": "middle", class: "small" },
        share === null ? `${number(query)} · ${number(key)}` : percent(share)),
    ];
  });
}

function drawJumps() {
  const { jumps, num_jumps: numJumps } = head(), jump = jumpOf(state.pair);
  const ends = (end) => [...new Set(jumps.map((own) => own[end]))].sort((a, b) => a - b);
  const width = Math.min(620, room()), edge = Math.min(150, 0.27 * width);
  const left = column(ends(0), edge, "end"), right = column(ends(1), width - edge, "start");
  const stones = jump ? jump[6] : [], rows = Math.max(left.size, right.size, 2 * stones.length, 3);
  const top = jump ? Math.max(40, (left.get(jump[0]).y + right.get(jump[1]).y) / 2 - 20 * stones.length) : 0;
  const lowest = 60 + rows * 22 - 40 * stones.length;
  const middle = stones.map((_, n) => ({ x: width / 2, y: Math.min(top, Math.max(40, lowest)) + 40 * n + 8 }));
  const names = [...left.values(), ...right.values()].map(({ x, y, anchor, index }) => draw("text",
    { x: x + (anchor === "end" ? -8 : 8), y: y + 4, "text-anchor": anchor,
      class: jump && index === jump[anchor === "end" ? 0 : 1] ? "label" : null },
  shown(text().tokens[index], Math.floor((edge - 8) / 7))));
  put(`Layer ${head().layer}, head ${head().head}: jumps`, picture(width, 70 + rows * 22, "Jumps and their stepping stones",
    draw("text", { x: edge - 8, y: 16, class: "small", "text-anchor": "end" }, "looks"),
    draw("text", { x: width / 2, y: 16, class: "small", "text-anchor": "middle" }, jump ? "over" : ""),
    draw("text", { x: width - edge + 8, y: 16, class: "small" }, "is looked at"),
    ...jumpLines(left, right, jump), ...(jump ? stoneLines(jump, left, right, middle, Math.min(56, width / 2 - edge - 26)) : []), ...names));
  say(`${jumps.length} of ${numJumps} jumps of this head, strongest gains first: by how much attention grows, or the weight where it does not change. ${head().note}`);
  if (jump) describePair(state.pair); else detail();
  byId("details").append(el("h3", {}, "Jumps"), jumps.length ? jumpList() : el("p", {}, "This head has none on this text."));
}
