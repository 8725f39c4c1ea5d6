// Words with their tree above them, and what a head gives from word to word below.

/** What a head gives from word to word: to a word summed over its tokens, from a word averaged. */
function wordLinks(own, kind) {
  const words = text().parse.tokens, links = linksOf(own, kind), found = new Map();
  const sizes = new Map();
  words.forEach((word) => sizes.set(word, (sizes.get(word) ?? 0) + 1));
  links.numbers.forEach((value, n) => {
    const [i, k] = [words[links.rows[n]], words[links.columns[n]]];
    const key = `${i} ${k}`;
    if (i >= 0 && k >= 0 && i !== k) found.set(key, (found.get(key) ?? 0) + value / sizes.get(i));
  });
  const list = Array.from(found, ([key, value]) => [...key.split(" ").map(Number), value]);
  return list.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]));
}

function wordPlaces(words) {
  let x = 24;
  return words.map((word, index) => {
    const name = shown(word, 20), tag = text().parse.tags[index];
    const width = Math.max(7.6 * Array.from(name).length, 6.6 * tag.length, 30);
    const found = { name, tag, x: x + width / 2 };
    x += width + 22;
    return found;
  });
}

/** How high each arc must be: above all arcs that it spans. */
function arcLevels(arcs) {
  const levels = new Map();
  for (const arc of [...arcs].sort((a, b) => Math.abs(a[0] - a[1]) - Math.abs(b[0] - b[1]))) {
    const [low, high] = [Math.min(...arc.slice(0, 2)), Math.max(...arc.slice(0, 2))];
    const below = Array.from(levels).filter(([[a, b]]) => Math.max(a, b) > low && Math.min(a, b) < high);
    levels.set(arc, 1 + Math.max(0, ...below.map(([, level]) => level)));
  }
  return levels;
}

function arcPath(from, to, base, height, shift) {
  const [a, b] = [from + shift * Math.sign(to - from), to - shift * Math.sign(to - from)];
  return `M${a} ${base}C${a} ${base - height * 1.33} ${b} ${base - height * 1.33} ${b} ${base}`;
}

function treeArcs(places, levels, base) {
  const drawn = Array.from(levels, ([[top, word, relation], level]) => {
    const [a, b] = [places[top].x, places[word].x], height = level * 24 + 4;
    const label = draw("text", { x: (a + b) / 2, y: base - height - 4, "text-anchor": "middle",
      class: "small label" }, shown(relation));
    const arc = draw("path", { d: arcPath(a, b, base, height, 4), class: "arc" },
      draw("title", {}, `${shown(relation)}: ${places[top].name} → ${places[word].name}`));
    return [arc, draw("path", { d: `M${b - 4 * Math.sign(b - a)} ${base + 1}l-3.5 -7h7z`, class: "tip" }), label];
  });
  return [0, 1, 2].flatMap((part) => drawn.map((own) => own[part])); // no arc over a label
}

function attentionArcs(places, links, base, full) {
  return links.flatMap(([i, k, value]) => {
    const height = 20 + 14 * Math.min(8, Math.abs(i - k)), size = strength(value, full);
    const [a, b] = [places[i].x, places[k].x], words = `${places[i].name} → ${places[k].name}`;
    return [
      draw("path", { d: arcPath(a, b, base, -height, 4), class: value < 0 ? "link less" : "link",
        "stroke-width": 0.6 + 3.4 * size, "stroke-opacity": 0.12 + 0.88 * size * size },
      draw("title", {}, `${words}: ${valueText(kindOf(head()), value)}`)),
      draw("path", { d: `M${b - 4 * Math.sign(b - a)} ${base - 1}l-3 6h6z`, class: value < 0 ? "less" : "more" }),
    ];
  });
}

function drawTree() {
  const { parse } = text(), places = wordPlaces(parse.words), kind = kindOf(head());
  const arcs = parse.heads.map((top, word) => [top, word, parse.relations[word]]).filter(([top]) => top >= 0);
  const levels = arcLevels(arcs), base = 40 + 24 * Math.max(1, ...levels.values());
  const links = wordLinks(head(), kind).slice(0, 2 * places.length), root = parse.heads.indexOf(-1);
  const names = places.flatMap(({ name, tag, x }, index) => [
    draw("text", { x, y: base + 22, "text-anchor": "middle", class: index === root ? "label" : null }, name),
    draw("text", { x, y: base + 37, "text-anchor": "middle", class: "small" }, tag),
  ]);
  const longest = Math.max(0, ...links.map(([i, k]) => Math.min(8, Math.abs(i - k))));
  put(`Tree, and layer ${head().layer}, head ${head().head}: ${kindName(kind)}`,
    picture(places.at(-1).x + 60, base + 82 + 14 * longest, "Tree above the words, links of the head below",
      ...treeArcs(places, levels, base), ...names, ...attentionArcs(places, links, base + 46, fullColour(kind, [head()]))));
  say(`Above: from each head word to its dependents; the root, ${places[root].name}, is bold. Below: the ${links.length} strongest links of the head between words, to the word looked at, among those in the file.`);
  const found = arcs.filter(([top, word]) => links.some(([i, k]) => (i === top && k === word) || (i === word && k === top)));
  detail(el("h3", {}, "Drawn links and the tree"),
    el("p", {}, `${found.length} of ${arcs.length} tree edges are among the links drawn below, in one direction or the other.`));
}
