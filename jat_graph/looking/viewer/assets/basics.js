"use strict";
// Everything shown is made by createElement and textContent: what tokens say is never markup.

const page = JSON.parse(document.getElementById("data").textContent);
const KINDS = {
  attention: "attention", before: "before the jump", difference: "what the jump changes",
  graph: "jump graph",
};
const OF_CLUSTERS = { before: "by exact scores", difference: "what clusters change" };
const [FEW, MANY] = [40, 300]; // links drawn at first: some of each token, between these
const MOST_MEMBERS = 16; // keys of a node that are written out
const [STEP, NUMBER] = [20, 50]; // from token to token, and the room for numbers beside them
const BINS = 32; // squares of a small matrix, each way
const LEVELS = 10; // of strength, each a path: thousands of squares need no elements of their own
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const STYLES = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray",
  "font-family", "font-size", "font-weight", "paint-order", "opacity", "visibility"];
const state = {
  view: "", text: 0, kind: "attention", head: 0, most: null, token: null, pair: null,
};

const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}
const el = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function picture(width, height, label, ...children) {
  const box = `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`;
  const size = { width: Math.ceil(width), height: Math.ceil(height), viewBox: box };
  return draw("svg", { ...size, role: "group", "aria-label": label }, ...children);
}

/** The width that there is for pictures; a window that is being closed has none. */
const room = () => Math.max(280, byId("picture").clientWidth - 8);

function button(text, onClick, attributes = {}) {
  const node = el("button", { type: "button", ...attributes }, text);
  node.addEventListener("click", onClick);
  return node;
}

/** Let one of many items take the focus, and the arrow keys go to the nearest that way. */
function roving(items, start) {
  items.forEach((item, index) => {
    item.node.setAttribute("tabindex", index === start ? 0 : -1);
    item.node.addEventListener("keydown", (event) => {
      const next = ARROWS[event.key] && nearest(items, item, ARROWS[event.key]);
      if (next) {
        item.node.setAttribute("tabindex", -1);
        next.node.setAttribute("tabindex", 0);
        next.node.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        item.node.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      }
      if (ARROWS[event.key] || event.key === "Enter" || event.key === " ") event.preventDefault();
    });
  });
}

function nearest(items, from, [right, down]) {
  let best = null, least = Infinity;
  for (const item of items) {
    const dx = item.x - from.x, dy = item.y - from.y, along = dx * right + dy * down;
    const distance = along + 3 * Math.abs(dx * down) + 3 * Math.abs(dy * right);
    if (along > 0 && distance < least) [best, least] = [item, distance];
  }
  return best;
}

/** A text as it can stand in a line and in XML: short, and control characters as marks. */
function shown(text, most = 22) {
  const letters = Array.from(text.slice(0, 4 * most));
  const cut = letters.length > most ? [...letters.slice(0, most - 1), "…"] : letters;
  const plain = cut.join("").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  return plain.replace(/[\u0000-\u001f\u007f\ufffe\uffff]|\p{Cs}/gu, "\ufffd") || "␣";
}
const percent = (value) => `${(100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0)} %`;
const signed = (value) => `${value < 0 ? "−" : "+"}${percent(Math.abs(value))}`;
const number = (value) => (value < 0 ? "−" : "") + String(Math.abs(Number(value.toPrecision(3))));

function valueText(kind, value) {
  if (kind === "graph") return number(value);
  return kind === "difference" ? signed(value) : percent(value);
}

const text = () => page.texts[state.text];
const head = () => text().heads[state.head];
const headName = (own) => `layer ${own.layer}, head ${own.head}`;
const token = (index) => shown(text().tokens[index]);
const place = (index) => `${token(index)} (${text().positions[index]})`;
const kindName = (kind) => (text().heads.some((own) => own.tree) && OF_CLUSTERS[kind]) || KINDS[kind];
const kindsOf = (own) => Object.keys(own.links);
const kindOf = (own) => (own.links[state.kind] ? state.kind : "attention");

/** Some words with a token in them, which cannot turn what stands beside it. */
const named = (index) => el("bdi", {}, place(index));

const bytes = (packed) => Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0)).buffer;

/** The links of a head, unpacked at their first use: rows i, columns k, values. */
function linksOf(own, kind) {
  const packed = own.links[kind];
  if (packed && !packed.rows) {
    const counts = new Uint16Array(bytes(packed.counts));
    packed.columns = new Uint16Array(bytes(packed.keys));
    packed.numbers = Float64Array.from(
      new Int16Array(bytes(packed.values)), (step) => (step * packed.scale) / 32767);
    packed.rows = new Uint16Array(packed.columns.length);
    let end = 0;
    counts.forEach((count, row) => packed.rows.fill(row, end, (end += count)));
  }
  return packed;
}

function valueAt(own, kind, i, k) {
  const links = linksOf(own, kind);
  if (!links) return null;
  for (let n = links.rows.indexOf(i); n >= 0 && links.rows[n] === i; n++)
    if (links.columns[n] === k) return links.numbers[n];
  return null;
}

function byStrength(links) {
  const order = Array.from(links.numbers.keys());
  return order.sort((a, b) => Math.abs(links.numbers[b]) - Math.abs(links.numbers[a]));
}

/** What full colour stands for: the same in all heads that are shown, so that they compare. */
function fullColour(kind, heads) {
  const alike = kind === "attention" || kind === "before" ? ["attention", "before"] : [kind];
  const scales = heads.flatMap((own) => alike.map((name) => own.links[name]?.scale ?? 0));
  return Math.max(1e-9, ...scales);
}
const strength = (value, full) => Math.sqrt(Math.min(1, Math.abs(value) / full));

/** Squares of a matrix as a few paths; those of negative values are smaller. */
function squares(cells, full) {
  const paths = new Map();
  for (const [x, y, value] of cells) {
    const level = Math.max(1, Math.round(strength(value, full) * LEVELS));
    const key = value < 0 ? -level : level;
    const square = value < 0 ? `M${x + 0.2} ${y + 0.2}h.6v.6h-.6z` : `M${x} ${y}h1v1h-1z`;
    paths.set(key, (paths.get(key) ?? "") + square);
  }
  return Array.from(paths, ([key, d]) => draw("path", {
    d, class: key < 0 ? "less" : "more", "fill-opacity": Math.abs(key) / LEVELS,
  }));
}
