// What is drawn: the card as a bar, the map; and how elements are made. Pure functions of the service's JSON.

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
