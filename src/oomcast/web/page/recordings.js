// What a GPU really did: a dropped memory snapshot, told by itself and against the prediction.

import { signed, table } from "/page/answers.js";
import { ask } from "/page/asking.js";
import { bytes, element } from "/page/charts.js";

/** Of the recording in the file, with the settings that `asked` holds: into `place`, with what is under way in `note`. */
export async function tellOfRecording(file, asked, labels, note, place) {
  note.textContent = `reading ${file.name} …`;
  try {
    const snapshot = await packed(file), told = (how) => { note.textContent = how; };
    const replayed = async (more) => JSON.parse((await ask("replay", { snapshot, ...more }, told)).text);
    const own = await replayed({}), grown = await replayed({ alloc_conf: "expandable_segments:True" });
    place.replaceChildren(recording(own, grown));
    const { text } = await ask("compare", { ...asked, snapshot }, told);
    note.textContent = "";
    place.append(...differences(JSON.parse(text), labels));
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

/** A recording by itself: what it reserved, and, where the simulated allocator does just the same, what it would do with
 *  segments that grow. */
function recording(own, grown) {
  const saved = own.simulated_peak_reserved - grown.simulated_peak_reserved;
  const rows = [["at its highest", bytes(own.recorded_peak_reserved)], ["at its end", bytes(own.recorded_reserved)]];
  if (own.exact) rows.push(["at its highest, with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", `${bytes(grown.simulated_peak_reserved)}, ${saved > 0 ? `${bytes(saved)} less` : "no less"}`]);
  const agrees = own.exact ? "the same to the byte" : `${bytes(own.simulated_reserved)} at its end${own.reason ? ` (${own.reason})` : ""}`;
  return element("div", {}, table(["The recording itself", "Reserved"], rows), element("p", { class: "hint" }, `${own.events} events, for which the simulated allocator reserves ${agrees}.`));
}

/** A prediction against a recording. */
function differences(found, labels) {
  const parts = [["At the peak", found.totals], ["Category", found.categories], ["Blocks by size", found.sizes], ["Line", found.lines]];
  const tables = parts.filter(([, rows]) => rows.length).map(([title, rows]) => table([title, "Predicted", "Real", "Difference"],
    rows.slice(0, 12).map((row) => [labels[row.name] ?? row.name, bytes(row.before), bytes(row.after), signed(row.change)])));
  return [element("p", {}, element("b", {}, found.sentence), " Before is the prediction, after the real run."), ...tables];
}
