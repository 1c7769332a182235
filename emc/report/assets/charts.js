"use strict";

// Pictures drawn from the numbers in the page. Text is always set as text, never as markup.

/** An element with attributes and children. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** An element of an SVG. */
function draw(tag, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

/** A number on an axis: 0.002, 500, 20k, 1.5M. */
function inWords(value) {
  const short = (number) => String(Number(number.toPrecision(4)));
  const size = Math.abs(value);
  return size >= 1e6 ? `${short(value / 1e6)}M` : size >= 1e3 ? `${short(value / 1e3)}k` : short(value);
}

/** Round numbers from low to high, about so many. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

/** Numbers that begin with 1, 2 or 5 on an axis of powers; only powers of ten where those are many. */
function logTicks(low, high) {
  const factors = Math.log10(high / low) > 2.5 ? [1] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const factor of factors) found.push(Number((factor * 10 ** power).toPrecision(12)));
  return found.filter((tick) => tick >= low && tick <= high);
}

/** The smallest and the largest number to show, with some room. */
function limits(lines, { log, percent, ceilings = [] }) {
  if (percent) return [-0.03, 1.03];
  const known = lines.flatMap((line) => [...line.median, ...(line.low ?? []), ...(line.high ?? [])]).concat(ceilings.map(([value]) => value));
  const shown = known.filter((value) => value !== null && (!log || value > 0));
  if (!shown.length) return log ? [0.1, 1] : [0, 1];
  let low = shown.reduce((a, b) => Math.min(a, b)), high = shown.reduce((a, b) => Math.max(a, b));
  if (log) return high < 2 * low ? [low / 2, high * 2] : [low / 1.2, high * 1.2]; // hardly any change must not look like one
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** Give a node the colours of a line on light and on dark paper. */
function coloured(node, { colours }) {
  node.style.setProperty("--light", colours[0]);
  node.style.setProperty("--dark", colours[1]);
  return node;
}

/** Curves, drawn in a box as wide as there is room, with a list that reads them off under the pointer. Gives a function that draws again. */
function chartIn(box, plot, grids) {
  let width = 0;
  const redraw = () => width && box.replaceChildren(...chartOf(plot, grids, width));
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== width) {
      width = box.clientWidth;
      redraw();
    }
  }).observe(box);
  return redraw;
}

/** A new box with curves in it. */
function chart(plot, grids) {
  const box = make("div", { class: "chart", role: "img", "aria-label": plot.alt });
  chartIn(box, plot, grids);
  return box;
}

function chartOf(plot, grids, width) {
  const { unit, log, percent, ceilings = [], along = "environment steps", height } = plot;
  const lines = plot.lines.filter((line) => !line.off);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  const steps = plot.lines.flatMap((line) => grids[line.grid]);
  const last = steps.reduce((a, b) => Math.max(a, b), steps.length && steps.at(-1) <= 1 ? 0 : 1), [low, high] = limits(lines, plot);
  const [left, right, top, bottom] = [52, width - 14, 26, height - 42];
  const x = (step) => left + ((right - left) * step) / last;
  const share = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  const y = (value) => bottom - (bottom - top) * Math.min(1, Math.max(0, share(log ? Math.max(value, low) : value)));
  const written = percent ? (value) => `${Number((100 * value).toPrecision(3))}%` : inWords;
  svg.append(draw("text", { class: "unit", x: 2, y: 13 }, unit));
  for (const tick of log ? logTicks(low, high) : ticks(low, high, height / 45)) {
    svg.append(draw("line", { class: "rule", x1: left, x2: right, y1: y(tick), y2: y(tick) }));
    svg.append(draw("text", { class: "tick", x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, written(tick)));
  }
  for (const tick of ticks(0, last, Math.max(2, width / 130))) {
    const anchor = !tick ? "start" : x(tick) > right - 12 ? "end" : "middle"; // nothing sticks out
    svg.append(draw("text", { class: "tick", x: x(tick), y: bottom + 17, "text-anchor": anchor }, inWords(tick)));
  }
  svg.append(draw("text", { class: "unit", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, along));
  svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  for (const [value, name] of ceilings) {
    svg.append(draw("line", { class: "ceiling", x1: left, x2: right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { class: "tick", x: right, y: y(value) + 13, "text-anchor": "end" }, name));
  }
  for (const line of lines) svg.append(...lineOf(line, grids[line.grid], x, y));
  return [svg, ...reader(svg, lines, grids, { x, y, left, right, top, bottom, last, written })];
}

/** A median and the middle half around it; pale where some seeds have ended. */
function lineOf(line, steps, x, y) {
  const known = steps.map((_, i) => i).filter((i) => line.median[i] !== null);
  const path = (indices, values) => indices.map((i) => `${x(steps[i]).toFixed(1)},${y(values[i]).toFixed(1)}`);
  const marked = { ...(line.dash ? { "stroke-dasharray": line.dash.join(" ") } : {}), ...(line.of === undefined ? {} : { "data-line": line.of }) };
  const found = [];
  if (line.low) {
    const around = [...path(known, line.high), ...path([...known].reverse(), line.low)];
    found.push(coloured(draw("polygon", { ...marked, class: "band", points: around.join(" ") }), line));
  }
  const whole = known.filter((i) => !line.fewer?.[i]);
  if (whole.length < known.length) found.push(coloured(draw("polyline", { ...marked, class: "line pale", points: path(known, line.median).join(" ") }), line));
  if (known.length === 1) found.push(coloured(draw("circle", { ...marked, class: "dot", cx: x(steps[known[0]]), cy: y(line.median[known[0]]), r: 3 }), line));
  found.push(coloured(draw("polyline", { ...marked, class: "line", points: path(whole, line.median).join(" ") }), line));
  return found;
}

/** What the curves are at the step under the pointer, the best first. */
function reader(svg, lines, grids, { x, y, left, right, top, bottom, last, written }) {
  const mark = draw("line", { class: "mark", y1: top, y2: bottom, visibility: "hidden" });
  svg.append(mark);
  const tip = make("div", { class: "tip", hidden: "" });
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const step = (((event.clientX - frame.left) * (svg.viewBox.baseVal.width / frame.width) - left) / (right - left)) * last;
    const nearest = (steps) => steps.reduce((best, other, i) => (Math.abs(other - step) < Math.abs(steps[best] - step) ? i : best), 0);
    const reached = (steps) => steps.at(-1) >= step - last / 20; // beyond its end a line says nothing
    const going = lines.filter((line) => reached(grids[line.grid]));
    const values = going.map((line) => ({ line, at: nearest(grids[line.grid]) })).filter(({ line, at }) => line.median[at] !== null);
    if (!values.length) return;
    const here = grids[values[0].line.grid][values[0].at];
    values.sort((a, b) => b.line.median[b.at] - a.line.median[a.at]);
    const told = values.slice(0, 14).map(({ line, at }) => {
      const name = line.name ? [sample(line), make("span", {}, line.name)] : [];
      return make("div", {}, ...name, make("b", {}, written(line.median[at])));
    });
    tip.replaceChildren(make("div", { class: "at" }, inWords(here)), ...told);
    tip.hidden = false;
    const beyond = x(here) > (left + right) / 2;
    tip.style.left = beyond ? "auto" : `${x(here) + 12}px`;
    tip.style.right = beyond ? `${svg.viewBox.baseVal.width - x(here) + 12}px` : "auto";
    for (const end of ["x1", "x2"]) mark.setAttribute(end, x(here));
    mark.setAttribute("visibility", "visible");
  });
  svg.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    tip.hidden = true;
  });
  return [tip];
}

/** A short piece of a line, for a legend. */
function sample(line) {
  const svg = draw("svg", { class: "sample", viewBox: "0 0 30 8", "aria-hidden": "true" });
  svg.append(coloured(draw("line", { class: "line", x1: 1, x2: 29, y1: 4, y2: 4, ...(line.dash ? { "stroke-dasharray": line.dash.join(" ") } : {}) }), line));
  return svg;
}

/** Charts with one legend: it shows which line is which, brings one forward under the pointer, and switches lines off and on. */
function curvesIn(figure, { legend, grids, panels }) {
  const boxes = [...figure.querySelectorAll("[data-plot]")];
  const wide = boxes.length < 3;
  const look = (line) => Object.assign(line, { name: legend[line.of].name, colours: legend[line.of].colours, dash: legend[line.of].dash });
  for (const panel of panels) [...panel.lines, ...(panel.raw ?? [])].forEach(look);
  const plots = panels.map((panel) => ({ ...panel, height: wide ? 360 : 290 }));
  const redraws = boxes.map((box, i) => chartIn(box, plots[i], grids));
  const show = (raw) => {
    plots.forEach((plot, i) => {
      plot.lines = raw ? panels[i].raw : panels[i].lines;
      for (const line of plot.lines) line.off = legend[line.of].off;
    });
    redraws.forEach((redraw) => redraw());
  };
  const smooth = figure.querySelector(".switch input");
  smooth?.addEventListener("change", () => show(smooth.checked));
  const bringForward = (place) => {
    for (const node of figure.querySelectorAll("[data-line]")) node.classList.toggle("behind", place !== null && node.dataset.line !== String(place));
  };
  figure.querySelector(".legend").replaceChildren(
    ...legend.map((entry, place) => {
      const button = make("button", { type: "button", "aria-pressed": String(!entry.off) }, sample(entry), entry.name);
      button.addEventListener("click", () => {
        entry.off = !entry.off;
        button.setAttribute("aria-pressed", String(!entry.off));
        show(smooth?.checked);
      });
      button.addEventListener("pointerenter", () => bringForward(entry.off ? null : place));
      button.addEventListener("pointerleave", () => bringForward(null));
      return button;
    }),
  );
  show(false);
}

// Heat maps.

const YELLOW_BLUE = ["ffffd9", "edf8b1", "c7e9b4", "7fcdbb", "41b6c4", "1d91c0", "225ea8", "253494", "081d58"]; // ColorBrewer's YlGnBu
const YELLOW_RED = ["ffffcc", "ffeda0", "fed976", "feb24c", "fd8d3c", "fc4e2a", "e31a1c", "bd0026", "800026"]; // and YlOrRd

/** Red, green and blue at a place from 0 to 1 in a scale of colours. */
function colourAt(scale, place) {
  const spot = Math.min(1, Math.max(0, place)) * (scale.length - 1), below = Math.min(Math.floor(spot), scale.length - 2);
  const parts = (hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [from, to] = [parts(scale[below]), parts(scale[below + 1])];
  return from.map((part, i) => Math.round(part + (to[i] - part) * (spot - below)));
}

/** Cells as one picture, a pixel each; blank where there is no number. */
function cellsOf(rows, place, scale) {
  const canvas = make("canvas", { width: rows[0].length, height: rows.length });
  const pen = canvas.getContext("2d"), image = pen.createImageData(rows[0].length, rows.length);
  rows.flat().forEach((value, i) => image.data.set(value === null ? [255, 255, 255, 255] : [...colourAt(scale, place(value)), 255], 4 * i));
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** A map under its outlines, and the scale of its colours. */
function heatMap(rows, { low, high, power, scale, alt }, { image, view }) {
  const [left, right, top, bottom] = view, width = right - left, height = bottom - top;
  const cells = cellsOf(rows, (value) => ((value - low) / (high - low)) ** power, scale);
  const percent = (share) => `${100 * share}%`;
  Object.assign(cells.style, {
    left: percent((-0.5 - left) / width),
    top: percent((-0.5 - top) / height),
    width: percent(rows[0].length / width),
    height: percent(rows.length / height),
  });
  const map = make("div", { class: "cells", role: "img", "aria-label": alt }, cells, make("img", { src: image, alt: "" }));
  map.style.aspectRatio = `${width} / ${height}`;
  const along = Array.from({ length: 64 }, (_, i) => i / 63);
  const bar = cellsOf([along], (value) => value, scale);
  const middle = low + (high - low) * 0.5 ** (1 / power);
  const scaleBelow = make("div", { class: "scale", "aria-hidden": "true" }, bar);
  scaleBelow.append(make("div", {}, ...[low, middle, high].map((value) => make("span", {}, inWords(Number(value.toPrecision(2)))))));
  return make("div", { class: "map" }, map, scaleBelow);
}

/** The smallest and the largest number of some maps; some others if there are no two. */
function extremes(maps) {
  const known = maps.flat(2).filter((value) => value !== null);
  if (!known.length) return [0, 1];
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  return low < high ? [low, high] : [Math.min(low, 0), high || 1];
}
