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

const curve = data("curve"), tree = data("tree"), held = data("held");
if (curve) timeline(curve);
if (tree) treemap(tree);
if (held) flame(held);
document.querySelectorAll("table.sortable").forEach(sortable);
