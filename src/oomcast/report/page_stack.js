// Bands that lie on each other, drawn for a window of events on a canvas: as many as there are tensors.
// A band has a part, and either one height (`size`) from column `first` to `last`, or `levels`, one for each column.
const SHADES = [0, 0.2, 0.38];

function heightOf(band, column) {
  if (column < band.first || column > band.last) return 0;
  return band.levels ? band.levels[column] : band.size;
}

function bandsOf(curve) {
  const columns = curve.first.length;
  // All of one form: thousands of them are read for each column.
  const like = { part: "", tensor: 0, kind: 0, members: 1, size: 0, levels: null, first: 0, last: columns - 1, born: 0, died: 0 };
  const whole = curve.bands.map(({ part, bytes }) => ({ ...like, part,
    ...(Array.isArray(bytes) ? { levels: bytes } : { size: bytes }) }));
  const tensors = curve.blocks.map(([place, tensor, kind, ...rest]) => {
    const band = { ...like, part: curve.bands[place].part, tensor, kind };
    if (!Array.isArray(rest[1])) {
      const [first, last, born, died] = rest;
      return { ...band, size: curve.tensors[tensor - 1][0], first, last, born, died };
    }
    const levels = new Float64Array(columns), [members, steps, unit] = rest;
    for (let n = 0, column = 0, level = 0; n < steps.length; n += 2)
      levels.fill(level += steps[n + 1] * unit, column += steps[n]);
    return { ...band, members, levels };
  });
  const kinds = new Map();
  for (const band of tensors) {
    const name = band.kind || band.part;
    if (!kinds.has(name)) kinds.set(name, []);
    kinds.get(name).push(band);
  }
  const together = [...kinds.values()].map((equal) => {
    if (equal.length === 1) return equal[0];
    const levels = new Float64Array(columns);
    for (const { size, first, last } of equal) for (let column = first; column <= last; column++) levels[column] += size;
    return { ...equal[0], members: equal.length, levels, first: 0, last: columns - 1 };
  });
  // Under and above the tensors is what the device holds beside them.
  const between = (bands) => whole.flatMap((band, place) => (curve.bands[place].largest.length
    ? bands.filter(({ part }) => part === band.part) : [band]));
  return { parts: whole, tensors: between(tensors), kinds: between(together) };
}

function stack(canvas, figure, curve) {
  const base = document.createElement("canvas");
  let bands = [], slots = [], picked = null, axis = curve.axes[0];

  const colour = (part) => getComputedStyle($(`.legend .swatch.part-${part}`, figure)).backgroundColor;
  const lighter = (rgb, share) => {
    const [r, g, b] = rgb.match(/[\d.]+/g).map(Number).map((value) => Math.round(value + (255 - value) * share));
    return `rgb(${r} ${g} ${b})`;
  };
  const y = (bytes) => canvas.height - Math.round((canvas.height * bytes) / axis[0]);

  // Where columns share a pixel, it shows the highest of them.
  function slotsOf(from, to, width) {
    const found = [], totals = [];
    const total = (column) => totals[column] ??= bands.reduce((sum, band) => sum + heightOf(band, column), 0);
    for (let column = 0; column < curve.first.length; column++) {
      const start = curve.first[column], end = curve.first[column + 1] ?? curve.end;
      if (end <= from || start >= to) continue;
      const x = Math.max(Math.round(((start - from) / (to - from)) * width), 0);
      const right = Math.min(Math.max(Math.round(((end - from) / (to - from)) * width), x + 1), width);
      const before = found[found.length - 1];
      if (!before || x >= before.right) found.push({ x, right, column });
      else if (total(column) > total(before.column)) Object.assign(before, { column, right });
      else before.right = right;
    }
    return found;
  }

  // The lowest axis that the bands fit under.
  function axisOf(shown) {
    const sums = new Float64Array(curve.first.length);
    for (const band of shown) for (let column = band.first; column <= band.last; column++) sums[column] += heightOf(band, column);
    const highest = sums.reduce((most, sum) => Math.max(most, sum), 0);
    return curve.axes.filter(([top]) => top >= highest).pop() || curve.axes[0];
  }

  function draw(shown, on, from, to) {
    [bands, axis] = [shown, on];
    const scale = devicePixelRatio || 1;
    base.width = canvas.width = Math.max(Math.round(canvas.clientWidth * scale), 1);
    base.height = canvas.height = Math.max(Math.round(canvas.clientHeight * scale), 1);
    slots = slotsOf(from, to, canvas.width);
    const pen = base.getContext("2d"), colours = {};
    pen.fillStyle = getComputedStyle($(".grid", figure)).stroke;
    for (const [tick] of axis[1]) pen.fillRect(0, y(tick), base.width, 1);
    for (const { part } of bands) colours[part] ??= SHADES.map((share) => lighter(colour(part), share));
    const starts = new Int32Array(bands.length).fill(-1), lows = new Int32Array(bands.length), highs = new Int32Array(bands.length);
    // A band is drawn in rectangles, a new one where it rises or falls by a pixel.
    const close = (number, right) => {
      if (starts[number] < 0) return;
      const x = starts[number], high = highs[number], band = bands[number];
      pen.fillStyle = colours[band.part][band.tensor ? number % SHADES.length : 0];
      pen.fillRect(x, high, right - x, lows[number] - high);
      if (band.tensor && lows[number] - high > 3 * scale) {
        pen.fillStyle = "rgb(0 0 0 / 25%)";
        pen.fillRect(x, high, right - x, 1);
      }
      starts[number] = -1;
    };
    for (const { x, column } of slots) {
      let level = 0, low = y(0);
      for (let number = 0; number < bands.length; number++) {
        const height = heightOf(bands[number], column);
        const high = height ? y(level += height) : low;
        if (starts[number] >= 0 && (high !== highs[number] || low !== lows[number])) close(number, x);
        if (high < low && starts[number] < 0) [starts[number], lows[number], highs[number]] = [x, low, high];
        low = high;
      }
    }
    for (let number = 0; number < bands.length; number++) close(number, canvas.width);
    pick(bands.includes(picked) ? picked : null);
  }

  // Its band in the colour of the words, at least as thick as can be seen.
  function pick(band) {
    picked = band;
    const pen = canvas.getContext("2d"), place = bands.indexOf(band);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(base, 0, 0);
    if (place < 0) return;
    pen.fillStyle = getComputedStyle(figure).color;
    for (const { x, right, column } of slots) {
      const height = heightOf(band, column);
      if (!height) continue;
      const below = under(place, column), low = y(below);
      pen.fillRect(x, Math.min(y(below + height), low - 2), right - x, Math.max(low - y(below + height), 2));
    }
  }

  function under(place, column) {
    let sum = 0;
    for (let number = 0; number < place; number++) sum += heightOf(bands[number], column);
    return sum;
  }

  // The tensors at a column, from the floor up; the one at so many bytes above the floor.
  const tensorsAt = (column) => bands.filter((band) => band.tensor && heightOf(band, column));
  function at(column, bytes) {
    let level = 0;
    for (const band of bands) {
      level += heightOf(band, column);
      if (bytes < level) return band.tensor ? band : null;
    }
    return null;
  }

  return { axisOf, draw, pick, at, tensorsAt, get picked() { return picked; } };
}
