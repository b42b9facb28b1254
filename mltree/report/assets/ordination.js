// The plot of principal coordinates: axes, colours, zoom, names under the pointer.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const canvas = byId("plot");
  const COLOURS = data.colours;
  const GREY = "#777777";
  const MARGIN = 46;
  let view = null;  // [left, right, bottom, top] of the coordinates that are seen

  const option = (select, value, text) => {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    select.append(made);
  };
  data.metrics.forEach((metric, i) => option(byId("metric"), i, metric.name));
  option(byId("colour"), "", "none");
  Object.keys(data.columns).forEach((name) => option(byId("colour"), name, name));
  if (data.coloured) byId("colour").value = data.coloured;

  const metric = () => data.metrics[byId("metric").value];
  const axes = () => [Number(byId("across").value), Number(byId("up").value)];

  function fillAxes() {
    const before = [byId("across").value || "0", byId("up").value || "1"];
    ["across", "up"].forEach((id, place) => {
      byId(id).replaceChildren();
      metric().explained.forEach((share, axis) =>
        option(byId(id), axis, `axis ${axis + 1} (${(100 * share).toFixed(1)} %)`));
      byId(id).value = Math.min(Number(before[place]), metric().explained.length - 1);
    });
  }

  // Colours of samples: of a number shades, of words one each, the most frequent first.
  function colouring() {
    const name = byId("colour").value;
    if (!name) return { of: () => GREY, legend: [] };
    const values = data.columns[name];
    const known = values.filter((value) => value !== "");
    const numbers = known.map(Number);
    const kinds = new Map();
    known.forEach((value) => kinds.set(value, (kinds.get(value) || 0) + 1));
    if (known.length && numbers.every(Number.isFinite) && kinds.size > COLOURS.length) {
      const low = Math.min(...numbers), high = Math.max(...numbers);
      const shade = (value) => {
        const t = (value - low) / (high - low || 1);
        return `hsl(${260 - 220 * t} 75% ${35 + 20 * t}%)`;
      };
      const legend = [0, 0.5, 1].map((t) => low + t * (high - low));
      return {
        of: (i) => (values[i] === "" ? GREY : shade(Number(values[i]))),
        legend: legend.map((value) => [value.toPrecision(4), shade(value)]),
      };
    }
    const ordered = [...kinds].sort((a, b) => b[1] - a[1]).map((pair) => pair[0]);
    const colours = new Map(ordered.map((value, i) => [value, COLOURS[i] || GREY]));
    const legend = ordered.slice(0, COLOURS.length).map((value) => [value, colours.get(value)]);
    if (ordered.length > COLOURS.length || known.length < values.length) legend.push(["others", GREY]);
    return { of: (i) => colours.get(values[i]) || GREY, legend };
  }

  function bounds() {
    const [x, y] = axes();
    const points = metric().points;
    const range = (axis) => {
      let low = Infinity, high = -Infinity;
      points.forEach((point) => {
        low = Math.min(low, point[axis]);
        high = Math.max(high, point[axis]);
      });
      const room = 0.05 * (high - low || 1);
      return [low - room, high + room];
    };
    return [...range(x), ...range(y)];
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const ink = getComputedStyle(document.body).color;
    const [left, right, bottom, top] = view;
    const across = (value) => MARGIN + (value - left) / (right - left) * (width - MARGIN - 10);
    const up = (value) => height - MARGIN - (value - bottom) / (top - bottom) * (height - MARGIN - 10);
    pen.strokeStyle = pen.fillStyle = ink;
    pen.globalAlpha = 0.25;
    [[0, null], [null, 0]].forEach(([x, y]) => {
      pen.beginPath();
      pen.moveTo(x === null ? MARGIN : across(x), y === null ? 10 : up(y));
      pen.lineTo(x === null ? width - 10 : across(x), y === null ? height - MARGIN : up(y));
      pen.stroke();
    });
    pen.globalAlpha = 1;
    pen.font = "12px sans-serif";
    pen.fillText(byId("across").selectedOptions[0].textContent, width / 2, height - 12);
    pen.save();
    pen.translate(16, height / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(byId("up").selectedOptions[0].textContent, 0, 0);
    pen.restore();
    const [x, y] = axes();
    const colours = colouring();
    pen.globalAlpha = data.ids.length > 2000 ? 0.5 : 0.8;
    metric().points.forEach((point, i) => {
      pen.fillStyle = colours.of(i);
      pen.beginPath();
      pen.arc(across(point[x]), up(point[y]), data.ids.length > 2000 ? 2.2 : 4, 0, 7);
      pen.fill();
    });
    byId("legend").replaceChildren(...colours.legend.map(([text, colour]) => {
      const item = document.createElement("span"), dot = document.createElement("i");
      dot.style.background = colour;
      item.append(dot, text);
      return item;
    }));
    canvas.place = { across, up };
  }

  function whole() {
    view = bounds();
    draw();
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function towards(event) {
    const [px, py] = at(event);
    const [left, right, bottom, top] = view;
    return [left + (px - MARGIN) / (canvas.clientWidth - MARGIN - 10) * (right - left),
      bottom + (canvas.clientHeight - MARGIN - py) / (canvas.clientHeight - MARGIN - 10) * (top - bottom)];
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x, y] = towards(event), scale = event.deltaY > 0 ? 1.2 : 1 / 1.2;
    view = [x + (view[0] - x) * scale, x + (view[1] - x) * scale,
      y + (view[2] - y) * scale, y + (view[3] - y) * scale];
    draw();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = towards(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const [x, y] = towards(event);
      view = [view[0] + held[0] - x, view[1] + held[0] - x, view[2] + held[1] - y, view[3] + held[1] - y];
      draw();
      return;
    }
    const [px, py] = at(event), [x, y] = axes();
    let nearest = -1, least = 100;
    metric().points.forEach((point, i) => {
      const away = (canvas.place.across(point[x]) - px) ** 2 + (canvas.place.up(point[y]) - py) ** 2;
      if (away < least) [least, nearest] = [away, i];
    });
    const facts = Object.entries(data.columns).map(([name, values]) => `${name}: ${values[nearest]}`);
    byId("read").textContent = nearest < 0 ? "" : [data.ids[nearest], ...facts].join(" · ");
  });
  byId("metric").addEventListener("change", () => { fillAxes(); whole(); });
  ["across", "up"].forEach((id) => byId(id).addEventListener("change", whole));
  byId("colour").addEventListener("change", draw);
  byId("whole").addEventListener("click", whole);
  window.addEventListener("resize", draw);
  fillAxes();
  whole();
})();
