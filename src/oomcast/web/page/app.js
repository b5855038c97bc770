// The page: controls make settings, settings are asked for, answers are shown.
// What moves with a slider comes from a sweep (interpolated, and said so); a capture of the very setting confirms it.

import { bytes, element, gauge, mapTable, ordered, sweepChart } from "/page/charts.js";

const RANKS = [0, 4, 8, 16, 32, 64, 128, 256];
const COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SNAPSHOT = /\.(pickle|pkl|gz)$/;
const WAIT = 20;
const at = (id) => document.getElementById(id);

let settings = { job: "zoo:resnet50", batch_size: 32, device: "rtx-3090" };
let files = {};
let read = null; // what the files say, once they were read: the workload of their answer
let facts = { options: [], labels: {}, stops: {} };
let zoo = new Map();
let kept = null;
let shown = null; // the answer on screen, with `origin`
let linking = 0;
const sweeps = new Map();

// Asking

async function post(path, body) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** The answer's text, however long it takes; `told` hears of the place in the queue. */
async function ask(kind, body, told = () => {}) {
  for (;;) {
    const response = await post(`/${kind}?wait=${WAIT}`, body);
    const id = response.headers.get("x-oomcast-question");
    if (response.status === 202) {
      const waiting = await response.json();
      told(waiting.state === "waiting" ? `waiting, place ${waiting.place}` : "being captured");
    } else if (response.ok) {
      return { id, text: await response.text() };
    } else {
      const { error } = await response.json();
      if (response.status !== 503) throw new Error(error);
      told(error);
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

function question(changes = {}) {
  const asked = { ...settings, ...changes };
  for (const [name, value] of Object.entries(asked)) if (value === null || value === "" || value === undefined) delete asked[name];
  return hasFiles() ? { ...asked, files } : asked;
}

// What the job is

function entry() { return zoo.get(settings.job.replace(/^zoo:/, "")); }

function sizeParameter() {
  const known = entry();
  if (known) return typeof known.default_input === "number" ? "seq-len" : known.default_input.length > 2 ? "input-size" : null;
  if (/^(timm|torchvision):/.test(settings.job)) return "input-size";
  return "seq-len";
}

const hasFiles = () => Object.keys(files).length > 0;

/** What a control shows: what was chosen, else what the files say. */
const now = (name) => settings[name] ?? read?.[name] ?? null;
const batchNow = () => now("batch_size");

function sizeNow() {
  if (sizeParameter() === "seq-len") return now("seq_len") ?? (typeof entry()?.default_input === "number" ? entry().default_input : null);
  if (sizeParameter() === "input-size") return settings.input_shape?.[1] ?? entry()?.default_input?.[1] ?? 224;
  return null;
}

function withSize(size) {
  if (sizeParameter() === "seq-len") return { seq_len: size };
  const shape = settings.input_shape ?? entry()?.default_input ?? [3, 224, 224];
  return { input_shape: [shape[0], ...shape.slice(1).map(() => size)] };
}

function machines() {
  const found = /^(\d+)x(.+)$/.exec(settings.device);
  return found ? { count: Number(found[1]), gpu: found[2] } : { count: 1, gpu: settings.device };
}

const isTuned = () => /^hf:/.test(settings.job) || hasFiles();

// Controls

function fillControls() {
  const { count, gpu } = machines();
  at("job").value = settings.job;
  at("batch").value = batchNow() ?? "";
  if (!at("gpu").querySelector(`option[value="${CSS.escape(gpu)}"]`)) at("gpu").append(element("option", { value: gpu }, gpu));
  at("gpu").value = gpu;
  at("count").value = count;
  setRange("count", COUNTS, count);
  at("parallel").value = now("parallel") ?? (count > 1 ? "ddp" : "");
  at("parallel").disabled = count === 1;
  at("precision").value = now("precision") ?? "fp32";
  at("optimizer").value = now("optimizer") ?? "";
  at("checkpointing").checked = Boolean(now("checkpointing"));
  const parameter = sizeParameter(), size = sizeNow();
  at("size-field").hidden = parameter === null;
  at("size-label").textContent = parameter === "input-size" ? "Image size" : "Sequence length";
  at("map-size").textContent = parameter === "input-size" ? "image size" : "sequence length";
  at("size").value = size ?? "";
  setRange("batch", facts.stops["batch-size"], batchNow() ?? 1);
  if (parameter) setRange("size", facts.stops[parameter], size ?? 512);
  const tuned = isTuned();
  at("rank").disabled = !tuned;
  const rank = now("adapter")?.r ?? 0;
  at("rank").value = RANKS.findIndex((one) => one >= rank);
  at("rank-value").textContent = rank || "off";
  at("rank").setAttribute("aria-valuetext", rank ? `rank ${rank}` : "off");
  fillExtra();
  clearTimeout(linking);
  // Not with each move of a slider: browsers are slow at it, and count how often it is done.
  linking = setTimeout(() => history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(settings))}`), 200);
}

function setRange(name, stops, value) {
  const range = at(`${name}-range`);
  range.max = stops.length - 1;
  range.min = 0;
  let nearest = stops.findIndex((stop) => stop >= value);
  if (nearest < 0) nearest = stops.length - 1;
  range.value = nearest;
  range.setAttribute("aria-valuetext", String(value ?? ""));
}

const CONTROLLED = ["job", "configs", "batch_size", "device", "seq_len", "input_shape", "precision", "optimizer", "checkpointing", "adapter", "parallel"];

/** Options that no control shows: from a remedy or a link. Each can be taken back. */
function fillExtra() {
  const others = Object.entries(settings).filter(([name, value]) => !CONTROLLED.includes(name) && value !== null);
  if (Array.isArray(settings.checkpointing)) others.push(["checkpointing", settings.checkpointing]);
  at("extra").hidden = others.length === 0;
  at("extra").replaceChildren(...others.map(([name, value]) => {
    const button = element("button", { type: "button", class: "chip", "aria-label": `Take back ${name}` }, `${name.replaceAll("_", " ")}: ${Array.isArray(value) ? value.join(", ") : value} ×`);
    button.addEventListener("click", () => change({ [name]: null }));
    return button;
  }));
}

function change(changes) {
  settings = { ...settings, ...changes };
  for (const [name, value] of Object.entries(settings)) if (value === null || value === undefined || value === "") delete settings[name];
  fillControls();
  refresh();
}

function listen() {
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  at("job").addEventListener("change", () => {
    const job = at("job").value.trim();
    if (!job) return;
    if (!(job in files)) { files = {}; at("file-list").textContent = ""; }
    read = null;
    const model = zoo.get(job.replace(/^zoo:/, ""));
    change({ job, model: null, configs: null, batch_size: model?.default_batch_size ?? settings.batch_size ?? 1, seq_len: model ? null : job.startsWith("hf:") ? settings.seq_len ?? 512 : null, input_shape: null, adapter: null });
  });
  const number = (id, apply) => at(id).addEventListener("change", () => { if (at(id).value && at(id).checkValidity()) apply(Number(at(id).value)); });
  number("batch", (value) => change({ batch_size: value }));
  number("size", (value) => change(withSize(value)));
  const spread = (count) => change({ device: count > 1 ? `${count}x${machines().gpu}` : machines().gpu, parallel: count > 1 ? settings.parallel ?? "ddp" : null });
  number("count", spread);
  at("count-range").addEventListener("input", () => spread(COUNTS[at("count-range").value]));
  at("batch-range").addEventListener("input", () => change({ batch_size: facts.stops["batch-size"][at("batch-range").value] }));
  at("size-range").addEventListener("input", () => change(withSize(facts.stops[sizeParameter()][at("size-range").value])));
  at("gpu").addEventListener("change", () => change({ device: machines().count > 1 ? `${machines().count}x${at("gpu").value}` : at("gpu").value }));
  at("parallel").addEventListener("change", () => change({ parallel: at("parallel").value.trim() || "ddp" }));
  at("precision").addEventListener("change", () => change({ precision: at("precision").value === "fp32" && !hasFiles() ? null : at("precision").value }));
  at("optimizer").addEventListener("change", () => change({ optimizer: at("optimizer").value || null }));
  at("checkpointing").addEventListener("change", () => change({ checkpointing: at("checkpointing").checked || (hasFiles() ? false : null) }));
  at("rank").addEventListener("input", () => {
    const rank = RANKS[at("rank").value];
    change({ adapter: rank ? { kind: "lora", r: rank, target_modules: "all-linear" } : null });
  });
  at("files").addEventListener("change", () => takeFiles([...at("files").files]));
  document.addEventListener("dragover", (event) => event.preventDefault());
  at("snapshot").addEventListener("change", () => takeFiles([...at("snapshot").files]));
  document.addEventListener("drop", (event) => { event.preventDefault(); takeFiles([...event.dataTransfer.files]); });
  document.addEventListener("paste", (event) => {
    const pasted = event.clipboardData.getData("text").trim();
    if (event.target.matches("input[type=number]") || !/[\n{]/.test(pasted)) return;
    event.preventDefault();
    takeFiles([new File([pasted], pasted.startsWith("{") ? "config.json" : "config.yml")]);
  });
  at("keep").addEventListener("click", () => { kept = shown && { found: shown, words: at("command").textContent }; compare(); });
  at("copy").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); at("copied").textContent = "copied"; }
    catch { at("copied").textContent = "the address line holds it"; }
  });
  for (const button of document.querySelectorAll("[data-ask]")) button.addEventListener("click", () => askMore(button.dataset.ask));
  addEventListener("hashchange", () => { if (readLink()) { fillControls(); refresh(); } });
}

async function takeFiles(dropped) {
  if (!dropped.length) return;
  const recording = dropped.find((file) => SNAPSHOT.test(file.name));
  if (recording) { await compareWith(recording); return; }
  const texts = {};
  for (const file of dropped) {
    if (file.size > 200_000) { at("file-list").textContent = `${file.name} is too large for a configuration.`; return; }
    texts[file.name] = await file.text();
  }
  const model = settings.job.startsWith("hf:") ? settings.job : settings.model;
  files = { ...files, ...texts };
  read = null;
  at("file-list").textContent = `read: ${Object.keys(files).join(", ")} (links do not hold files)`;
  const models = Object.keys(files).filter((name) => describesModel(files[name])), [first, ...others] = Object.keys(files).filter((name) => !models.includes(name));
  if (first) {
    // The files say how it is trained; what they leave out is asked for.
    settings = { job: first, configs: others.length ? others : null, model: models[0] ?? model ?? null, device: settings.device };
    change({});
  } else change({ job: models.at(-1), model: null, configs: null, input_shape: null, adapter: null, batch_size: settings.batch_size ?? 1, seq_len: settings.seq_len ?? 512 });
}

/** Whether it is the config.json of a model, and not of a training. */
function describesModel(text) {
  try { const told = JSON.parse(text); return Boolean(told.model_type ?? told.architectures); } catch { return false; }
}

/** The prediction for these settings against what a GPU did. */
async function compareWith(file) {
  const note = document.querySelector('[data-note="real"]');
  note.textContent = `reading ${file.name} …`;
  at("real-head").scrollIntoView();
  try {
    const { text } = await ask("compare", { ...question(), snapshot: await packed(file) }, (how) => { note.textContent = how; });
    note.textContent = "";
    at("real").replaceChildren(...differences(JSON.parse(text)));
  } catch (error) {
    note.textContent = error.message;
  }
}

/** A file's bytes for JSON: recordings pack to a twentieth. */
async function packed(file) {
  const stream = file.name.endsWith(".gz") ? file.stream() : file.stream().pipeThrough(new CompressionStream("gzip"));
  const bytesOfIt = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (let start = 0; start < bytesOfIt.length; start += 32768) text += String.fromCharCode(...bytesOfIt.subarray(start, start + 32768));
  return btoa(text);
}

function differences(found) {
  const parts = [["At the peak", found.totals], ["Category", found.categories], ["Blocks by size", found.sizes], ["Line", found.lines]];
  const tables = parts.filter(([, rows]) => rows.length).map(([title, rows]) => table([title, "Predicted", "Real", "Difference"],
    rows.slice(0, 12).map((row) => [facts.labels[row.name] ?? row.name, bytes(row.before), bytes(row.after), signed(row.change)])));
  return [element("p", {}, element("b", {}, found.sentence), " Before is the prediction, after the real run."), ...tables];
}

// Showing

const signed = (count) => `${count > 0 ? "+" : count < 0 ? "−" : ""}${bytes(Math.abs(count))}`;

/** The first cell of a row is its name, the others are numbers. */
function table(heads, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": heads[0] }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((name, place) => element("th", { scope: "col", class: place ? "num" : null }, name)))),
    element("tbody", {}, ...rows.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", { class: "num" }, cell)))))));
}

let generation = 0, asking = false, drawing = 0;

function refresh() {
  generation += 1;
  fromSweeps();
  // The answer comes first; what stands further down follows with the next frame.
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(() => {
    words();
    drawCharts();
    compare();
    for (const note of document.querySelectorAll("[data-note]")) if (at(note.dataset.note).childElementCount) note.textContent = "of earlier settings; ask again";
  });
  if (!asking) confirm();
}

/** At once, from what is known around the setting. */
function fromSweeps() {
  for (const [parameter, value] of [["batch-size", batchNow()], [sizeParameter(), sizeNow()]]) {
    const swept = parameter && sweeps.get(keyOf(parameter));
    const point = swept?.points && between(swept.points, value);
    if (point) { show({ ...point, device: swept.device, device_usable: swept.device_usable }, "interpolated"); return; }
  }
  state("being captured …", "waiting");
}

function between(points, value) {
  const after = points.findIndex((point) => point.value >= value);
  if (after < 0 || value < points[0].value) return null;
  if (points[after].value === value) return points[after];
  const [a, b] = [points[after - 1], points[after]], share = (value - a.value) / (b.value - a.value);
  const mix = (x, y) => Math.round(x + (y - x) * share);
  const numbers = ["device_total", "low", "high", "will_not_exceed", "least_capacity", "peak_allocated", "peak_reserved"];
  return { ...b, ...Object.fromEntries(numbers.map((name) => [name, mix(a[name], b[name])])),
    breakdown: Object.fromEntries(Object.keys(b.breakdown).map((part) => [part, mix(a.breakdown[part] ?? 0, b.breakdown[part])])) };
}

/** One capture at a time, always of the newest setting. */
async function confirm() {
  asking = true;
  for (let mine = -1; mine !== generation;) {
    mine = generation;
    await new Promise((done) => setTimeout(done, 150));
    if (mine !== generation) continue;
    const began = performance.now();
    try {
      const { id, text } = await ask("estimate", question(), (how) => mine === generation && state(how, "waiting"));
      if (mine !== generation) continue;
      const found = JSON.parse(text);
      if (hasFiles()) { read = found.workload; fillControls(); }
      show({ ...found, id }, "captured");
      document.body.dataset.captureMs = (performance.now() - began).toFixed(1);
      await sweepAround(mine);
    } catch (error) {
      if (mine === generation) { refused(error.message); }
    }
  }
  asking = false;
}

function keyOf(parameter) {
  const { batch_size, seq_len, input_shape, ...rest } = question();
  return JSON.stringify([parameter, parameter === "batch-size" ? { ...rest, seq_len, input_shape } : { ...rest, batch_size }]);
}

async function sweepAround(mine) {
  for (const parameter of ["batch-size", sizeParameter()]) {
    if (!parameter || mine !== generation || sweeps.has(keyOf(parameter))) continue;
    const key = keyOf(parameter);
    try {
      const { text } = await ask("sweep", { ...question(), parameter });
      sweeps.set(key, JSON.parse(text));
    } catch (error) {
      sweeps.set(key, { refusal: error.message });
    }
    drawCharts();
  }
}

function show(found, origin) {
  shown = { ...found, origin };
  const percent = found.p_oom < 0.001 ? "below 0.1 %" : found.p_oom > 0.999 ? "above 99.9 %" : `${(100 * found.p_oom).toFixed(1)} %`;
  at("badge").textContent = found.verdict.toUpperCase();
  at("badge").className = `badge ${found.verdict}`;
  const room = found.device_usable - found.device_total;
  at("sentence").textContent = `${bytes(found.device_total)} of ${bytes(found.device_usable)} usable on ${found.device}, ${room >= 0 ? `${bytes(room)} free` : `${bytes(-room)} too much`}`;
  state(origin === "captured" ? "captured: the same as oomcast estimate" : "≈ interpolated between captures; being confirmed …", origin);
  at("gauge").replaceChildren(gauge(found));
  at("figures").replaceChildren(figures(found, percent));
  at("json").hidden = origin !== "captured";
  at("download").hidden = at("report").dataset.settings !== JSON.stringify(settings);
  if (origin === "captured") compare();
  if (found.id) at("json").href = `/answers/${found.id}`;
}

function figures(found, percent) {
  const parts = ordered(found.breakdown).filter(([, count]) => count > 0).map(([part, count]) =>
    element("tr", {}, element("td", {}, element("span", { class: `key part-${part}` }, element("span", { class: "swatch" }), facts.labels[part] ?? part)), element("td", { class: "num" }, bytes(count))));
  const told = [["95 % interval".replace("95", String(100 * (found.coverage ?? 0.95))), `${bytes(found.low)} to ${bytes(found.high)}`], ["will not exceed", bytes(found.will_not_exceed)],
    ["P(OOM)", percent], ["runs from", bytes(found.least_capacity)], ["allocated", bytes(found.peak_allocated)], ["reserved", bytes(found.peak_reserved)]];
  const notes = [...Object.keys(found.unsupported ?? {}).map((name) => `not modelled: ${name}`), ...(found.assumptions ?? [])];
  const shownNotes = notes.length ? [element("details", {}, element("summary", {}, `${notes.length} ${notes.length === 1 ? "assumption" : "assumptions"}`), element("ul", {}, ...notes.map((note) => element("li", {}, note))))] : [];
  return element("div", { class: "columns" },
    element("table", { class: "breakdown" }, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "At the peak"), element("th", { scope: "col", class: "num" }, "Memory"))), element("tbody", {}, ...parts)),
    element("div", {}, element("dl", { class: "figures" }, ...told.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])), ...shownNotes));
}

function state(text, kind) {
  at("state").textContent = text;
  at("state").dataset.kind = kind;
}

function refused(sentence) {
  shown = null;
  at("badge").textContent = "NO ANSWER";
  at("badge").className = "badge";
  at("sentence").textContent = sentence;
  at("gauge").replaceChildren();
  at("figures").replaceChildren();
  state("", "refused");
}

function drawCharts() {
  for (const [place, parameter, value] of [["batch-chart", "batch-size", batchNow()], ["size-chart", sizeParameter(), sizeNow()]]) {
    const swept = parameter && sweeps.get(keyOf(parameter));
    const title = parameter === "batch-size" ? "Memory over the batch size" : parameter === "input-size" ? "Memory over the image size" : "Memory over the sequence length";
    if (!parameter) at(place).replaceChildren();
    else if (swept?.points) at(place).replaceChildren(element("figcaption", {}, `${title}: dots are captures, between them interpolated`), sweepChart(swept, value, title));
    else at(place).replaceChildren(element("figcaption", {}, swept?.refusal ?? `${title}: comes once the first capture is there`));
  }
}

function compare() {
  if (!kept || !shown) { at("comparison").replaceChildren(); return; }
  const scale = Math.max(kept.found.device_usable, kept.found.high, shown.device_usable, shown.high);
  const rows = ["device_total", "peak_allocated", "peak_reserved", "least_capacity"].map((name) =>
    [name.replaceAll("_", " "), bytes(kept.found[name]), bytes(shown[name]), signed(shown[name] - kept.found[name])]);
  at("comparison").replaceChildren(
    element("p", {}, element("b", {}, "A "), element("code", {}, kept.words)), gauge(kept.found, scale), element("p", {}, element("b", {}, "Now")), gauge(shown, scale),
    table(["Memory", "A", "Now", "Difference"], rows));
}

async function words() {
  const mine = generation;
  try {
    const response = await post("/words", question());
    if (mine !== generation || !response.ok) return;
    const told = await response.json();
    at("command").textContent = told.command;
    at("python").textContent = told.python;
  } catch { /* the service is away; the next change asks again */ }
}

// What is asked for by a button

async function askMore(kind) {
  const note = document.querySelector(`[data-note="${kind}"]`), mine = generation;
  note.textContent = "asked …";
  const body = { ...question(), ...(kind === "map" ? { parameter: sizeParameter() ?? "seq-len" } : {}) };
  try {
    const { id, text } = await ask(kind, body, (how) => { note.textContent = how; });
    note.textContent = mine === generation ? "" : "of earlier settings; ask again";
    MORE[kind](text, id);
  } catch (error) {
    note.textContent = error.message;
  }
}

const MORE = {
  map(text) {
    const choose = (batch, size) => change({ batch_size: batch, ...withSize(size) });
    at("map").replaceChildren(mapTable(JSON.parse(text), choose, { batch: batchNow(), size: sizeNow() }));
  },
  gpus(text) {
    const found = JSON.parse(text);
    const price = (gpu) => gpu.price ? `${gpu.price.per_hour.toFixed(2)} ${gpu.price.currency}/h` : "–";
    const rows = found.gpus.map((gpu) => {
      const button = element("button", { type: "button", class: "plain" }, gpu.gpu);
      button.addEventListener("click", () => change({ device: gpu.gpu, parallel: null }));
      const tags = [found.smallest === gpu.gpu && "smallest", found.cheapest === gpu.gpu && "cheapest"].filter(Boolean).join(", ");
      return element("tr", { class: gpu.enough ? "enough" : "small" }, element("td", {}, button), element("td", { class: gpu.enough ? "fits" : "oom" }, gpu.enough ? `enough${tags ? `: ${tags}` : ""}` : "too small"),
        element("td", { class: "num" }, bytes(gpu.usable_memory)), element("td", { class: "num" }, bytes(gpu.device_total)), element("td", { class: "num" }, price(gpu)));
    });
    at("gpus").replaceChildren(element("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "GPUs" }, element("table", {},
      element("thead", {}, element("tr", {}, ...["GPU", "Verdict", "Usable", "Would hold", "List price"].map((name) => element("th", { scope: "col" }, name)))), element("tbody", {}, ...rows))));
  },
  advise(text) {
    const found = JSON.parse(text);
    const items = found.single.map((one) => {
      const remedy = one.remedies[0];
      const button = element("button", { type: "button", "aria-pressed": "false" }, "Apply");
      const before = Object.fromEntries(Object.keys(remedy.options).map((name) => [name, settings[name] ?? null]));
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        button.textContent = on ? "Applied" : "Apply";
        change(on ? remedy.options : before);
      });
      return element("li", {}, element("div", {}, element("b", {}, remedy.title), element("span", { class: one.saving > 0 ? "fits" : "" }, ` saves ${bytes(one.saving)}`), one.reaches ? " and is enough" : "",
        element("p", { class: "hint" }, `${remedy.cost}. ${remedy.flag}`)), remedy.by_formula ? "" : button);
    });
    at("advise").replaceChildren(element("p", {}, found.reached ? "It fits as it is; these would save memory." : found.reachable ? "These make it fit, alone or together." : "None of these is enough, even three together."), element("ul", { class: "remedies" }, ...items));
  },
  report(text, id) {
    const frame = element("iframe", { src: `/answers/${id}`, title: "The step in detail", class: "report" });
    frame.addEventListener("load", () => {
      const inner = frame.contentDocument;
      // As high as what is in it; the document's own height would follow the frame's, and grow for ever.
      const content = inner.querySelector("main");
      new ResizeObserver(() => { frame.style.height = `${Math.ceil(content.getBoundingClientRect().height) + 4}px`; }).observe(content);
    });
    at("report").dataset.settings = JSON.stringify(settings);
    at("report").replaceChildren(frame);
    at("download").hidden = false;
    at("download").href = `/answers/${id}`;
    at("download").setAttribute("download", "oomcast.html");
  },
};

// The beginning

function readLink() {
  try {
    const told = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    if (typeof told.job !== "string" || typeof told.device !== "string") return false;
    if (JSON.stringify(told) === JSON.stringify(settings)) return false;
    settings = { batch_size: 1, ...told };
    return true;
  } catch { return false; }
}

async function start() {
  const [options, models, devices] = await Promise.all(["/options", "/models", "/devices"].map(async (path) => (await fetch(path)).json()));
  facts = options;
  zoo = new Map(models.zoo.map((model) => [model.name, model]));
  at("models").append(...models.zoo.map((model) => element("option", { value: model.job }, model.summary)), ...models.shipped.map((model) => element("option", { value: model.job }, model.family)));
  const makers = Map.groupBy ? Map.groupBy(devices, (gpu) => gpu.maker) : new Map([["GPUs", devices]]);
  for (const [maker, gpus] of makers) {
    at("gpu").append(element("optgroup", { label: maker }, ...gpus.sort((a, b) => a.usable_memory - b.usable_memory).map((gpu) => element("option", { value: gpu.name }, `${gpu.name} (${bytes(gpu.usable_memory)})`))));
  }
  const choices = (name) => facts.options.find((option) => option.name === name).schema.enum;
  at("precision").append(...choices("precision").map((name) => element("option", { value: name }, name)));
  at("optimizer").append(element("option", { value: "" }, "the job's own, else adamw"), ...choices("optimizer").filter((name) => !/-(fused|foreach|forloop)$/.test(name)).map((name) => element("option", { value: name }, name)));
  readLink();
  listen();
  fillControls();
  refresh();
}

start();
