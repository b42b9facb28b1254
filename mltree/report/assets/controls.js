"use strict";
// The buttons around a tree: layouts, supports, roots, search, files; and the menu of a node.

function startPage() {
  const { newick, name, supports, unit } = JSON.parse(document.getElementById("tree-data").textContent);
  const frame = document.getElementById("frame");
  const view = new View(frame, readNewick(newick), unit);
  const tools = document.getElementById("tools");
  const status = document.getElementById("status");
  const menu = new Menu(document.getElementById("menu"), view, redraw);

  function redraw() {
    menu.close();
    view.arrange();
  }

  function root(make) {
    for (const node of inOrder(view.whole)) node.collapsed = false;
    view.root = view.whole = make();
    view.chosen = null;
    if (ordered.checked) ladderise(view.whole);
    redraw();
  }

  const layouts = { rectangular: "Rectangular", circular: "Circular", unrooted: "Unrooted" };
  tools.append(
    choice("layout", layouts, (value) => {
      view.options.layout = value;
      redraw();
    }),
    search(view, status),
  );
  const rootings = { written: "as written", midpoint: "at the midpoint" };
  const roots = select("Root", rootings, (value) =>
    root(value === "midpoint" ? () => rootMidway(readNewick(newick)) : () => readNewick(newick)),
  );
  const ordered = check("Ladderised", true, (isOn) => {
    if (isOn) return ladderise(view.root), redraw();
    root(() => (roots.querySelector("select").value === "midpoint" ? rootMidway(readNewick(newick)) : readNewick(newick)));
  });
  const toggles = [roots, ordered.label, check("Branch lengths", true, (isOn) => set("scaled", isOn)).label];
  if (view.shown.some((node) => !isNaN(supportOf(node, view.isPercent, view.column)))) {
    toggles.push(check("Supports by colour", true, (isOn) => set("colours", isOn)).label);
    toggles.push(check("Support values", false, (isOn) => set("values", isOn)).label);
    const count = columnsOf(view.whole);
    const names = supports.length === count ? supports : Array.from({ length: count }, (_, n) => (count > 1 ? `support ${n + 1}` : "support"));
    const shown = legend(view, names);
    if (count > 1) {
      const columns = select("Colours by", Object.fromEntries(names.map((one, n) => [n, one])), (value) => {
        view.column = Number(value);
        view.isPercent = hasPercentages(view.whole, view.column);
        shown.fill();
        redraw();
      });
      columns.querySelector("select").value = String(view.column);
      toggles.push(columns);
    }
    frame.after(shown.box);
  }
  toggles.push(check("Align names", false, (isOn) => set("aligned", isOn)).label);
  function set(option, isOn) {
    view.options[option] = isOn;
    redraw();
  }

  const saves = { SVG: () => save(`${name}.svg`, picture(view)), PNG: () => savePng(view, `${name}.png`), Newick: () => save(`${name}.nwk`, new Blob([writeNewick(view.root) + "\n"])) };
  const whole = button("Full", "Full screen", () =>
    document.fullscreenElement ? document.exitFullscreen() : frame.parentElement.requestFullscreen(),
  );
  tools.append(
    group("zoom", button("+", "Zoom in", () => view.zoom(1.6)), button("−", "Zoom out", () => view.zoom(1 / 1.6)), button("Fit", "All of the tree", () => view.fit()), whole),
    group("saves", ...Object.entries(saves).map(([kind, act]) => button(kind, `Save as ${kind}`, act))),
    group("toggles", ...toggles),
  );
  view.onchoose = (node, place) => menu.open(node, place);
  const hint = status.textContent;
  let waiting = "";
  view.onhover = (node) => (status.textContent = node ? told(node, view) : waiting + hint);
  view.ondraw = ({ names, values }) => {
    const parts = [names && `${names} of ${view.rows < view.root.n ? "the" : view.root.n} names`, values && `${values} supports`];
    const listed = parts.filter(Boolean).join(" and ");
    waiting = listed ? `${listed} have no room here: zoom in, or point at a node, to read them. ` : "";
    if (!view.hits.size) status.textContent = waiting + hint;
  };
  ladderise(view.root);
  redraw();
  return view;
}

// A node in words.
function told(node, view) {
  const parts = [isTip(node) ? node.name : `clade of ${node.n} taxa`];
  if (!isNaN(node.length) && node.parent) parts.push(`branch ${Number(node.length.toPrecision(4))}`);
  if (!isTip(node) && node.name && node.parent) parts.push(isNaN(supportOf(node, view.isPercent, view.column)) ? node.name : `support ${node.name}`);
  return parts.join(" · ");
}

class Menu {
  constructor(box, view, redraw) {
    Object.assign(this, { box, view, redraw });
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  open(node, [x, y]) {
    this.close();
    if (!node) return;
    const { view } = this;
    view.chosen = node;
    view.draw();
    const title = document.createElement("strong");
    title.textContent = told(node, view);
    this.box.replaceChildren(title);
    const offer = (name, act) => this.box.append(button(name, "", () => (act(), (view.chosen = null), this.redraw())));
    if (!isTip(node)) offer(node.collapsed ? "Expand" : "Collapse", () => (node.collapsed = !node.collapsed));
    if (node.parent && view.root === view.whole) offer("Root on this branch", () => {
      view.root = view.whole = ladderise(rootAbove(view.whole, node));
    });
    if (!isTip(node) && node !== view.root) offer("Show this clade alone", () => (view.root = node));
    if (view.root !== view.whole) offer("Show the whole tree", () => (view.root = view.whole));
    if (isTip(node)) offer("Copy the name", () => navigator.clipboard?.writeText(node.name));
    this.box.hidden = false;
    this.box.style.left = `${clamp(x + 8, 4, view.width - this.box.offsetWidth - 4)}px`;
    this.box.style.top = `${clamp(y + 8, 4, view.height - this.box.offsetHeight - 4)}px`;
  }

  close() {
    this.box.hidden = true;
    if (!this.view.chosen) return;
    this.view.chosen = null;
    this.view.draw();
  }
}

function search(view, status) {
  const input = document.createElement("input");
  Object.assign(input, { type: "search", placeholder: "Find a taxon", autocomplete: "off", spellcheck: false });
  input.setAttribute("aria-label", "Find a taxon");
  let [found, next] = [[], 0];
  const look = () => {
    const wanted = input.value.trim().toLowerCase();
    found = wanted ? tipsOf(view.root).filter((tip) => tip.name.toLowerCase().includes(wanted)) : [];
    [view.hits, next] = [new Set(found), 0];
    status.textContent = wanted ? `${found.length} of ${view.root.n} taxa; Enter goes from one to the next` : "";
    if (found.length === 1) view.show(found[0]);
    else view.draw();
  };
  input.addEventListener("input", look);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && found.length) view.show(found[next++ % found.length]);
  });
  return input;
}

// The legend of supports: which they are, and the colours of one of them.
function legend(view, names) {
  const box = document.createElement("p");
  box.className = "legend";
  const fill = () => {
    const bounds = [0, ...SUPPORT_STEPS].map((step) => (view.isPercent ? step * 100 : step));
    const item = (from, n) => `<span><i class="s${n}"></i>${n < 4 ? `${from} – ${bounds[n + 1]}` : `≥ ${from}`}</span>`;
    const labels = names.length > 1 ? `<span>Labels: ${escapeText(names.join(" / "))}.</span>` : "";
    const name = names[view.column];
    box.innerHTML = `${labels}<span>Colours: ${escapeText(name)}</span>${bounds.map(item).join("")}`;
  };
  fill();
  return { box, fill };
}

function button(label, title, act) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: label, title, onclick: act });
  return made;
}

function group(kind, ...parts) {
  const box = document.createElement("span");
  box.className = kind;
  box.append(...parts);
  return box;
}

function choice(kind, values, act) {
  const made = Object.entries(values).map(([value, label], place) => {
    const one = button(label, "", () => {
      for (const other of made) other.setAttribute("aria-pressed", other === one);
      act(value);
    });
    one.setAttribute("aria-pressed", place === 0);
    one.dataset.value = value;
    return one;
  });
  return group(`segments ${kind}`, ...made);
}

function check(label, isOn, act) {
  const box = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { type: "checkbox", checked: isOn, onchange: () => act(input.checked) });
  box.append(input, ` ${label}`);
  return { label: box, get checked() { return input.checked; } };
}

function select(label, values, act) {
  const box = document.createElement("label");
  const input = document.createElement("select");
  for (const [value, text] of Object.entries(values)) input.add(new Option(text, value));
  input.onchange = () => act(input.value);
  box.append(`${label} `, input);
  return box;
}

// The drawing as a file of its own: colours are those that are seen.
function picture(view) {
  const copy = view.svg.cloneNode(true);
  const seen = getComputedStyle(view.frame);
  const style = copy.querySelector("style");
  style.textContent = style.textContent.replace(/var\((--[\w-]+)\)/g, (_, name) => seen.getPropertyValue(name).trim());
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", view.width);
  copy.setAttribute("height", view.height);
  copy.style.background = seen.getPropertyValue("--card").trim();
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

function savePng(view, name) {
  const image = new Image();
  const address = URL.createObjectURL(picture(view));
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [view.width * 3, view.height * 3];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(address);
    canvas.toBlob((blob) => save(name, blob));
  };
  image.src = address;
}

function save(name, blob) {
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

document.getElementById("theme").onclick = () => {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (isDark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
};
const page = startPage();
