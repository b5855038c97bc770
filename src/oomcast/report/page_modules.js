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

// A node of a tree is its name, its bytes by category and its children.
const total = ([, sizes]) => sizes.reduce((sum, size) => sum + size, 0);

// Its categories as stripes.
function stripes(element, node, parts, { w, h }) {
  let start = 0;
  node[1].forEach((size, place) => {
    if (!size) return;
    const part = size / total(node), stripe = make("i", `stripe part-${parts[place]}`);
    stripe.style.cssText = w >= h ? `left:${100 * start}%;width:${100 * part}%;top:0;bottom:0` : `top:${100 * start}%;height:${100 * part}%;left:0;right:0`;
    start += part;
    element.append(stripe);
  });
}

function treemap({ parts, root }) {
  const figure = $("#modules"), map = $(".map", figure), path = $(".path", figure);
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
        stripes(part, child, parts, boxes[index]);
        element.append(part);
      });
    } else stripes(element, node, parts, { w, h });
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
  whenItLooksOtherwise(draw);
}
