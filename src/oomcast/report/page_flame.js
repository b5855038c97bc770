// What is held at the peak as bars beneath each other: each is as wide as what it holds, its parts are under it.
function flame({ parts, sources, modules, lines }) {
  const figure = $("#flame"), frames = $(".frames", figure), detail = $(".readout", figure);
  const trees = { modules, lines }, views = [...figure.querySelectorAll("[data-tree]")];
  const ROW = 24, NARROWEST = 2;
  let root = modules, trail = [root], shown = [];

  const isLine = ([name]) => typeof name === "number";
  // Under its file, the number is enough.
  const lineWords = (source) => (root === lines ? `line ${source.slice(source.lastIndexOf(":") + 1)}` : shortened(source));
  const words = (node) => (node === root ? "all tensors" : isLine(node) ? lineWords(sources[node[0]]) : root === lines ? shortened(node[0]) : node[0]);

  // The way down to what is looked at has the whole width; beneath it are all that can be seen.
  function placed(width) {
    const found = trail.map((node, row) => ({ node, row, x: 0, w: width, above: trail[row - 1] }));
    const below = (node, row, x, w) => {
      for (const child of node[2]) {
        const share = (w * total(child)) / total(node);
        if (share >= NARROWEST) {
          found.push({ node: child, row, x, w: share, above: node });
          below(child, row + 1, x, share);
        }
        x += share;
      }
    };
    const top = trail[trail.length - 1];
    below(top, trail.length, 0, width);
    return found;
  }

  function wayTo(frame) {
    const way = [frame.node];
    for (let one = frame; one.above;) {
      one = shown.find(({ node }) => node === one.above);
      way.unshift(one.node);
    }
    return way;
  }

  function tell(frame) {
    const { node } = frame, categories = parts.map((part, place) => [part, node[1][place]]).filter(([, size]) => size);
    const share = `${rounded((100 * total(node)) / total(root), 1)}%`;
    const name = make("code", "", isLine(node) ? sources[node[0]] : wayTo(frame).slice(1).map((one) => one[0]).join(".") || "all tensors");
    detail.replaceChildren(make("h3", "", name, ": ", amount(total(node)), `, ${share} of the tensors at the peak`),
      make("p", "", ...categories.flatMap(([part, size], place) => [place ? " · " : "", key(part), " ", amount(size)])));
    for (const other of shown) other.element.tabIndex = other === frame ? 0 : -1;
  }

  function open(frame) {
    trail = wayTo(frame);
    draw();
    shown.find(({ node }) => node === frame.node).element.focus();
  }

  // The next bar of the row, the one above, or the widest beneath.
  function next(frame, pressed) {
    const beside = shown.filter(({ row }) => row === frame.row), place = beside.indexOf(frame);
    if (pressed === "ArrowLeft") return beside[place - 1];
    if (pressed === "ArrowRight") return beside[place + 1];
    if (pressed === "ArrowUp") return shown.find(({ node }) => node === frame.above);
    if (pressed === "ArrowDown") return shown.find(({ above }) => above === frame.node);
    return undefined;
  }

  function draw() {
    const width = frames.clientWidth || 900;
    shown = placed(width);
    frames.style.height = `${ROW * (1 + Math.max(...shown.map(({ row }) => row)))}px`;
    for (const frame of shown) {
      const { node, row, x, w } = frame;
      const element = frame.element = make("button", "tile");
      element.type = "button";
      element.style.cssText = `left:${(100 * x) / width}%;width:${(100 * w) / width}%;top:${ROW * row}px;height:${ROW}px`;
      stripes(element, node, parts, { w, h: 0 });
      if (w > 40) element.append(make("span", "name", words(node), " ", make("small", "", bytes(total(node)))));
      element.setAttribute("aria-label", `${words(node)}: ${bytes(total(node))}`);
      element.addEventListener("click", () => open(frame));
      element.addEventListener("focus", () => tell(frame));
      element.addEventListener("pointerenter", () => tell(frame));
      element.addEventListener("keydown", (pressed) => {
        if (pressed.key === "Escape" && trail.length > 1) open(shown[trail.length - 2]);
        const other = next(frame, pressed.key);
        if (pressed.key.startsWith("Arrow")) pressed.preventDefault();
        if (other) other.element.focus();
      });
    }
    frames.replaceChildren(...shown.map(({ element }) => element));
    tell(shown[trail.length - 1]);
  }

  for (const button of views)
    button.addEventListener("click", () => {
      for (const other of views) other.setAttribute("aria-pressed", other === button);
      trail = [root = trees[button.dataset.tree]];
      draw();
    });
  draw();
  whenItLooksOtherwise(draw);
}
