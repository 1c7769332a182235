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
function limits(lines, log, percent, ceiling) {
  if (percent) return [-0.03, 1.03];
  const known = lines.flatMap((line) => [...line.median, ...(line.low ?? []), ...(line.high ?? [])]);
  if (ceiling) known.push(ceiling[0]);
  const shown = known.filter((value) => value !== null && (!log || value > 0));
  if (!shown.length) return log ? [0.1, 1] : [0, 1];
  let low = shown.reduce((a, b) => Math.min(a, b)), high = shown.reduce((a, b) => Math.max(a, b));
  if (log) return high < 2 * low ? [low / 2, high * 2] : [low / 1.2, high * 1.2]; // hardly any change must not look like one
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** Curves over environment steps, drawn as wide as there is room, with a line that reads them off under the pointer. */
function chart(plot, grids) {
  const box = make("div", { class: "chart", role: "img", "aria-label": plot.alt });
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== width) box.replaceChildren(chartOf(plot, grids, (width = box.clientWidth)));
  }).observe(box);
  return box;
}

function chartOf({ unit, log, percent, lines, ceiling, height }, grids, width) {
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  const steps = lines.flatMap((line) => grids[line.grid]);
  const last = steps.reduce((a, b) => Math.max(a, b), 1), [low, high] = limits(lines, log, percent, ceiling);
  const [left, right, top, bottom] = [52, width - 14, 26, height - 30];
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
  svg.append(draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  if (ceiling) {
    svg.append(draw("line", { class: "ceiling", x1: left, x2: right, y1: y(ceiling[0]), y2: y(ceiling[0]) }));
    svg.append(draw("text", { class: "tick", x: right, y: y(ceiling[0]) + 13, "text-anchor": "end" }, ceiling[1]));
  }
  for (const line of lines) svg.append(...lineOf(line, grids[line.grid], x, y));
  svg.append(...reader(svg, lines, grids, { x, left, right, top, bottom, last, written }));
  return svg;
}

/** A median and the middle half around it; pale where some seeds have ended. */
function lineOf(line, steps, x, y) {
  const known = steps.map((_, i) => i).filter((i) => line.median[i] !== null);
  const path = (indices, values) => indices.map((i) => `${x(steps[i]).toFixed(1)},${y(values[i]).toFixed(1)}`);
  const coloured = (node) => {
    node.style.setProperty("--light", line.colours[0]);
    node.style.setProperty("--dark", line.colours[1]);
    return node;
  };
  const found = [];
  if (line.low) {
    const around = [...path(known, line.high), ...path([...known].reverse(), line.low)];
    found.push(coloured(draw("polygon", { class: "band", points: around.join(" ") })));
  }
  const whole = known.filter((i) => !line.fewer?.[i]);
  if (whole.length < known.length) found.push(coloured(draw("polyline", { class: "line pale", points: path(known, line.median).join(" ") })));
  if (known.length === 1) found.push(coloured(draw("circle", { class: "dot", cx: x(steps[known[0]]), cy: y(line.median[known[0]]), r: 3 })));
  found.push(coloured(draw("polyline", { class: "line", points: path(whole, line.median).join(" ") })));
  return found;
}

/** What the curves are at the step under the pointer. */
function reader(svg, lines, grids, { x, left, right, top, bottom, last, written }) {
  const mark = draw("line", { class: "mark", y1: top, y2: bottom, visibility: "hidden" });
  const said = draw("text", { class: "said", x: right, y: 13, "text-anchor": "end" });
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const step = (((event.clientX - frame.left) * (svg.viewBox.baseVal.width / frame.width) - left) / (right - left)) * last;
    const nearest = (steps) => steps.reduce((best, other, i) => (Math.abs(other - step) < Math.abs(steps[best] - step) ? i : best), 0);
    const values = lines.map((line) => ({ name: line.name, at: nearest(grids[line.grid]), line }));
    const here = grids[values[0].line.grid][values[0].at];
    const numbers = values.map(({ name, at, line }) => `${name} ${line.median[at] === null ? "?" : written(line.median[at])}`.trim());
    said.textContent = `${inWords(here)}: ${numbers.join(", ")}`;
    for (const end of ["x1", "x2"]) mark.setAttribute(end, x(here));
    mark.setAttribute("visibility", "visible");
  });
  svg.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    said.textContent = "";
  });
  return [mark, said];
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
