"use strict";
// As much of a browser as the report's scripts need, for running them without one.
class Element {
  constructor(name) {
    Object.assign(this, { name, nodes: [], attributes: {}, dataset: {}, listeners: {}, style: {}, hidden: false });
    Object.assign(this, { clientWidth: 1000, clientHeight: 700, offsetWidth: 180, offsetHeight: 120 });
    this.style.setProperty = () => {};
    const classes = new Set();
    this.classList = { toggle: (kind, isOn) => (isOn ? classes.add(kind) : classes.delete(kind)), contains: (kind) => classes.has(kind) };
  }
  get children() { return this.nodes.filter((node) => node instanceof Element); }
  append(...nodes) { for (const node of nodes) { this.nodes.push(node); if (node instanceof Element) node.parentElement = this; } }
  prepend(...nodes) { this.append(...nodes); }
  add(option) { this.append(option); this.value ??= option.value; }
  after(node) { this.next = node; }
  replaceChildren(...nodes) { this.nodes = nodes; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener(kind, act) { this.listeners[kind] = act; }
  dispatchEvent(event) { this.listeners[event.type]?.(event); }
  setPointerCapture() {}
  getBoundingClientRect() { return { left: 0, top: 0 }; }
  get textContent() { return this.text ?? this.nodes.map((node) => node.textContent ?? node).join(""); }
  set textContent(text) { this.text = text; }
  click() { this.onclick?.(); }
  querySelectorAll(wanted) {
    const own = this.children.filter((node) => (wanted[0] === "." ? node.className?.split(" ").includes(wanted.slice(1)) : node.name === wanted));
    return [...own, ...this.children.flatMap((node) => node.querySelectorAll(wanted))];
  }
  querySelector(wanted) { return this.querySelectorAll(wanted)[0]; }
}
const elements = {};
const document = {
  documentElement: new Element("html"),
  getElementById: (id) => (elements[id] ??= new Element(id)),
  createElement: (name) => new Element(name),
  createElementNS: (_, name) => new Element(name),
  addEventListener() {},
};
class ResizeObserver { constructor(act) { this.act = act; } observe() { this.act(); } }
class Option { constructor(text, value) { return Object.assign(new Element("option"), { textContent: text, value }); } }
class Event { constructor(type, fields = {}) { Object.assign(this, { type, preventDefault() {} }, fields); } }
const [PointerEvent, KeyboardEvent, WheelEvent] = [Event, Event, Event];
