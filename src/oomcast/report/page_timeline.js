function timeline(curve) {
  const figure = $("#timeline"), svg = $("svg", figure), cursor = $(".cursor", figure), readout = $("#readout");
  const places = [...figure.querySelectorAll(".phases span")];
  const buttons = [...figure.querySelectorAll("button[data-from]")];
  const views = [...figure.querySelectorAll("[data-view]")], legend = [...figure.querySelectorAll("[data-part]")];
  const showAll = $("[data-all]", figure), hidden = new Set();
  const painted = svg.parentNode.insertBefore(make("canvas", ""), svg);
  const bands = stack(painted, figure, curve);
  let from = 0, to = curve.end, at = curve.peak, view = "parts", axis = curve.axes[0], made = null;

  // Made when they are first asked for: most readers look at categories only.
  function shownBy(which) {
    made ??= bandsOf(curve);
    return made[which].filter(({ part }) => !hidden.has(part));
  }

  // The drawing of the file serves as long as it shows what is asked for.
  function paint() {
    const isPainted = view !== "parts" || hidden.size > 0;
    figure.classList.toggle("painted", isPainted);
    svg.setAttribute("viewBox", `${from} ${curve.height * (1 - axis[0] / curve.axes[0][0])} ${to - from} ${curve.height * axis[0] / curve.axes[0][0]}`);
    if (isPainted) bands.draw(shownBy(view), axis, from, to);
    else bands.pick(null);
  }

  // What is left of the categories fills the chart.
  function measure() {
    axis = hidden.size ? bands.axisOf(shownBy("parts")) : curve.axes[0];
    figure.classList.toggle("closer", axis !== curve.axes[0]);
    $(".yaxis", figure).replaceChildren(...axis[1].map(([tick, words]) => {
      const label = make("span", "", words);
      label.style.bottom = `${(100 * tick) / axis[0]}%`;
      return label;
    }));
  }

  function look(start, end) {
    const width = Math.min(Math.max(end - start, Math.min(8, curve.end)), curve.end);
    from = Math.min(Math.max(start, 0), curve.end - width);
    to = from + width;
    paint();
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
    const shown = curve.bands.filter(({ part }) => !hidden.has(part)), tensors = shown.filter((band) => band.largest.length);
    const height = (index) => sumOf(tensors.length ? tensors : shown, index);
    for (let index = found; index <= last; index++) if (height(index) > height(found)) found = index;
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
  const sumOf = (some, index) => some.reduce((sum, band) => sum + sizeOf(band, index), 0);
  const tensorsAt = (index) => sumOf(inUse, index);
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

  function phaseAt(event) {
    const stretch = curve.stretches.find(([, , start, end]) => start <= event && event < end);
    return stretch ? `${stretch[0].replace("_", " ")}${stretch[1] >= 0 ? ` of step ${stretch[1] + 1}` : ""}` : "";
  }

  const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

  // Of the band that is pointed at: which tensor it is, from when to when; or how many lie together there.
  function life(band, index) {
    const told = make("p", "life", key(band.part), " ");
    if (band.members === 1 && band.kind) {
      const when = (event) => `in ${phaseAt(event)}, event ${event.toLocaleString("en")}`;
      const end = band.died < 0 ? "held to the end" : `given back ${when(band.died)}, ${count(band.died - band.born, "event")} later`;
      told.append(tensor(band.tensor), ` · taken ${when(band.born)}; ${end}.`);
    } else if (band.kind) {
      const size = curve.tensors[band.tensor - 1][0], now = heightOf(band, index);
      told.append(`${count(now / size, "equal tensor")}, together `, amount(now), `, of ${band.members.toLocaleString("en")} in the whole run; one of them: `, tensor(band.tensor));
    } else {
      told.append(`small tensors of many kinds, each below ${bytes(curve.least[curve.bands.findIndex(({ part }) => part === band.part)])}, together `, amount(heightOf(band, index)), `; ${band.members.toLocaleString("en")} in the whole run.`);
    }
    return told;
  }

  function show(index) {
    at = index;
    if (bands.picked && !heightOf(bands.picked, at)) bands.pick(null);
    const first = curve.first[index], last = endOf(index) - 1, moment = curve.moment[index];
    const where = phaseAt(moment);
    const which = first === last ? "" : `, the highest of events ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
    const rows = make("tbody", "");
    let device = 0;
    for (const band of [...curve.bands].reverse()) {
      const size = sizeOf(band, index);
      device += size;
      if (!size || hidden.has(band.part)) continue;
      const largest = band.largest.length ? band.largest[index] : 0;
      rows.append(make("tr", "", make("td", "", key(band.part)), make("td", "num", amount(size)),
        make("td", "", ...(largest ? ["largest: ", tensor(largest)] : []))));
    }
    const title = make("h3", "", `${where}, event ${moment.toLocaleString("en")}${which}: `, amount(tensorsAt(index)), " in use, ", amount(device), " held on the device");
    if (index === curve.peak) title.append(" (the peak of allocated bytes)");
    const action = curve.action[index];
    const happened = make("p", "", ...(action ? [action > 0 ? "Takes " : "Gives back ", tensor(Math.abs(action))] : ["Nothing is taken or given back."]));
    readout.replaceChildren(title, ...(bands.picked ? [life(bands.picked, index)] : []), happened,
      make("div", "scroll", make("table", "", rows)));
    if (hidden.size) readout.append(make("p", "dim", `Not shown: ${legend.map(({ dataset: { part } }) => part).filter((part) => hidden.has(part)).map((part) => LABELS[part] || part).join(", ")}.`));
    mark();
  }

  const eventAt = (pointer) => {
    const box = svg.getBoundingClientRect();
    return from + (to - from) * Math.min(Math.max((pointer.clientX - box.left) / box.width, 0), 1);
  };
  function point(pointer) {
    const index = column(eventAt(pointer)), box = svg.getBoundingClientRect();
    const pointed = view === "parts" ? null : bands.at(index, axis[0] * (1 - (pointer.clientY - box.top) / box.height));
    if (pointed !== bands.picked) bands.pick(pointed);
    show(index);
  }
  let dragged = null, chosen = null;
  svg.addEventListener("pointerdown", (pointer) => {
    point(pointer);
    if (pointer.pointerType === "mouse") dragged = eventAt(pointer);
  });
  svg.addEventListener("pointermove", (pointer) => {
    const event = eventAt(pointer);
    point(pointer);
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
    const upward = { ArrowUp: 1, ArrowDown: -1 }[pressed.key], there = upward && view !== "parts" ? bands.tensorsAt(at) : [];
    if (there.length) {
      pressed.preventDefault();
      const place = there.indexOf(bands.picked), next = place < 0 ? (upward > 0 ? 0 : there.length - 1) : place + upward;
      bands.pick(there[Math.min(Math.max(next, 0), there.length - 1)]);
      show(at);
      return;
    }
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
  for (const button of views)
    button.addEventListener("click", () => {
      view = button.dataset.view;
      for (const other of views) other.setAttribute("aria-pressed", other === button);
      bands.pick(null);
      paint();
      show(at);
    });
  function filter(parts) {
    hidden.clear();
    for (const part of parts) hidden.add(part);
    for (const button of legend) button.setAttribute("aria-pressed", !hidden.has(button.dataset.part));
    showAll.hidden = !hidden.size;
    measure();
    paint();
    show(at);
  }
  for (const button of legend)
    button.addEventListener("click", (chosen) => {
      const { part } = button.dataset, others = legend.map(({ dataset }) => dataset.part).filter((other) => other !== part);
      if (chosen.shiftKey) filter(others);
      else filter(hidden.has(part) ? [...hidden].filter((other) => other !== part) : [...hidden, part]);
    });
  showAll.addEventListener("click", () => { filter([]); legend[0].focus(); });
  whenItLooksOtherwise(paint);
  if (curve.first.length) {
    look(0, curve.end);
    show(curve.peak);
  }
}
