// What answers look like: tables, lists and frames made of the service's JSON. Nothing here asks or remembers anything;
// what a reader chooses is handed to the functions that come along.

import { bytes, element, ordered } from "/page/charts.js";

export const signed = (count) => `${count > 0 ? "+" : count < 0 ? "−" : ""}${bytes(Math.abs(count))}`;
export const percent = (chance) => (chance < 0.001 ? "below 0.1 %" : chance > 0.999 ? "above 99.9 %" : `${(100 * chance).toFixed(1)} %`);

function head(names) {
  return element("thead", {}, element("tr", {}, ...names.map((name, place) => element("th", { scope: "col", class: place ? "num" : null }, name))));
}

/** The first cell of a row is its name, the others are numbers. */
export function table(names, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": names[0] }, element("table", {}, head(names),
    element("tbody", {}, ...rows.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", { class: "num" }, cell)))))));
}

/** Two answers beside each other, A first. */
export function differenceOf(a, b) {
  const rows = ["device_total", "low", "high", "peak_allocated", "peak_reserved", "least_capacity"].map((name) =>
    [name.replaceAll("_", " "), bytes(a[name]), bytes(b[name]), signed(b[name] - a[name])]);
  return table(["Memory", "A", "Now", "Difference"], [["verdict", a.verdict.toUpperCase(), b.verdict.toUpperCase(), ""], ["P(OOM)", percent(a.p_oom), percent(b.p_oom), ""], ...rows]);
}

/** What fills the card at the peak, and the figures beside it. */
export function figures(found, labels) {
  const parts = ordered(found.breakdown).filter(([, count]) => count > 0).map(([part, count]) =>
    element("tr", {}, element("td", {}, element("span", { class: `key part-${part}` }, element("span", { class: "swatch" }), labels[part] ?? part)), element("td", { class: "num" }, bytes(count))));
  const told = [[`${100 * found.coverage} % interval`, `${bytes(found.low)} to ${bytes(found.high)}`], ["will not exceed", bytes(found.will_not_exceed)],
    ["P(OOM)", percent(found.p_oom)], ["runs from", bytes(found.least_capacity)], ["allocated", bytes(found.peak_allocated)], ["reserved", bytes(found.peak_reserved)]];
  const notes = [...Object.keys(found.unsupported ?? {}).map((name) => `not modelled: ${name}`), ...(found.assumptions ?? [])];
  const shownNotes = notes.length ? [element("details", {}, element("summary", {}, `${notes.length} ${notes.length === 1 ? "assumption" : "assumptions"}`), element("ul", {}, ...notes.map((note) => element("li", {}, note))))] : [];
  return element("div", { class: "columns" },
    element("table", { class: "breakdown" }, head(["At the peak", "Memory"]), element("tbody", {}, ...parts)),
    element("div", {}, element("dl", { class: "figures" }, ...told.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])), ...shownNotes));
}

/** GPUs from the smallest to the largest; `choose` gets the name of one. */
export function gpuRanking(found, choose) {
  const price = (gpu) => gpu.price ? `${gpu.price.per_hour.toFixed(2)} ${gpu.price.currency}/h` : "–";
  const named = (name) => {
    const button = element("button", { type: "button", class: "plain" }, name);
    button.addEventListener("click", () => choose(name));
    return button;
  };
  const best = [["smallest", "Smallest that is enough: "], ["cheapest", "Cheapest: "]].filter(([which]) => found[which]).map(([which, words]) => {
    const gpu = found.gpus.find((one) => one.gpu === found[which]);
    return element("li", {}, words, named(gpu.gpu), `, ${bytes(gpu.usable_memory)} usable, the job would hold ${bytes(gpu.device_total)}${gpu.price ? `, list price ${price(gpu)}` : ""}`);
  });
  const rows = found.gpus.map((gpu) => {
    const tags = ["smallest", "cheapest"].filter((which) => found[which] === gpu.gpu).join(", ");
    return element("tr", { class: gpu.enough ? "enough" : "small" }, element("td", {}, named(gpu.gpu)), element("td", { class: gpu.enough ? "fits" : "oom" }, gpu.enough ? `enough${tags ? `: ${tags}` : ""}` : "too small"),
      element("td", { class: "num" }, bytes(gpu.usable_memory)), element("td", { class: "num" }, bytes(gpu.device_total)), element("td", { class: "num" }, percent(gpu.p_oom)), element("td", { class: "num" }, price(gpu)));
  });
  return [element("ul", { class: "best" }, ...(best.length ? best : [element("li", {}, "No GPU of the catalogue is enough.")])),
    element("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "GPUs" }, element("table", {},
      element("thead", {}, element("tr", {}, ...["GPU", "Verdict", "Usable", "Would hold", "P(OOM)", "List price"].map((name) => element("th", { scope: "col" }, name)))), element("tbody", {}, ...rows)))];
}

/** What to change: each a toggle that `toggle` gets, with the options that it stands for. */
export function remedies(found, toggle) {
  const items = [...found.single, ...found.combined].map((one) => {
    const options = Object.assign({}, ...one.remedies.map((remedy) => remedy.options));
    const button = element("button", { type: "button", "aria-pressed": "false", "data-options": JSON.stringify(options) }, "Apply");
    button.addEventListener("click", () => toggle(button, options));
    return element("li", {}, element("div", {}, element("b", {}, one.remedies.map((remedy) => remedy.title).join(" + ")),
      element("span", { class: one.saving > 0 ? "fits" : "" }, ` saves ${bytes(one.saving)}`), one.reaches ? " and is enough" : "",
      ...one.remedies.map((remedy) => element("p", { class: "hint" }, `${remedy.cost}. ${remedy.flag}`))), one.remedies.some((remedy) => remedy.by_formula) ? "" : button);
  });
  const words = found.reached ? "It fits as it is; these would save memory." : found.reachable ? "These make it fit, alone or together." : "None of these is enough, even three together.";
  return [element("p", {}, words), element("ul", { class: "remedies" }, ...items)];
}

/** The page of one answer, as high as what is in it. */
export function reportFrame(id) {
  const frame = element("iframe", { src: `/answers/${id}`, title: "The step in detail", class: "report" });
  frame.addEventListener("load", () => {
    // Its content's height; the document's own would follow the frame's, and grow for ever.
    const content = frame.contentDocument.querySelector("main");
    new ResizeObserver(() => { frame.style.height = `${Math.ceil(content.getBoundingClientRect().height) + 4}px`; }).observe(content);
  });
  return frame;
}
