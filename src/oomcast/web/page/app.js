// The page: controls make settings, settings are asked for, answers are shown.
// What moves with a slider comes from a sweep (interpolated, and said so); a capture of the very setting confirms it.

import { differenceOf, figures, gpuRanking, remedies, reportFrame } from "/page/answers.js";
import { ask, post } from "/page/asking.js";
import { bytes, element, gauge, mapTable } from "/page/charts.js";
import { TITLES, between, sweepChart } from "/page/curves.js";
import { tellOfRecording } from "/page/recordings.js";

const RANKS = [0, 4, 8, 16, 32, 64, 128, 256];
const COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SNAPSHOT = /\.(pickle|pkl|gz)$/;
const at = (id) => document.getElementById(id);

let settings = { job: "zoo:resnet50", batch_size: 32, device: "rtx-3090" };
let files = {};
let read = null; // what the files say, once they were read: the workload of their answer
let facts = { options: [], labels: {}, stops: {} };
let zoo = new Map();
let kept = null;
let shown = null; // the answer to the settings as they are, with `origin`; null until there is one
const before = new Map(); // what a remedy's settings were before it was applied
let linking = 0;
const sweeps = new Map();

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
  syncRemedies();
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

function syncRemedies() {
  for (const button of document.querySelectorAll("#advise [data-options]")) {
    const on = Object.entries(JSON.parse(button.dataset.options)).every(([name, value]) => JSON.stringify(now(name)) === JSON.stringify(value));
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "Applied" : "Apply";
  }
}

function toggleRemedy(button, options) {
  const names = Object.keys(options);
  if (button.getAttribute("aria-pressed") === "true") {
    const { batch_size, ...others } = Object.fromEntries(names.map((name) => [name, null]));
    change(before.get(button) ?? others);
  } else {
    before.set(button, Object.fromEntries(names.map((name) => [name, settings[name] ?? null])));
    change(options);
  }
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
  at("keep").addEventListener("click", keep);
  at("download").addEventListener("click", download);
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
  if (recording) { at("real-head").scrollIntoView(); await tellOfRecording(recording, question(), facts.labels, document.querySelector('[data-note="real"]'), at("real")); return; }
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

// Showing

let generation = 0, asking = false, sweeping = false, drawing = 0;

/** The numbers that a slider moves, each with its value now, and where its curve is drawn. */
function sliders() {
  const size = sizeParameter(), rank = now("adapter")?.kind === "lora" ? now("adapter").r : null, { count } = machines();
  return [["batch-size", batchNow(), "batch-chart"], size && [size, sizeNow(), "size-chart"], rank && ["lora-rank", rank, "rank-chart"], count > 1 && ["gpus", count, "gpus-chart"]].filter(Boolean);
}

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
  for (const [parameter, value] of sliders()) {
    const swept = sweeps.get(keyOf(parameter));
    const point = swept?.points && between(swept, value);
    if (point) {
      const coverage = settings.coverage ?? 0.95;
      show({ ...point, coverage, device: swept.device, device_usable: swept.device_usable }, point.captured ? "swept" : "interpolated");
      return;
    }
  }
  unknown();
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
      sweepAround();
    } catch (error) {
      if (mine === generation) { refused(error.message); }
    }
  }
  asking = false;
}

/** What a sweep was asked about: everything but the number that it goes over. */
function keyOf(parameter) {
  const { batch_size, seq_len, input_shape, adapter, device, ...rest } = question();
  const own = { "batch-size": "batch_size", "lora-rank": "adapter", gpus: "device" }[parameter] ?? "size";
  const told = { batch_size, size: [seq_len, input_shape], adapter, device, rest };
  told[own] = own === "adapter" ? { ...adapter, r: null } : own === "device" ? machines().gpu : null;
  return JSON.stringify([parameter, told]);
}

/** The curves around a captured setting, one after the other; nothing waits for them. */
async function sweepAround() {
  if (sweeping) return;
  sweeping = true;
  while (shown?.origin === "captured") {
    const [parameter] = sliders().find(([one]) => !sweeps.has(keyOf(one))) ?? [];
    if (!parameter) break;
    const key = keyOf(parameter);
    try {
      const { text } = await ask("sweep", { ...question(), parameter });
      sweeps.set(key, JSON.parse(text));
    } catch (error) {
      sweeps.set(key, { refusal: error.message });
    }
    drawCharts();
  }
  sweeping = false;
}

const ORIGINS = {
  captured: "captured: the same as oomcast estimate",
  swept: "captured before, beside others; being confirmed …",
  interpolated: "≈ interpolated between captures; being confirmed …",
};

function show(found, origin) {
  shown = { ...found, origin };
  const room = found.device_usable - found.device_total;
  headline(found.verdict, `${bytes(found.device_total)} of ${bytes(found.device_usable)} usable on ${found.device}, ${room >= 0 ? `${bytes(room)} free` : `${bytes(-room)} too much`}`, origin === "interpolated");
  state(ORIGINS[origin], origin);
  at("gauge").replaceChildren(gauge(found));
  at("figures").replaceChildren(figures(found, facts.labels));
  at("json").hidden = origin !== "captured";
  if (origin === "captured") compare();
  if (found.id) at("json").href = `/answers/${found.id}`;
}

/** Nothing is known of the settings yet: what stands there is of those before, and says so. */
function unknown() {
  if (shown) at("sentence").textContent = `not known yet; with the settings before: ${at("sentence").textContent}`;
  else if (at("verdict").dataset.of !== "before") at("sentence").textContent = "not known yet";
  shown = null;
  at("badge").textContent = at("peek-badge").textContent = "…";
  at("badge").className = at("peek-badge").className = "badge";
  at("peek-sentence").textContent = "being captured";
  at("verdict").dataset.of = "before";
  at("json").hidden = true;
  at("keep").disabled = true;
  state("being captured …", "waiting");
}

function headline(verdict, sentence, isRough = false) {
  at("verdict").dataset.of = "now";
  at("keep").disabled = shown === null;
  for (const badge of [at("badge"), at("peek-badge")]) {
    badge.textContent = verdict.toUpperCase();
    badge.className = shown ? `badge ${verdict}` : "badge";
  }
  at("sentence").textContent = sentence;
  at("peek-sentence").textContent = `${isRough ? "≈ " : ""}${sentence}`;
}

function state(text, kind) {
  at("state").textContent = text;
  at("state").dataset.kind = kind;
}

function refused(sentence) {
  shown = null;
  headline("NO ANSWER", sentence);
  at("gauge").replaceChildren();
  at("figures").replaceChildren();
  at("json").hidden = true;
  state("", "refused");
}

function drawCharts() {
  const drawn = sliders();
  for (const figure of at("curves").children) if (!drawn.some(([, , place]) => place === figure.id)) figure.replaceChildren();
  for (const [parameter, value, place] of drawn) {
    const swept = sweeps.get(keyOf(parameter)), title = TITLES[parameter];
    const caption = parameter === "gpus" ? `${title}: each captured` : `${title}: dots are captures, between them interpolated`;
    if (swept?.points) at(place).replaceChildren(element("figcaption", {}, caption), sweepChart(swept, value, title));
    else at(place).replaceChildren(element("figcaption", {}, swept?.refusal ?? `${title}: comes after the capture of these settings`));
  }
}

/** A is an answer with the command that gives it: the settings may have moved on by the time that this is known. */
async function keep() {
  if (!shown) return;
  const found = shown, response = await post("/words", question());
  kept = { found, words: (await response.json()).command ?? "" };
  compare();
}

function compare() {
  if (!kept) { at("comparison").replaceChildren(); return; }
  const all = [kept.found, shown ?? kept.found], scale = Math.max(...all.flatMap((found) => [found.device_usable, found.high]));
  const rough = (found) => (found.origin === "interpolated" ? " (≈ interpolated)" : "");
  at("comparison").replaceChildren(
    element("p", {}, element("b", {}, `A${rough(kept.found)} `), element("code", {}, kept.words)), gauge(kept.found, scale),
    element("p", {}, element("b", {}, shown ? `Now${rough(shown)}` : "Now: not known yet")),
    ...(shown ? [gauge(shown, scale), differenceOf(kept.found, shown)] : []));
}

async function download() {
  const note = at("copied");
  note.textContent = "the report is being made …";
  try {
    const { id } = await ask("report", question(), (how) => { note.textContent = how; });
    element("a", { href: `/answers/${id}`, download: "oomcast.html" }).click();
    note.textContent = "";
  } catch (error) {
    note.textContent = error.message;
  }
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
  if (kind === "gpus" && machines().count > 1) {
    note.textContent = "GPUs are ranked for jobs on one GPU; oomcast plan looks for layouts on several.";
    return;
  }
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
    at("gpus").replaceChildren(...gpuRanking(JSON.parse(text), (gpu) => change({ device: gpu, parallel: null })));
  },
  advise(text) {
    before.clear();
    at("advise").replaceChildren(...remedies(JSON.parse(text), toggleRemedy));
    syncRemedies();
  },
  report(text, id) { at("report").replaceChildren(reportFrame(id)); },
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
