// Memory over a slider: what a sweep says of one value, and the sweep as a drawing. Pure functions of the service's JSON.

import { bytes } from "/page/charts.js";

const NS = "http://www.w3.org/2000/svg";

export const TITLES = {
  "batch-size": "Memory over the batch size",
  "seq-len": "Memory over the sequence length",
  "input-size": "Memory over the image size",
  "lora-rank": "Memory over the LoRA rank",
  gpus: "Memory of one GPU over the number of GPUs",
};

/** What a sweep says of a value: its own point, or one between two of them, where anything can be said in between. */
export function between({ points, likeness }, value) {
  const after = points.findIndex((point) => point.value >= value);
  if (after < 0 || value < points[0].value) return null;
  if (points[after].value === value) return points[after];
  if (likeness === null) return null;
  const [a, b] = [points[after - 1], points[after]], share = (value - a.value) / (b.value - a.value);
  const mix = (x, y) => Math.round(x + (y - x) * share);
  const numbers = ["device_total", "low", "high", "will_not_exceed", "least_capacity", "peak_allocated", "peak_reserved"];
  return { ...b, captured: false, ...Object.fromEntries(numbers.map((name) => [name, mix(a[name], b[name])])),
    breakdown: Object.fromEntries(Object.keys(b.breakdown).map((part) => [part, mix(a.breakdown[part] ?? 0, b.breakdown[part])])) };
}

function svg(tag, attributes, ...parts) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...parts);
  return made;
}

function ticks(top) {
  const rough = top / 4, power = 2 ** Math.floor(Math.log2(rough));
  const step = rough / power > 1.5 ? 2 * power : power;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, n) => n * step);
}

/** Memory over the values of a slider, which are spaced as the slider's stops are. */
export function sweepChart(swept, value, title) {
  const [width, height, left, right, top, bottom] = [460, 230, 62, 12, 14, 30];
  const points = swept.points;
  const most = Math.max(swept.device_usable * 1.12, Math.min(Math.max(...points.map((p) => p.high)), swept.device_usable * 2.2));
  const place = (v) => {
    const after = points.findIndex((p) => p.value >= v);
    if (after <= 0) return after === 0 ? 0 : points.length - 1;
    const [a, b] = [points[after - 1].value, points[after].value];
    return after - 1 + (v - a) / (b - a);
  };
  const x = (v) => left + (width - left - right) * place(v) / Math.max(points.length - 1, 1);
  const y = (count) => height - bottom - (height - top - bottom) * count / most;
  const line = (name) => points.map((p, n) => `${n ? "L" : "M"}${x(p.value).toFixed(1)} ${y(p[name]).toFixed(1)}`).join("");
  const band = `${line("high")}${[...points].reverse().map((p) => `L${x(p.value).toFixed(1)} ${y(p.low).toFixed(1)}`).join("")}Z`;
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${described(swept)}` });
  drawn.append(svg("clipPath", { id: `clip-${swept.parameter}` }, svg("rect", { x: left, y: 2, width: width - left - right, height: height - bottom - 2 })));
  for (const tick of ticks(most)) {
    drawn.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, bytes(tick).replace(".00", "").replace(".0 ", " ")));
  }
  const inside = svg("g", { "clip-path": `url(#clip-${swept.parameter})` });
  inside.append(svg("path", { class: "band", d: band }), svg("path", { class: "curve", d: line("device_total") }));
  for (const point of points.filter((p) => p.captured)) inside.append(svg("circle", { class: "captured", cx: x(point.value), cy: y(point.device_total), r: 4 }));
  drawn.append(inside, svg("line", { class: "usable", x1: left, x2: width - right, y1: y(swept.device_usable), y2: y(swept.device_usable) }));
  if (value >= points[0].value && value <= points.at(-1).value) {
    drawn.append(svg("line", { class: "now", x1: x(value), x2: x(value), y1: top, y2: height - bottom }));
  }
  const every = Math.ceil(points.length / 9);
  points.forEach((p, n) => {
    if (n % every === 0) drawn.append(svg("text", { x: x(p.value), y: height - 10, "text-anchor": "middle" }, String(p.value)));
  });
  return drawn;
}

function described(swept) {
  const fitting = swept.points.filter((p) => p.verdict === "fits").map((p) => p.value);
  return fitting.length ? `fits up to ${Math.max(...fitting)}` : "nothing fits";
}
