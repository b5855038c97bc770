// What is drawn: the card as a bar, memory over a slider, the map. Pure functions of the service's JSON.

const NS = "http://www.w3.org/2000/svg";

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit === 0 ? count : count.toFixed(unit < 3 ? 1 : 2)} ${units[unit]}`;
}

export function element(tag, attributes = {}, ...parts) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...parts);
  return made;
}

function svg(tag, attributes, ...parts) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...parts);
  return made;
}

/** The bar of the report's page: segments, interval, capacity. `scale` joins two bars that are compared. */
export function gauge(found, scale = 0) {
  const whole = Math.max(scale, found.device_usable, found.high, found.device_total, 1) * 1.01;
  const share = (count) => `${(100 * count / whole).toFixed(3)}%`;
  const device = element("div", { class: "device" }, element("div", { class: "room", style: `width:${share(found.device_usable)}` }));
  let start = 0;
  for (const [part, count] of ordered(found.breakdown)) {
    if (count <= 0) continue;
    device.append(element("div", { class: `segment part-${part}`, style: `left:${share(start)};width:${share(count)}` }));
    start += count;
  }
  device.append(element("div", { class: "limit", style: `left:${share(found.device_usable)}` }));
  const range = element("div", { class: "range" },
    element("div", { class: "whisker", style: `left:${share(found.low)};width:max(10px, ${share(found.high - found.low)})` }),
    element("div", { class: "middle", style: `left:${share(found.device_total)}` }));
  const words = `${bytes(found.device_total)} of ${bytes(found.device_usable)} usable; interval ${bytes(found.low)} to ${bytes(found.high)}`;
  return element("div", { class: "gauge", role: "img", "aria-label": words }, device, range);
}

export function ordered(breakdown) {
  const first = ["context", "communication"];
  return Object.entries(breakdown).sort(([a], [b]) => first.includes(b) - first.includes(a));
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

/** The map as a table: each cell is a button, so that it can be read and chosen by keyboard. */
export function mapTable(found, choose, now) {
  const sizes = [...new Set(found.cells.map((c) => c.size))], batches = [...new Set(found.cells.map((c) => c.batch_size))];
  const cell = (batch, size) => found.cells.find((c) => c.batch_size === batch && c.size === size);
  const head = element("tr", {}, element("th", { scope: "col" }, "batch"), ...sizes.map((s) => element("th", { scope: "col" }, String(s))));
  const rows = batches.map((batch) => element("tr", {}, element("th", { scope: "row" }, String(batch)), ...sizes.map((size) => {
    const one = cell(batch, size);
    if (!one) return element("td");
    const isNow = batch === now.batch && size === now.size;
    const button = element("button", { type: "button", class: `cell ${one.verdict}`, "aria-current": isNow ? "true" : null,
      title: `${one.captured ? "captured" : "interpolated"}, P(OOM) ${(100 * one.p_oom).toFixed(1)} %` },
    element("b", {}, one.verdict.toUpperCase()), element("span", {}, bytes(one.device_total)));
    button.addEventListener("click", () => choose(batch, size));
    return element("td", {}, button);
  })));
  return element("div", { class: "scroll" }, element("table", { class: "map-table" }, element("caption", {},
    `${found.parameter} across, batch size down, on ${found.device}. Interpolated between captures; choose a cell to go there.`),
  element("thead", {}, head), element("tbody", {}, ...rows)));
}
