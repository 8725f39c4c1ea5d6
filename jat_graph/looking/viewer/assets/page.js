// What is around the picture, where the focus goes, and how the picture leaves the page.

const VIEWS = { "All heads": drawAll, "One head": drawHead, Jumps: drawJumps, Tree: drawTree };

function offered() {
  const jumps = text().heads.some((own) => own.links.graph);
  const some = { "All heads": true, "One head": true, Jumps: jumps, Tree: text().parse };
  return Object.keys(VIEWS).filter((name) => some[name]);
}

function put(title, ...pictures) {
  byId("heading").textContent = title;
  byId("picture").replaceChildren(...pictures);
  // Where nothing in it takes the focus, it does: so that it can be scrolled by keyboard.
  byId("picture").tabIndex = byId("picture").querySelector("[tabindex]") ? -1 : 0;
}
const say = (words) => (byId("caption").textContent = words.trim());
const detail = (...children) => byId("details").replaceChildren(...children.filter((child) => child !== null));

function choice(name, options, current, onChange) {
  const select = el("select", { name }, ...options.map(([value, words]) => el("option", { value }, words)));
  select.value = current;
  select.addEventListener("change", () => onChange(select.value));
  return el("label", {}, name, select);
}

function slider(name, least, most, current, onChange) {
  const input = el("input", { type: "range", name, min: least, max: most });
  input.value = current;
  input.addEventListener("input", () => onChange(Number(input.value)));
  return el("label", {}, name, input, el("output", {}, current));
}

function textControls() {
  const { heads } = text(), kinds = [...new Set(heads.flatMap(kindsOf))];
  const found = [];
  if (page.texts.length > 1) found.push(choice("Text", page.texts.map((own, n) => [n, shown(own.title, 50)]), state.text,
    (value) => { state.text = Number(value); show({ head: opening().head, token: null, pair: null }); }));
  if (state.view !== "All heads") found.push(choice("Head", heads.map((own, n) => [n, headName(own)]), state.head,
    (value) => show({ head: Number(value), pair: null })));
  if (kinds.length > 1 && state.view !== "Jumps") found.push(choice("Shows", kinds.map((kind) => [kind, kindName(kind)]),
    state.view === "All heads" ? state.kind : kindOf(head()), (kind) => show({ kind })));
  const links = linksOf(head(), kindOf(head())), lines = drawnLines(links);
  if (state.view === "One head") found.push(slider("Lines", 1, links.numbers.length, lines,
    (value) => show({ most: value, token: null })));
  return found;
}

/** Draw everything anew, and give the focus back to what had it: the same place in the same part. */
function show(changes) {
  Object.assign(state, changes);
  if (!offered().includes(state.view)) state.view = offered()[0];
  const scroll = [byId("picture").scrollLeft, byId("picture").scrollTop], focus = focusPlace();
  byId("views").replaceChildren(...offered().map((name) => button(name, () => show({ view: name }),
    { "aria-current": name === state.view })));
  byId("controls").replaceChildren(...textControls());
  VIEWS[state.view]();
  byId("picture").scrollTo(...("view" in changes ? [0, 0] : scroll));
  giveFocus(focus, "view" in changes);
}

const FOCUSABLE = "button, select, input, [tabindex]";

function focusPlace() {
  for (const id of ["views", "controls", "picture", "details"]) {
    const place = Array.from(byId(id).querySelectorAll(FOCUSABLE)).indexOf(document.activeElement);
    if (place >= 0) return [id, place];
  }
  return null;
}

function giveFocus(focus, moved) {
  if (!focus) return;
  const [id, place] = focus;
  if (moved && id === "picture") return byId("picture").focus();
  byId(id).querySelectorAll(FOCUSABLE)[place]?.focus({ preventScroll: true });
}

/** A copy that keeps its looks without the page's style. */
function styled(node) {
  const copy = node.cloneNode(false);
  for (const name of ["class", "role", "tabindex", "aria-label", "aria-pressed", "aria-roledescription"])
    copy.removeAttribute(name);
  const looks = getComputedStyle(node);
  if (!["g", "svg", "title"].includes(node.tagName)) for (const name of STYLES)
    copy.setAttribute(name, looks.getPropertyValue(name));
  for (const child of node.childNodes) copy.append(child.nodeType === 1 ? styled(child) : child.cloneNode());
  return copy;
}

function asSvg() {
  const home = byId("picture"), own = home.getBoundingClientRect(), parts = [];
  let [width, height] = [0, 0];
  for (const part of home.querySelectorAll(":scope > svg")) {
    const box = part.getBoundingClientRect();
    const [x, y] = [box.left - own.left + home.scrollLeft, box.top - own.top + home.scrollTop];
    parts.push(fill(styled(part), { x, y }, []));
    [width, height] = [Math.max(width, x + box.width), Math.max(height, y + box.height)];
  }
  const ground = draw("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor });
  const whole = picture(width, height, "", draw("title", {}, byId("heading").textContent), ground, ...parts);
  return new XMLSerializer().serializeToString(whole);
}

function saveSvg() {
  const url = URL.createObjectURL(new Blob([asSvg()], { type: "image/svg+xml" }));
  const name = byId("heading").textContent.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60);
  el("a", { href: url, download: `${name || "picture"}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

byId("title").textContent = page.title;
byId("save").addEventListener("click", saveSvg);
byId("print").addEventListener("click", () => window.print());
byId("controls").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && (state.token || state.pair)) show({ token: null, pair: null });
});
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) show({});
  width = window.innerWidth;
});
show(opening());
