"use strict";
// The drawing of a tree, and what pointers, wheels and keys do with it. Everything is drawn again
// at every change, but only names that can be read: a few hundred, however large the tree.

const SVG = "http://www.w3.org/2000/svg";
const PAD = 16; // around the drawing, pixels
const SMALLEST_FACE = 7; // of a name that is still drawn, pixels
const LARGEST_FACE = 13;
const FACE = 0.86; // size of a name, as a share of its row
const TALL_UP_TO = 320; // rows for which the frame is as high as their names need
const NEAR = 14; // pixels within which a click means a node
const SUPPORT_STEPS = [0.5, 0.7, 0.8, 0.95]; // where the colour of a support changes
const MOST_ZOOM = 4000;
const LABEL_WIDTH = 0.62; // of a character where no browser measures it, as a share of its size
const NAMES_SHARE = 0.42; // of the frame that names take at most: longer ones are shortened

const SVG_STYLE = `
text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--ink)}
.branch{fill:none;stroke:var(--ink)}
.s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{stroke:var(--s4)}
.leader{fill:none;stroke:var(--faint);stroke-width:.6;stroke-dasharray:1 3}
.clade{fill:var(--clade);stroke:var(--ink);stroke-width:1}
.value{fill:var(--soft)}.scale{stroke:var(--soft);stroke-width:1.2;fill:none}.unit{fill:var(--soft)}
.hit{fill:var(--hit);font-weight:650}.spot{fill:var(--hit)}
.chosen{fill:none;stroke:var(--hit);stroke-width:2}`;

const escapeText = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Width of a text of size 1: the browser's, in the font that the drawing has.
const ruler = document.createElement("canvas").getContext?.("2d");
if (ruler) ruler.font = '100px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif';
const widthOf = (text) => (ruler ? ruler.measureText(text).width / 100 : LABEL_WIDTH * text.length);

// Boxes that words and lines take, and whether a new one is clear of them. A box has its middle, half
// its sides, and its direction; two are apart where a side of one parts them.
class Crowd {
  boxes = [];

  isFree(box, but = null) {
    return !this.boxes.some((other) => other !== but && overlaps(box, other));
  }

  add(box) {
    this.boxes.push(box);
  }

  addLine([x1, y1], [x2, y2]) {
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const turn = { cos: (x2 - x1) / length, sin: (y2 - y1) / length };
    const box = { x: (x1 + x2) / 2, y: (y1 + y2) / 2, wide: length / 2, high: 0.7, ...turn };
    this.add(box);
    return box;
  }
}

function overlaps(a, b) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const reach = a.wide + a.high + b.wide + b.high;
  if (Math.abs(dx) > reach || Math.abs(dy) > reach) return false;
  const cos = Math.abs(a.cos * b.cos + a.sin * b.sin), sin = Math.abs(a.cos * b.sin - a.sin * b.cos);
  return [[a, b], [b, a]].every(
    ([one, two]) =>
      Math.abs(dx * one.cos + dy * one.sin) < one.wide + two.wide * cos + two.high * sin &&
      Math.abs(dy * one.cos - dx * one.sin) < one.high + two.wide * sin + two.high * cos,
  );
}

// The box of a text as text() draws it.
function boxOf(x, y, content, size, anchor = "start", degrees = 0) {
  const turn = (degrees * Math.PI) / 180, width = widthOf(content) * size;
  const along = anchor === "start" ? width / 2 : -width / 2;
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  return { x: x + along * cos, y: y + along * sin, wide: width / 2, high: size * 0.46, cos, sin };
}

class View {
  constructor(frame, root, unitName) {
    this.frame = frame;
    this.unitName = unitName; // of branch lengths
    this.root = this.whole = root;
    this.column = columnsOf(root) - 1; // of several supports, the one that colours show
    this.isPercent = hasPercentages(root, this.column);
    this.options = { layout: "rectangular", scaled: true, colours: true, values: false, aligned: false };
    this.hits = new Set();
    this.chosen = null;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("tabindex", "0");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", "phylogenetic tree");
    frame.prepend(this.svg);
    this.onchoose = this.onhover = this.ondraw = () => {};
    this.listen();
    this.arrange();
    new ResizeObserver(() => this.resize()).observe(frame);
  }

  // After a change of the tree or of the layout: all nodes get their places, and all are in sight.
  arrange() {
    Object.assign(this, layOut(this.root, this.options.scaled));
    this.longest = 0;
    for (const node of this.shown)
      if (isTip(node) || node.collapsed) this.longest = Math.max(this.longest, widthOf(this.label(node)));
    this.frame.style.setProperty("--rows", Math.ceil(this.rows));
    const isTall = this.options.layout === "rectangular" && this.rows <= TALL_UP_TO;
    this.frame.classList.toggle("tall", isTall);
    this.resize();
  }

  resize() {
    [this.width, this.height] = [this.frame.clientWidth, this.frame.clientHeight];
    this.fit();
  }

  fit() {
    Object.assign(this, { zoomX: 1, zoomY: 1, left: 0, top: 0 });
    this.draw();
  }

  // Zoom about a point of the frame. Rows are spread alone; around a circle all grows together.
  zoom(factor, x = this.width / 2, y = this.height / 2, acrossToo = false) {
    const before = [this.zoomX, this.zoomY];
    const isRound = this.options.layout !== "rectangular";
    this.zoomY = clamp(this.zoomY * factor, 0.5, MOST_ZOOM);
    if (isRound) this.zoomX = this.zoomY;
    else if (acrossToo) this.zoomX = clamp(this.zoomX * factor, 0.5, MOST_ZOOM);
    this.left = x - ((x - this.left) * this.zoomX) / before[0];
    this.top = y - ((y - this.top) * this.zoomY) / before[1];
    this.draw();
  }

  move(dx, dy) {
    this.left += dx;
    this.top += dy;
    this.draw();
  }

  // Bring a node to the middle, near enough for its name to be read.
  show(node) {
    for (let above = node.parent; above; above = above.parent)
      if (above.collapsed) [above.collapsed, this.stale] = [false, true];
    if (this.stale) this.arrange();
    this.stale = false;
    if (this.face < SMALLEST_FACE) this.zoom(((SMALLEST_FACE + 3) / this.face) * 1.02);
    const [x, y] = this.place(node);
    const isRound = this.options.layout !== "rectangular";
    this.move(isRound ? this.width / 2 - x : 0, this.height / 2 - y);
  }

  label(node) {
    return node.collapsed ? `${node.name && isNaN(Number(node.name)) ? node.name + ", " : ""}${node.n} taxa` : node.name;
  }

  // Sizes that hold for a whole drawing.
  measure() {
    const { layout } = this.options;
    const pitch = (this.height - 2 * PAD - 26) / this.rows; // with all of it in sight
    const isSmall = pitch * FACE < SMALLEST_FACE * (layout === "rectangular" ? 1 : 0.6);
    const names = this.longest * (layout === "rectangular" ? Math.min(pitch * FACE, LARGEST_FACE) : LARGEST_FACE);
    const most = NAMES_SHARE * (layout === "rectangular" ? this.width : Math.min(this.width, this.height) * 0.6);
    const room = isSmall ? (layout === "rectangular" ? 60 : 0) : Math.min(names, most);
    this.room = names > most ? most : Infinity;
    if (layout === "rectangular") {
      this.pitch = pitch * this.zoomY;
      this.across = (this.width - 2 * PAD - room - 6) * this.zoomX;
    } else if (layout === "circular") {
      this.radius = Math.max((Math.min(this.width, this.height - 30) / 2 - PAD - room) * this.zoomX, 20 * this.zoomX);
      this.pitch = (this.radius * CIRCLE) / this.rows;
    } else {
      const xs = this.shown.map((node) => node.x), ys = this.shown.map((node) => node.y);
      const low = [xs, ys].map((values) => values.reduce((a, b) => Math.min(a, b)));
      const high = [xs, ys].map((values) => values.reduce((a, b) => Math.max(a, b)));
      const spans = [this.width - 2 * PAD - 2 * room, this.height - 2 * PAD - 24 - 2 * room];
      const k = Math.min(...spans.map((span, i) => span / (high[i] - low[i] || 1)));
      Object.assign(this, { unrooted: k * this.zoomX, middle: [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2] });
      this.pitch = (this.unrooted * CIRCLE * 0.5) / this.rows;
    }
    this.face = Math.min(this.pitch * FACE, LARGEST_FACE);
    this.stroke = clamp(this.pitch / 6, 0.6, 1.4);
  }

  // Where a point at some row and depth, or a node, is in the frame.
  at(row, depth) {
    if (this.options.layout === "rectangular")
      return [PAD * this.zoomX + this.left + depth * this.across, PAD * this.zoomY + this.top + row * this.pitch];
    const turn = (row / this.rows) * CIRCLE;
    const [x, y] = this.centre();
    return [x + depth * this.radius * Math.cos(turn), y + depth * this.radius * Math.sin(turn)];
  }

  centre() {
    return [this.left + (this.width / 2) * this.zoomX, this.top + ((this.height - 24) / 2) * this.zoomY];
  }

  place(node) {
    if (this.options.layout !== "unrooted") return this.at(node.row, node.depth);
    const [x, y] = this.centre();
    return [x + (node.x - this.middle[0]) * this.unrooted, y + (node.y - this.middle[1]) * this.unrooted];
  }

  draw() {
    if (!this.width) return;
    this.measure();
    [this.crowd, this.hidden] = [new Crowd(), { names: 0, values: 0 }];
    const parts = [...this.branches(), ...this.names()];
    if (this.options.values && this.face >= SMALLEST_FACE) parts.push(...this.values());
    if (this.chosen) {
      const [x, y] = this.place(this.chosen);
      parts.push(`<circle class="chosen" cx="${x}" cy="${y}" r="6"/>`);
    }
    parts.push(this.scaleBar());
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.innerHTML = `<style>${SVG_STYLE}</style>` + parts.join("");
    this.ondraw(this.hidden);
  }

  // Branches are one path for each colour, however many there are.
  branches() {
    const paths = new Map();
    const leaders = [];
    const clades = [];
    for (const node of this.shown) {
      const kind = this.colour(node);
      paths.set(kind, (paths.get(kind) || "") + this.branch(node));
      if (node.collapsed) clades.push(this.triangle(node));
      else if (isTip(node) && this.leads(node)) leaders.push(line(this.place(node), this.at(node.row, 1)));
    }
    const drawn = [...paths].map(([kind, d]) => `<path class="branch ${kind}" stroke-width="${this.stroke}" d="${d}"/>`);
    return [`<path class="leader" d="${leaders.join("")}"/>`, ...drawn, `<path class="clade" d="${clades.join("")}"/>`];
  }

  leads(node) {
    const isRound = this.options.layout === "circular";
    return (this.options.aligned || isRound) && this.options.layout !== "unrooted" && node.depth < 0.985 && this.face >= SMALLEST_FACE;
  }

  colour(node) {
    const support = supportOf(node, this.isPercent, this.column);
    if (!this.options.colours || isNaN(support)) return "";
    return `s${SUPPORT_STEPS.filter((step) => support >= step).length}`;
  }

  // A branch, and the line across its node's children.
  branch(node) {
    if (node === this.root) return this.options.layout === "unrooted" ? "" : this.spread(node);
    if (this.options.layout === "unrooted") return line(this.place(node.parent), this.place(node));
    return line(this.at(node.row, node.parent.depth), this.place(node)) + this.spread(node);
  }

  spread(node) {
    if (isTip(node) || node.collapsed) return "";
    const [first, last] = [node.children[0], node.children.at(-1)];
    const ends = [this.at(first.row, node.depth), this.at(last.row, node.depth)];
    if (this.options.layout === "rectangular") return line(...ends);
    const radius = node.depth * this.radius;
    const isLarge = ((last.row - first.row) / this.rows) * CIRCLE > Math.PI ? 1 : 0;
    return `M${point(ends[0])}A${radius.toFixed(1)} ${radius.toFixed(1)} 0 ${isLarge} 1 ${point(ends[1])}`;
  }

  triangle(node) {
    const tip = this.place(node);
    if (this.options.layout === "unrooted") {
      const size = 18, turn = node.turn || 0;
      const corner = (side) => [tip[0] + size * Math.cos(turn + side), tip[1] + size * Math.sin(turn + side)];
      return `M${point(tip)}L${point(corner(0.35))}L${point(corner(-0.35))}Z`;
    }
    const depth = node.depth + node.height;
    const half = COLLAPSED_ROWS * 0.36;
    return `M${point(tip)}L${point(this.at(node.row - half, depth))}L${point(this.at(node.row + half, depth))}Z`;
  }

  // Names of tips and of collapsed clades: all that fit, and those that were searched for anyway.
  names() {
    const isLegible = this.face >= SMALLEST_FACE;
    const parts = [];
    const isUnrooted = this.options.layout === "unrooted";
    const rays = isUnrooted && isLegible ? this.rays() : new Map();
    for (const node of this.shown) {
      if (!isTip(node) && !node.collapsed) continue;
      const isHit = this.hits.has(node) || (node.collapsed && this.hasHit(node));
      if (!isLegible && !isHit) {
        this.hidden.names++;
        continue;
      }
      const [x, y] = this.place(node);
      if (isHit) parts.push(`<circle class="spot" cx="${x}" cy="${y}" r="3.5"/>`);
      if (x < -400 || x > this.width + 400 || y < -40 || y > this.height + 40) continue;
      const size = Math.max(this.face, isHit ? 11 : 0);
      let [place, box] = this.name(node, size);
      if (isUnrooted && !isHit) {
        const moved = this.alongRay(node, size, rays.get(node));
        if (!moved) {
          this.hidden.names++;
          continue;
        }
        [place, box] = moved;
        parts.push(`<path class="leader" d="${line([x, y], place)}"/>`);
        this.crowd.addLine([x, y], place);
      }
      this.crowd.add(box);
      parts.push(text(...place, isHit ? "hit" : ""));
    }
    return parts;
  }

  // The ways on which names may move away from their tips, clear of branches and of each other.
  rays() {
    const rays = new Map();
    const length = Math.min(this.width, this.height) / 2;
    for (const node of this.shown) this.keepClear(node);
    for (const node of this.shown) {
      if (!isTip(node) && !node.collapsed) continue;
      const [x, y] = this.place(node);
      const [cos, sin] = [Math.cos(node.turn || 0), Math.sin(node.turn || 0)];
      rays.set(node, this.crowd.addLine([x + 2 * cos, y + 2 * sin], [x + length * cos, y + length * sin]));
    }
    return rays;
  }

  // The first place on its ray where a name touches nothing, or null.
  alongRay(node, size, ray) {
    for (let away = 0; away < Math.min(this.width, this.height) / 3; away += 4) {
      const [place, box] = this.name(node, size, away);
      if (!this.isInside(box)) return null;
      if (this.crowd.isFree(box, ray)) return [place, box];
    }
    return null;
  }

  isInside({ x, y, wide, high, cos, sin }) {
    const [dx, dy] = [Math.abs(wide * cos) + Math.abs(high * sin), Math.abs(wide * sin) + Math.abs(high * cos)];
    return x - dx >= 0 && x + dx <= this.width && y - dy >= 0 && y + dy <= this.height;
  }

  hasHit(clade) {
    for (const node of this.hits)
      for (let above = node; above; above = above.parent) if (above === clade) return true;
    return false;
  }

  // What text() takes for the name of a tip or a collapsed clade, and its box.
  name(node, size, away = 0) {
    const content = this.fitted(this.label(node), size);
    const placed = (...place) => [place, boxOf(...place)];
    const { layout } = this.options;
    const end = node.collapsed ? Math.min(node.depth + node.height, 1) : this.leads(node) ? 1 : node.depth;
    if (layout === "rectangular") {
      const [x, y] = this.at(node.row, end);
      return placed(x + 5, y, content, size);
    }
    const turn = layout === "circular" ? (node.row / this.rows) * CIRCLE : node.turn || 0;
    const [x0, y0] = layout === "circular" ? this.at(node.row, end) : this.place(node);
    const gap = (layout === "unrooted" && node.collapsed ? 23 : 5) + away;
    const [x, y] = [x0 + gap * Math.cos(turn), y0 + gap * Math.sin(turn)];
    const isLeft = Math.cos(turn) < 0;
    const degrees = (turn * 180) / Math.PI - (isLeft ? 180 : 0);
    return placed(x, y, content, size, isLeft ? "end" : "start", degrees);
  }

  // A name, or its beginning where the frame has no room for more.
  fitted(name, size) {
    if (widthOf(name) * size <= this.room) return name;
    let length = name.length;
    while (length > 1 && widthOf(name.slice(0, length) + "…") * size > this.room) length--;
    return name.slice(0, length) + "…";
  }

  // Supports beside their branches, where they touch nothing; zooming in shows the others.
  values() {
    const size = Math.max(this.face * 0.78, SMALLEST_FACE);
    const parts = [];
    if (this.options.layout !== "unrooted") for (const node of this.shown) this.keepClear(node);
    for (const node of this.shown) {
      if (isTip(node) || !node.parent || !node.name || node === this.root) continue;
      const [x, y] = this.place(node);
      if (x < 0 || x > this.width || y < 0 || y > this.height) continue;
      const isClear = (box) => this.isInside(box) && this.crowd.isFree(box);
      const place = this.beside(node, size).find((one) => isClear(boxOf(...one)));
      if (!place) this.hidden.values++;
      else {
        this.crowd.add(boxOf(...place));
        parts.push(text(...place, "value"));
      }
    }
    return parts;
  }

  keepClear(node) {
    const lines = (this.branch(node).match(/M[^M]+/g) || []).map((part) => part.match(/-?[\d.]+/g).map(Number));
    for (const numbers of lines)
      if (numbers.length === 4) this.crowd.addLine(numbers.slice(0, 2), numbers.slice(2));
    if (this.options.layout !== "circular" || isTip(node) || node.collapsed) return;
    const [first, last] = [node.children[0].row, node.children.at(-1).row];
    const steps = Math.ceil(((last - first) / this.rows) * 60) + 1;
    for (let step = 0; step < steps; step++) {
      const row = (k) => first + ((last - first) * k) / steps;
      this.crowd.addLine(this.at(row(step), node.depth), this.at(row(step + 1), node.depth));
    }
  }

  // Places of a support, as text() takes them: on either side of its branch, behind its node.
  beside(node, size) {
    const { layout } = this.options;
    const turn = layout === "rectangular" ? 0 : layout === "circular" ? (node.row / this.rows) * CIRCLE : node.turn || 0;
    const isLeft = Math.cos(turn) < -1e-9;
    const degrees = (turn * 180) / Math.PI - (isLeft ? 180 : 0);
    const [x, y] = this.place(node);
    const at = (along, over) => [x + along * Math.cos(turn) - over * Math.sin(turn), y + along * Math.sin(turn) + over * Math.cos(turn)];
    const isLast = node.parent.children.at(-1) === node;
    const sides = isLast ? [1, -1] : [-1, 1];
    const behind = sides.map((side) => [...at(-3, side * size * 0.68), node.name, size, isLeft ? "start" : "end", degrees]);
    return [...behind, [...at(4, 0), node.name, size, isLeft ? "end" : "start", degrees]];
  }

  scaleBar() {
    if (!this.unit) return "";
    const pixels = { rectangular: this.across, circular: this.radius, unrooted: this.unrooted }[this.options.layout] / this.unit;
    const length = niceLength(120 / pixels);
    const [x, y, end] = [PAD, this.height - 12, PAD + length * pixels];
    const bar = `<path class="scale" d="M${x} ${y - 4}V${y + 4}M${x} ${y}H${end}M${end} ${y - 4}V${y + 4}"/>`;
    return bar + text(end + 6, y, `${Number(length.toPrecision(2))} ${this.unitName}`, 11, "unit");
  }

  // The node that a point means, or null.
  nearest(x, y) {
    let [best, least] = [null, NEAR * NEAR];
    for (const node of this.shown) {
      const [nx, ny] = this.place(node);
      const names = isTip(node) && this.options.layout === "rectangular" && this.face >= SMALLEST_FACE;
      const right = names ? nx + 8 + widthOf(this.label(node)) * this.face : nx;
      const dx = x < nx ? nx - x : Math.max(x - right, 0);
      const distance = dx * dx + (y - ny) * (y - ny);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  listen() {
    const pointers = new Map();
    let moved = 0;
    const where = (event) => {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.svg.addEventListener("pointerdown", (event) => {
      this.svg.setPointerCapture(event.pointerId);
      if (!pointers.size) moved = 0;
      pointers.set(event.pointerId, where(event));
    });
    this.svg.addEventListener("pointermove", (event) => {
      const now = where(event);
      const before = pointers.get(event.pointerId);
      if (!before) return this.onhover(this.nearest(...now));
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      if (others.length) {
        const spread = (place) => Math.hypot(place[0] - others[0][0], place[1] - others[0][1]) || 1;
        this.zoom(spread(now) / spread(before), (now[0] + others[0][0]) / 2, (now[1] + others[0][1]) / 2, true);
      } else this.move(now[0] - before[0], now[1] - before[1]);
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      pointers.set(event.pointerId, now);
    });
    const up = (event) => {
      if (pointers.delete(event.pointerId) && moved < 5 && event.type === "pointerup")
        this.onchoose(this.nearest(...where(event)), where(event));
    };
    this.svg.addEventListener("pointerup", up);
    this.svg.addEventListener("pointercancel", up);
    this.svg.addEventListener("dblclick", (event) => this.zoom(2, ...where(event)));
    const wheel = (event) => {
      if (!(event.ctrlKey || event.metaKey || document.fullscreenElement)) return; // the page scrolls
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 240), ...where(event), event.shiftKey);
    };
    this.svg.addEventListener("wheel", wheel, { passive: false });
    const keys = {
      "+": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.fit(),
      ArrowUp: () => this.move(0, 60), ArrowDown: () => this.move(0, -60),
      ArrowLeft: () => this.move(60, 0), ArrowRight: () => this.move(-60, 0),
    };
    this.svg.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
}

const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
const line = (from, to) => `M${point(from)}L${point(to)}`;

function text(x, y, content, size, ...rest) {
  const kind = rest.pop() ?? "";
  const [anchor = "start", degrees = 0] = rest;
  const turned = degrees ? ` transform="rotate(${degrees.toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)})"` : "";
  return `<text class="${kind}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" dy=".35em" font-size="${size.toFixed(1)}" text-anchor="${anchor}"${turned}>${escapeText(content)}</text>`;
}
