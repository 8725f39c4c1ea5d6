// All heads at once, which of them to look at, and one: lines, and a matrix.

const LISTED = 10; // heads of the ranking
const MOST_BELOW = 0.99; // share of the squares that are below full colour

function pooled(own, kind) {
  const links = linksOf(own, kind), size = text().tokens.length;
  const bins = Math.min(BINS, size), best = new Float64Array(bins * bins);
  if (links) links.numbers.forEach((value, n) => {
    const y = Math.floor((links.rows[n] * bins) / size);
    const x = Math.floor((links.columns[n] * bins) / size);
    if (Math.abs(value) > Math.abs(best[y * bins + x])) best[y * bins + x] = value;
  });
  const cells = Array.from(best, (value, n) => [n % bins, Math.floor(n / bins), value]);
  return [bins, cells.filter((cell) => cell[2])];
}

/** The heads by how much of the attention they change; none where none does. */
function ranking() {
  const order = text().heads.map((own, index) => [index, own.change ?? 0]).sort((a, b) => b[1] - a[1]);
  return order.filter((own) => own[1] > 0);
}

/** Where a text opens: at the head that changes most, or at all of them. */
function opening() {
  const [first] = ranking();
  if (!first) return { view: "All heads", head: 0, kind: "attention" };
  return { view: "One head", head: first[0], kind: "difference" };
}

function rankedList() {
  const items = ranking().slice(0, LISTED).map(([index, change]) => {
    const entry = button(el("span", {}, headName(text().heads[index])),
      () => show({ view: "One head", head: index, pair: null, token: null }));
    entry.append(el("span", {}, percent(change)));
    return el("li", {}, entry);
  });
  return items.length ? [el("h3", {}, "Heads by how much of the attention they change"), el("ol", {}, ...items)] : [];
}

/** What full colour stands for among squares: few are stronger. */
function scaleOf(all) {
  const sizes = all.flatMap(([, cells]) => cells.map((cell) => Math.abs(cell[2]))).sort((a, b) => a - b);
  return Math.max(1e-9, sizes[Math.floor(MOST_BELOW * (sizes.length - 1))] ?? 0);
}

function smallMatrix(own, index, [bins, cells], x, y, size, full) {
  const label = own.links[state.kind] ? `${headName(own)}: ${headSummary(own)}` : `${headName(own)} does not jump`;
  const scaled = draw("g", { transform: `scale(${size / bins})` }, ...squares(cells, full));
  const node = draw("g", { transform: `translate(${x} ${y})`, role: "button", "aria-label": label },
    draw("title", {}, label), draw("rect", { width: size, height: size, class: "ground" }), scaled,
    draw("rect", { x: -2, y: -2, width: size + 4, height: size + 4, class: "ring" }));
  node.addEventListener("click", () => show({ view: "One head", head: index, pair: null, token: null }));
  return { node, x, y };
}

function headSummary(own) {
  const links = own.links[kindOf(own)];
  return `strongest ${valueText(kindOf(own), links.scale)}${own.note ? `; ${own.note}` : ""}`;
}

function drawAll() {
  const heads = text().heads, layers = [...new Set(heads.map((own) => own.layer))];
  const columns = [...new Set(heads.map((own) => own.head))].sort((a, b) => a - b);
  const step = Math.max(22, Math.min(96, Math.floor((room() - 66) / columns.length)));
  const size = step - Math.min(6, step / 5);
  const cells = heads.map((own) => (own.links[state.kind] ? pooled(own, state.kind) : [1, []]));
  const full = scaleOf(cells);
  const items = heads.map((own, index) => smallMatrix(own, index, cells[index],
    62 + columns.indexOf(own.head) * step, 26 + layers.indexOf(own.layer) * step, size, full));
  roving(items, state.head);
  const names = [
    ...layers.map((layer, row) => draw("text",
      { x: 54, y: 26 + row * step + size / 2 + 4, "text-anchor": "end", class: "small" }, `layer ${layer}`)),
    ...columns.map((name, column) => draw("text",
      { x: 62 + column * step + size / 2, y: 18, "text-anchor": "middle", class: "small" },
      step > 48 ? `head ${name}` : String(name))),
  ];
  const [width, height] = [66 + columns.length * step, 30 + layers.length * step];
  put(`All heads: ${kindName(state.kind)}`, picture(width, height, "All heads, layer by layer",
    ...names, ...items.map((item) => item.node)));
  say(`Each square is a head: rows look, columns are looked at. Full colour is ${
    valueText(state.kind, full).replace("+", "±")} or more${state.kind === "difference"
    ? "; small orange squares are what is taken away" : ""}. Choose one to see it whole.`);
  detail(el("h3", {}, "Text"), el("p", {}, shown(text().title, 600)),
    el("p", {}, `${text().tokens.length} tokens, ${heads.length} heads.`), ...rankedList());
}

function chosenLinks(links) {
  const order = byStrength(links), { token: own } = state;
  if (!own) return order.slice(0, drawnLines(links));
  return order.filter((n) => (own.side ? links.columns : links.rows)[n] === own.index);
}

/** Where the two columns of tokens stand: beside each other as far as there is room. */
function columnsOf(names, width) {
  const label = 14 + 7.2 * Math.max(6, ...names.map((name) => Array.from(name).length));
  const edge = Math.min(170, label) + NUMBER;
  const gap = Math.max(50, Math.min(210, width - 2 * edge));
  return { left: edge, right: edge + gap, width: 2 * edge + gap, label: edge - NUMBER };
}

const drawnLines = (links) => Math.min(links.numbers.length,
  state.most ?? Math.max(FEW, Math.min(MANY, 4 * text().tokens.length)));

function linkPath(links, n, kind, full, { left, right }) {
  const [i, k, value] = [links.rows[n], links.columns[n], links.numbers[n]];
  const [y, z] = [i * STEP + 31, k * STEP + 31], middle = (left + right) / 2;
  const size = strength(value, full), picked = state.pair?.[0] === i && state.pair?.[1] === k;
  const node = draw("path", {
    d: `M${left} ${y}C${middle} ${y} ${middle} ${z} ${right} ${z}`,
    class: value < 0 ? "link less" : "link", "stroke-width": picked ? 5 : 0.6 + 3 * size,
    "stroke-opacity": picked ? 1 : 0.12 + 0.88 * size * size,
  }, draw("title", {}, `${place(i)} → ${place(k)}: ${valueText(kind, value)}`));
  node.addEventListener("click", () => show({ pair: [i, k] }));
  return node;
}

function tokenLabel(index, side, columns, beside) {
  const chosen = state.token?.index === index && state.token.side === side;
  const label = `${place(index)}, ${side ? "is looked at" : "looks"}`;
  const y = index * STEP + 31, out = side ? 1 : -1, x = (side ? columns.right : columns.left) + 8 * out;
  const anchor = side ? "start" : "end", width = columns.label - 4;
  const box = { x: side ? x - 4 : x + 4 - width, y: y - 10, width, height: 19, rx: 3 };
  const node = draw("g", { role: "button", "aria-label": label, "aria-pressed": chosen,
    class: chosen ? "chosen" : null },
  draw("rect", { ...box, class: "pick" }), draw("rect", { ...box, class: "ring" }),
  draw("text", { x, y: y + 4, "text-anchor": anchor }, token(index)),
  beside === undefined ? null : draw("text", { x: x + out * (width + 2), y: y + 4, class: "number",
    "text-anchor": anchor }, valueText(kindOf(head()), beside)));
  const next = chosen ? null : { index, side };
  node.addEventListener("click", () => show({ token: next, pair: null }));
  return { node, x: side * 1e4, y };
}

/** For the token chosen, what goes from it to each other, or comes. */
function besideTokens(links) {
  const found = new Map();
  if (state.token) for (const n of chosenLinks(links))
    found.set((state.token.side ? links.rows : links.columns)[n], links.numbers[n]);
  return found;
}

function drawLines(links, kind) {
  const { tokens, second } = text(), side = state.token?.side;
  const columns = columnsOf(tokens.map((_, index) => token(index)), room());
  const beside = besideTokens(links), full = fullColour(kind, [head()]);
  const items = [0, 1].flatMap((own) => tokens.map((_, index) =>
    tokenLabel(index, own, columns, own === 1 - side ? beside.get(index) : undefined)));
  roving(items, Math.max(0, items.findIndex((item) => item.node.getAttribute("class"))));
  const paths = chosenLinks(links).map((n) => linkPath(links, n, kind, full, columns));
  const parted = second === null ? null
    : draw("path", { d: `M0 ${second * STEP + 21}H${columns.width}`, class: "rule" });
  return picture(columns.width, tokens.length * STEP + 26, "Lines: tokens that look on the left, looked at on the right",
    draw("text", { x: columns.left - 8, y: 12, class: "small", "text-anchor": "end" }, "looks"),
    draw("text", { x: columns.right + 8, y: 12, class: "small" }, "is looked at"),
    parted, ...paths.reverse(), ...items.map((item) => item.node));
}

function matrixNames(size, step, edge) {
  if (step < 11) return [];
  return text().tokens.flatMap((_, index) => {
    const at = edge + (index + 0.5) * step;
    return [
      draw("text", { x: edge - 6, y: at + 4, "text-anchor": "end", class: "small" }, shown(text().tokens[index], 13)),
      draw("text", { transform: `translate(${at + 4} ${edge - 6}) rotate(-90)`, class: "small" },
        shown(text().tokens[index], 13)),
    ];
  });
}

function drawMatrix(links, kind, beside) {
  const size = text().tokens.length, whole = room();
  const width = Math.min(520, whole - beside > 340 ? whole - beside - 40 : whole);
  const edge = (width - 90) / size >= 11 ? 90 : 4;
  const step = Math.min(24, Math.max(1, (width - edge) / size)), side = edge + size * step + 3;
  const cells = Array.from(links.numbers, (value, n) => [links.columns[n], links.rows[n], value]);
  const cursor = draw("rect", { width: 1, height: 1, class: "ring", "vector-effect": "non-scaling-stroke" });
  const inside = draw("g", { transform: `translate(${edge} ${edge}) scale(${step})` },
    draw("rect", { width: size, height: size, class: "ground" }), ...squares(cells, fullColour(kind, [head()])), cursor);
  const node = picture(side, side, "Matrix: rows look, columns are looked at",
    ...matrixNames(size, step, edge), inside);
  fill(node, { tabindex: 0, role: "application", "aria-roledescription": "matrix" }, []);
  matrixKeys(node, inside, cursor, size, step);
  return node;
}

/** The mouse and the arrow keys go from cell to cell; a click or Enter chooses the pair. */
function matrixKeys(node, inside, cursor, size, step) {
  let at = state.pair ?? [0, 0];
  const go = (i, k) => {
    at = [i, k].map((value) => Math.max(0, Math.min(size - 1, value)));
    fill(cursor, { x: at[1], y: at[0], class: "ring at" }, []);
    describePair(at);
  };
  if (state.pair) fill(cursor, { x: at[1], y: at[0], class: "ring at" }, []);
  node.addEventListener("focus", () => fill(cursor, { x: at[1], y: at[0], class: "ring at" }, []));
  node.addEventListener("keydown", (event) => {
    const [right, down] = ARROWS[event.key] ?? [0, 0];
    if (right || down) go(at[0] + down, at[1] + right);
    if (event.key === "Enter") show({ pair: at });
    if (right || down || event.key === "Enter") event.preventDefault();
  });
  inside.addEventListener("click", (event) => {
    const box = inside.firstChild.getBoundingClientRect();
    go(Math.floor((event.clientY - box.top) / step), Math.floor((event.clientX - box.left) / step));
    show({ pair: at });
  });
}

function leftOut(links) {
  const weak = links.left_out ? `${percent(links.left_out)} of the whole is in weaker ones that are not in the file` : "all there are";
  const hidden = links.hidden ? `; ${percent(links.hidden)} goes to tokens that are not shown` : "";
  return `${links.numbers.length} links are in the file, ${weak}${hidden}.`;
}

function drawHead() {
  const own = head(), kind = kindOf(own), links = linksOf(own, kind);
  const lines = drawLines(links, kind), matrix = drawMatrix(links, kind, lines.viewBox.baseVal.width);
  put(`Layer ${own.layer}, head ${own.head}: ${kindName(kind)}`, lines, matrix);
  const drawn = chosenLinks(links).length;
  const which = state.token ? `The ${drawn} links of one token` : `The ${drawn} strongest links`;
  say(`${which} are drawn as lines. ${leftOut(links)} Full colour is ${
    valueText(kind, fullColour(kind, [own])).replace("+", "±")}.${kind === "difference"
    ? " Blue and whole: more than before; orange, dashed or small: less." : ""} ${own.note}`);
  if (own.tree && state.token?.side === 0 && !state.pair) describeDescent(state.token.index);
  else describePair(state.pair);
}
