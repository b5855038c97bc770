"use strict";
(() => {
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

  function timeline(curve) {
    const figure = $("#timeline"), svg = $("svg", figure), cursor = $(".cursor", figure), readout = $("#readout");
    const places = [...figure.querySelectorAll(".phases span")];
    const buttons = [...figure.querySelectorAll("button[data-from]")];
    let from = 0, to = curve.end, at = curve.peak;

    function look(start, end) {
      const width = Math.min(Math.max(end - start, Math.min(8, curve.end)), curve.end);
      from = Math.min(Math.max(start, 0), curve.end - width);
      to = from + width;
      svg.setAttribute("viewBox", `${from} 0 ${width} ${curve.height}`);
      for (const place of places) {
        const left = Math.max((place.dataset.from - from) / width, 0), right = Math.min((place.dataset.to - from) / width, 1);
        place.style.left = `${100 * left}%`;
        place.style.width = `${100 * Math.max(right - left, 0)}%`;
        place.hidden = right <= left;
      }
      for (const place of places) place.textContent = place.dataset.name;
      const tooNarrow = () => places.filter((place) => place.scrollWidth > place.clientWidth);
      for (const place of tooNarrow()) place.textContent = place.dataset.name[0].toUpperCase();
      for (const place of tooNarrow()) place.textContent = "";
      for (const button of buttons)
        button.setAttribute("aria-pressed", +button.dataset.from === from && +button.dataset.to === to);
      // What is told is always something that is seen: the highest of the window, where the moment lies outside.
      if (middleOf(at) < from || middleOf(at) > to) show(highest()); else mark();
    }

    function highest() {
      const last = column(to - 1);
      let found = column(from);
      for (let index = found; index <= last; index++) if (tensorsAt(index) > tensorsAt(found)) found = index;
      return found;
    }

    function column(event) {
      let low = 0, high = curve.first.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (curve.first[middle] <= event) low = middle; else high = middle - 1;
      }
      return low;
    }

    const sizeOf = (band, index) => (Array.isArray(band.bytes) ? band.bytes[index] : band.bytes);
    const inUse = curve.bands.filter((band) => band.largest.length);
    const tensorsAt = (index) => inUse.reduce((sum, band) => sum + sizeOf(band, index), 0);
    const endOf = (index) => (index + 1 < curve.first.length ? curve.first[index + 1] : curve.end);
    const middleOf = (index) => (curve.first[index] + endOf(index)) / 2;

    function mark() {
      const place = (middleOf(at) - from) / (to - from);
      cursor.hidden = place < 0 || place > 1;
      cursor.style.left = `${100 * place}%`;
    }

    function tensor(number) {
      const [size, ...words] = curve.tensors[number - 1];
      const [, operator, module, source, shape] = words.map((word) => curve.strings[word]);
      const told = make("span", "where", amount(size));
      for (const words of [shape, module, operator])
        if (words) told.append(" · ", words === shape ? words : make("code", "", words));
      if (source) {
        const line = make("code", "", shortened(source));
        line.title = source;
        told.append(" · ", line);
      }
      return told;
    }

    function show(index) {
      at = index;
      const first = curve.first[index], last = endOf(index) - 1, moment = curve.moment[index];
      const stretch = curve.stretches.find(([, , start, end]) => start <= moment && moment < end);
      const where = stretch ? `${stretch[0].replace("_", " ")}${stretch[1] >= 0 ? ` of step ${stretch[1] + 1}` : ""}` : "";
      const which = first === last ? "" : `, the highest of events ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
      const rows = make("tbody", "");
      let device = 0;
      for (const band of [...curve.bands].reverse()) {
        const size = sizeOf(band, index);
        device += size;
        if (!size) continue;
        const largest = band.largest.length ? band.largest[index] : 0;
        rows.append(make("tr", "", make("td", "", key(band.part)), make("td", "num", amount(size)),
          make("td", "", ...(largest ? ["largest: ", tensor(largest)] : []))));
      }
      const title = make("h3", "", `${where}, event ${moment.toLocaleString("en")}${which}: `, amount(tensorsAt(index)), " in use, ", amount(device), " held on the device");
      if (index === curve.peak) title.append(" (the peak of allocated bytes)");
      const action = curve.action[index];
      const happened = make("p", "", ...(action ? [action > 0 ? "Takes " : "Gives back ", tensor(Math.abs(action))] : ["Nothing is taken or given back."]));
      readout.replaceChildren(title, happened, make("div", "scroll", make("table", "", rows)));
      mark();
    }

    const eventAt = (pointer) => {
      const box = svg.getBoundingClientRect();
      return from + (to - from) * Math.min(Math.max((pointer.clientX - box.left) / box.width, 0), 1);
    };
    let dragged = null, chosen = null;
    svg.addEventListener("pointerdown", (pointer) => {
      show(column(eventAt(pointer)));
      if (pointer.pointerType === "mouse") dragged = eventAt(pointer);
    });
    svg.addEventListener("pointermove", (pointer) => {
      const event = eventAt(pointer);
      show(column(event));
      if (dragged === null) return;
      if (!chosen) svg.parentNode.append(chosen = make("div", "chosen"));
      const [left, right] = [dragged, event].sort((a, b) => a - b);
      chosen.style.left = `${100 * (left - from) / (to - from)}%`;
      chosen.style.width = `${100 * (right - left) / (to - from)}%`;
    });
    addEventListener("pointerup", (pointer) => {
      if (dragged !== null && chosen) {
        const [left, right] = [dragged, eventAt(pointer)].sort((a, b) => a - b);
        if (right - left > (to - from) / 100) look(Math.floor(left), Math.ceil(right));
      }
      if (chosen) chosen.remove();
      dragged = chosen = null;
    });
    svg.addEventListener("dblclick", () => look(0, curve.end));
    svg.addEventListener("keydown", (pressed) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[pressed.key];
      if (step === undefined) return;
      pressed.preventDefault();
      show(Math.min(Math.max(at + step, 0), curve.first.length - 1));
      if (curve.first[at] < from || curve.first[at] >= to) look(curve.first[at] - (to - from) / 2, curve.first[at] + (to - from) / 2);
    });
    for (const button of buttons)
      button.addEventListener("click", () => {
        look(+button.dataset.from, +button.dataset.to);
        show(highest());
      });
    for (const button of figure.querySelectorAll("[data-zoom]"))
      button.addEventListener("click", () => {
        const width = to - from, inside = middleOf(at) > from && middleOf(at) < to;
        const middle = inside ? middleOf(at) : (from + to) / 2;
        const what = button.dataset.zoom;
        if (what === "in") look(Math.floor(middle - width / 4), Math.ceil(middle + width / 4));
        if (what === "out") look(Math.floor(middle - width), Math.ceil(middle + width));
        if (what === "left") look(from - width / 4, to - width / 4);
        if (what === "right") look(from + width / 4, to + width / 4);
      });
    if (curve.first.length) {
      look(0, curve.end);
      show(curve.peak);
    }
  }

  // Squarified: rows of tiles, each as near to a square as the order by size allows.
  function squarify(sizes, box) {
    const tiles = [], total = sizes.reduce((sum, size) => sum + size, 0);
    let { x, y, w, h } = box, left = total, index = 0;
    while (index < sizes.length && left > 0) {
      const side = Math.min(w, h), scale = (w * h) / left;
      let sum = 0, best = Infinity, end = index;
      while (end < sizes.length) {
        const grown = sum + sizes[end], thick = (grown * scale) / side;
        const worst = Math.max(...[sizes[index], sizes[end]].map((size) => {
          const long = (size * scale) / thick;
          return Math.max(long / thick, thick / long);
        }));
        if (worst > best) break;
        [best, sum, end] = [worst, grown, end + 1];
      }
      const thick = (sum * scale) / side;
      let along = 0;
      for (; index < end; index++) {
        const long = (sizes[index] / sum) * side;
        tiles.push(w >= h ? { x, y: y + along, w: thick, h: long } : { x: x + along, y, w: long, h: thick });
        along += long;
      }
      if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
      left -= sum;
    }
    return tiles;
  }

  function treemap({ parts, root }) {
    const figure = $("#modules"), map = $(".map", figure), path = $(".path", figure);
    const total = ([, sizes]) => sizes.reduce((sum, size) => sum + size, 0);
    let trail = [root];

    // A child that is most of its module is shown by its own children at once.
    function opened(node) {
      const children = [...node[2]];
      const own = node[1].map((size, place) => size - children.reduce((sum, child) => sum + child[1][place], 0));
      if (total(["", own]) > 0) children.push(["itself", own, []]);
      const shown = children.flatMap((child) => (child[2].length > 1 && total(child) > 0.6 * total(node)
        ? opened(child).map(([name, ...rest]) => [`${child[0]}.${name}`, ...rest]) : [child]));
      return shown.sort((a, b) => total(b) - total(a));
    }

    function put(element, tile, width, height) {
      element.style.cssText = `left:${100 * tile.x / width}%;top:${100 * tile.y / height}%;width:${100 * tile.w / width}%;height:${100 * tile.h / height}%`;
      return element;
    }

    // The categories as stripes; where there is room, those of each child in its own part.
    function fill(element, node, { w, h }) {
      if (node[2].length > 1 && w > 70 && h > 60) {
        const inner = opened(node), boxes = squarify(inner.map(total), { x: 0, y: 0, w, h });
        inner.forEach((child, index) => {
          const part = put(make("i", "inner"), boxes[index], w, h);
          stripes(part, child, boxes[index]);
          element.append(part);
        });
      } else stripes(element, node, { w, h });
    }

    function stripes(element, node, { w, h }) {
      let start = 0;
      node[1].forEach((size, place) => {
        if (!size) return;
        const part = size / total(node), stripe = make("i", `stripe part-${parts[place]}`);
        stripe.style.cssText = w >= h ? `left:${100 * start}%;width:${100 * part}%;top:0;bottom:0` : `top:${100 * start}%;height:${100 * part}%;left:0;right:0`;
        start += part;
        element.append(stripe);
      });
    }

    function draw() {
      const node = trail[trail.length - 1], width = map.clientWidth || 900, height = map.clientHeight || 400;
      const children = opened(node);
      const tiles = squarify(children.map(total), { x: 0, y: 0, w: width, h: height });
      map.replaceChildren(...children.map((child, index) => {
        const tile = tiles[index], deeper = child[2].length > 0;
        const element = put(make(deeper ? "button" : "div", "tile"), tile, width, height);
        fill(element, child, tile);
        const words = `${child[0]}: ${bytes(total(child))}; ` + parts.map((part, place) => [LABELS[part], child[1][place]])
          .filter(([, size]) => size).map(([name, size]) => `${name} ${bytes(size)}`).join(", ");
        element.title = words;
        element.setAttribute("aria-label", words);
        if (!deeper) element.setAttribute("role", "img");
        const hasRoom = tile.w > 7.5 * (child[0].length + 10);
        if (tile.w > 44 && tile.h > 24)
          element.append(make("span", "name", child[0], ...(hasRoom ? [": ", make("small", "", bytes(total(child)))] : [])));
        if (deeper) {
          element.type = "button";
          element.addEventListener("click", () => { trail.push(child); draw(); });
        }
        return element;
      }));
      path.replaceChildren(...trail.map((step, index) => {
        const name = index ? step[0] : "whole job";
        if (index === trail.length - 1) return make("b", "", `${name}, ${bytes(total(step))}`);
        const back = make("button", "", name);
        back.type = "button";
        back.addEventListener("click", () => { trail = trail.slice(0, index + 1); draw(); });
        return back;
      }));
    }
    draw();
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
    addEventListener("beforeprint", draw);
    addEventListener("afterprint", draw);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const value = (row, place) => {
      const cell = row.cells[place], held = $("data", cell);
      return held ? Number(held.value) : cell.textContent;
    };
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      const button = make("button", "", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const isNumber = head.classList.contains("num");
        const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : isNumber;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const order = (a, b) => (isNumber ? a - b : a.localeCompare(b, "en", { numeric: true }));
        const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * order(value(a, place), value(b, place)));
        body.append(...rows);
      });
    });
  }

  const curve = data("curve"), tree = data("tree");
  if (curve) timeline(curve);
  if (tree) treemap(tree);
  document.querySelectorAll("table.sortable").forEach(sortable);
})();
