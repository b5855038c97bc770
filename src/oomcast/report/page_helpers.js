const $ = (selector, root = document) => root.querySelector(selector);
const data = (id) => { const held = document.getElementById(id); return held && JSON.parse(held.textContent); };
const LABELS = data("labels") || {};

// Names from the job are only ever set as text.
function make(tag, classes, ...content) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...content);
  return element;
}

// As Python rounds, half to even, so that the page and the command line say the same.
function rounded(value, digits) {
  const scaled = value * 10 ** digits, below = Math.floor(scaled);
  const isHalf = scaled - below === 0.5;
  return isHalf && below % 2 === 0 ? (below / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

function bytes(size) {
  for (const [unit, name, digits] of [[2 ** 30, "GiB", 2], [2 ** 20, "MiB", 1], [2 ** 10, "KiB", 1]])
    if (size >= unit) return `${rounded(size / unit, digits)} ${name}`;
  return `${size} B`;
}

function amount(size) {
  const element = make("data", "", bytes(size));
  element.value = String(size);
  element.title = `${size.toLocaleString("en")} bytes`;
  return element;
}

function key(part) {
  return make("span", "key", make("i", `swatch part-${part}`), LABELS[part] || part);
}

function shortened(source) {
  return source.split(/[\\/]/).slice(-2).join("/");
}

// What is drawn for a width or for a theme is drawn anew for another.
function whenItLooksOtherwise(draw) {
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
  addEventListener("beforeprint", draw);
  addEventListener("afterprint", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
