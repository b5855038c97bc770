// The list of routes, from the service's own description.

function element(tag, text = "", parts = []) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  made.append(...parts);
  return made;
}

function row(cells, tag = "td") {
  return element("tr", "", cells.map((cell) => element(tag, cell)));
}

function words(schema) {
  if (schema.enum) return schema.enum.length > 12 ? `${schema.enum.slice(0, 12).join(", ")}, …` : schema.enum.join(", ");
  if (schema.anyOf) return schema.anyOf.map(words).join(" or ");
  return schema.type ?? "";
}

function table(properties, required) {
  const rows = Object.entries(properties).map(([name, schema]) =>
    row([required.includes(name) ? `${name} (needed)` : name, words(schema), schema.description ?? ""]));
  const whole = element("table", "", [element("thead", "", [row(["Name", "Takes", "What it is"], "th")]), element("tbody", "", rows)]);
  return element("div", "", [whole]);
}

function section(path, method, described) {
  const parts = [element("h2", `${method.toUpperCase()} ${path}`), element("p", described.summary ?? "")];
  const schema = described.requestBody?.content?.["application/json"]?.schema;
  if (schema?.properties) {
    const details = element("details", "", [element("summary", "What may be sent")]);
    const inner = table(schema.properties, schema.required ?? []);
    inner.className = "scroll";
    inner.tabIndex = 0;
    details.append(inner);
    parts.push(details);
  }
  return element("section", "", parts);
}

const place = document.getElementById("routes");
const answer = await fetch("/openapi.json");
const api = await answer.json();
place.replaceChildren(...Object.entries(api.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, described]) => section(path, method, described))));
