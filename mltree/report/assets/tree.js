"use strict";
// A tree to look at: reading it, rooting, ordering and collapsing it, and where its nodes lie.
// Nothing here knows a browser. A node is { name, length, children, parent, collapsed, n }:
//   name      of a tip; of an inner node what is written there, often a support
//   length    of the branch above it, substitutions per site; NaN where there is none
//   n         tips below it, a tip itself
// Names of inner nodes belong to their branch: they move with it when the root moves.

const CIRCLE = 2 * Math.PI * (350 / 360); // so that a circular tree's ends are told apart
const COLLAPSED_ROWS = 1.5; // that a collapsed clade takes

function makeNode(name = "", length = NaN) {
  return { name, length, children: [], parent: null, collapsed: false, n: 1 };
}

// The root of a Newick text as mltree writes it: names quoted where they must be, no comments.
function readNewick(text) {
  const root = makeNode();
  let node = root;
  const token = /'((?:[^']|'')*)'|:([^(),;]*)|([(),;])|([^(),:;']+)/g;
  for (let found; (found = token.exec(text)) !== null; ) {
    const [, quoted, length, mark, bare] = found;
    if (mark === "(" || mark === ",") {
      const above = mark === "(" ? node : node.parent;
      node = makeNode();
      adopt(above, node);
    } else if (mark === ")") node = node.parent;
    else if (length !== undefined) node.length = parseFloat(length);
    else if (quoted !== undefined) node.name = quoted.replaceAll("''", "'");
    else if (bare !== undefined && bare.trim()) node.name = bare.trim();
  }
  return count(root);
}

function writeNewick(root) {
  const plain = /^[^\s()[\]{}:;,'"]+$/;
  const quote = (name) => (plain.test(name) ? name : `'${name.replaceAll("'", "''")}'`);
  const text = new Map();
  for (const node of inOrder(root, true)) {
    const inside = node.children.map((child) => text.get(child)).join(",");
    const label = node.name ? quote(node.name) : "";
    const length = isNaN(node.length) || node === root ? "" : `:${node.length}`;
    text.set(node, (inside ? `(${inside})` : "") + label + length);
    for (const child of node.children) text.delete(child);
  }
  return text.get(root) + ";";
}

function adopt(parent, child) {
  parent.children.push(child);
  child.parent = parent;
}

// All nodes, parents first, or children first; without a recursion that deep trees would end.
function inOrder(root, childrenFirst = false, into = () => true) {
  const found = [];
  const pending = [root];
  while (pending.length) {
    const node = pending.pop();
    found.push(node);
    if (into(node)) for (let i = node.children.length - 1; i >= 0; i--) pending.push(node.children[i]);
  }
  return childrenFirst ? found.reverse() : found;
}

function count(root) {
  for (const node of inOrder(root, true))
    node.n = node.children.length ? node.children.reduce((sum, child) => sum + child.n, 0) : 1;
  return root;
}

const isTip = (node) => node.children.length === 0;
const tipsOf = (root) => inOrder(root).filter(isTip);
const lengthOf = (node) => (isNaN(node.length) ? 0 : node.length);

// A support as a share, 0 to 1: of 95 or 0.95, one of several; NaN for the root and for names.
function supportOf(node, isPercent, column = -1) {
  if (isTip(node) || !node.parent || !node.name) return NaN;
  const text = node.name.split("/").at(column);
  const value = text ? Number(text) : NaN;
  return isPercent ? value / 100 : value;
}

// Whether supports are percentages: one of them is above 1.
function hasPercentages(root, column = -1) {
  return inOrder(root).some((node) => supportOf(node, false, column) > 1);
}

// How many supports a label has: 2 of 91.8/94.
function columnsOf(root) {
  const labels = inOrder(root).filter((node) => !isTip(node) && node.parent && node.name);
  return labels.reduce((most, node) => Math.max(most, node.name.split("/").length), 1);
}

// The tree with its root on the branch above a node, at a share of its length from that node.
function rootAbove(root, node, share = 0.5) {
  if (!node.parent) return root;
  const fresh = makeNode();
  let [above, length, name] = [node.parent, node.length, isTip(node) ? "" : node.name];
  remove(node);
  adopt(fresh, node);
  node.length = length * share;
  let [below, rest] = [fresh, length * (1 - share)];
  while (above) {
    const next = [above.parent, above.length, above.name];
    if (above.parent) remove(above);
    adopt(below, above);
    [above.length, above.name] = [rest, name];
    below = above;
    [above, rest, name] = next;
  }
  if (below.children.length < 2) dissolve(below);
  return count(fresh);
}

function remove(node) {
  node.parent.children.splice(node.parent.children.indexOf(node), 1);
  node.parent = null;
}

// Take out a node of one child or none; two branches in a row become one.
function dissolve(node) {
  const [parent, [child]] = [node.parent, node.children];
  const place = parent.children.indexOf(node);
  if (!child) return parent.children.splice(place, 1);
  parent.children[place] = child;
  child.parent = parent;
  child.length = isNaN(child.length) && isNaN(node.length) ? NaN : lengthOf(child) + lengthOf(node);
  if (!isTip(child) && !child.name) child.name = node.name;
}

// The tree with its root halfway between the two tips that are farthest from each other.
function rootMidway(root) {
  const [far] = farthest(tipsOf(root)[0]);
  const [end, distance, from] = farthest(far);
  let [node, left] = [end, distance / 2];
  for (;;) {
    const next = from.get(node);
    if (next === undefined) return root;
    const branch = node.parent === next ? node : next; // the lower end has the length
    const length = lengthOf(branch);
    if (left <= length) {
      const share = length > 0 ? left / length : 0.5;
      return rootAbove(root, branch, branch === node ? share : 1 - share);
    }
    left -= length;
    node = next;
  }
}

// The tip that is farthest from one, how far, and the way back from everywhere.
function farthest(tip) {
  const [distance, from, pending] = [new Map([[tip, 0]]), new Map(), [tip]];
  let best = tip;
  while (pending.length) {
    const node = pending.pop();
    for (const next of node.parent ? [...node.children, node.parent] : node.children) {
      if (distance.has(next)) continue;
      const length = node.parent === next ? lengthOf(node) : lengthOf(next);
      distance.set(next, distance.get(node) + length);
      from.set(next, node);
      if (isTip(next) && distance.get(next) > distance.get(best)) best = next;
      pending.push(next);
    }
  }
  return [best, distance.get(best), from];
}

// Smaller subtrees first; equals stay in their order.
function ladderise(root) {
  for (const node of inOrder(root)) node.children.sort((a, b) => a.n - b.n);
  return root;
}

// Gives every node that is shown a row (tips one each) and a depth (from the root, 0 to 1).
function layOut(root, isScaled) {
  const shown = inOrder(root, false, (node) => !node.collapsed);
  const hasLengths = isScaled && inOrder(root).some((node) => lengthOf(node) > 0);
  let rows = 0;
  for (const node of shown) {
    node.depth = node.parent && node !== root ? node.parent.depth + (hasLengths ? lengthOf(node) : 1) : 0;
    if (isTip(node)) node.row = rows++ + 0.5;
    else if (node.collapsed) {
      node.row = rows + COLLAPSED_ROWS / 2;
      rows += COLLAPSED_ROWS;
    }
  }
  for (const node of [...shown].reverse()) {
    if (isTip(node)) node.height = 0;
    else if (node.collapsed) node.height = hasLengths ? deepest(node) : 1;
    else {
      node.row = (node.children[0].row + node.children.at(-1).row) / 2;
      node.height = Math.max(...node.children.map((c) => c.height + (hasLengths ? lengthOf(c) : 1)));
    }
  }
  const unit = shown[0].height || 1; // of the length that a depth of 1 stands for
  for (const node of shown) {
    if (!hasLengths) node.depth = unit - node.height;
    node.depth /= unit;
    node.height /= unit;
  }
  fanOut(shown[0], isScaled);
  return { shown, rows, unit: hasLengths ? unit : 0 };
}

// How far below a collapsed node its deepest tip is.
function deepest(clade) {
  const depth = new Map([[clade, 0]]);
  for (const node of inOrder(clade).slice(1)) depth.set(node, depth.get(node.parent) + lengthOf(node));
  return Math.max(...depth.values());
}

// Places for an unrooted drawing: each clade has a wedge as wide as its share of the tips
// (Felsenstein 2004, Inferring Phylogenies, "equal angle").
function fanOut(root, isScaled) {
  [root.x, root.y, root.from, root.to] = [0, 0, 0, 2 * Math.PI];
  for (const node of inOrder(root, false, (n) => !n.collapsed)) {
    let from = node.from;
    for (const child of node.collapsed ? [] : node.children) {
      child.from = from;
      from = child.to = from + ((node.to - node.from) * child.n) / node.n;
      const turn = (child.from + child.to) / 2;
      const length = isScaled ? Math.max(child.depth - node.depth, 0) : 1;
      child.x = node.x + length * Math.cos(turn);
      child.y = node.y + length * Math.sin(turn);
      child.turn = turn;
    }
  }
}

// The largest of 1, 2 and 5 times a power of ten that is no more than this.
function niceLength(longest) {
  const power = 10 ** Math.floor(Math.log10(longest));
  return [5, 2, 1].map((step) => step * power).find((value) => value <= longest * (1 + 1e-9));
}

if (typeof module !== "undefined")
  module.exports = {
    readNewick, writeNewick, inOrder, tipsOf, supportOf, hasPercentages, columnsOf, rootAbove, rootMidway,
    ladderise, layOut, niceLength, lengthOf,
  };
