// Whose case it is: one of the examples, a file of one's own, or typed values.

import { api } from "./api.js";
import { el, fill, slot } from "./dom.js";
import { chance, clean, listed } from "./words.js";

const OWN = "own";
const LARGEST_FILE = 262144;

/** Wire the choice of a person. `chosen(row, number)` is told; the number is null for one's own. */
export function createPerson(store, chosen) {
  const select = slot("example");
  const choose = (index) => {
    const example = store.get().examples[index];
    if (example) chosen(example.row, example.number);
  };
  const walk = (by) => {
    const { examples, example } = store.get();
    const now = examples.findIndex((each) => each.number === example);
    choose(now < 0 ? 0 : (now + by + examples.length) % examples.length);
  };
  select.addEventListener("change", () => choose(Number(select.value)));
  slot("example-back").addEventListener("click", () => walk(-1));
  slot("example-on").addEventListener("click", () => walk(1));
  slot("case-open").addEventListener("click", () => slot("case-file").click());
  slot("case-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await open(file, store, chosen);
    event.target.value = "";
  });

  let shown = null;
  return {
    async load(name) {
      store.set({ examples: (await api.examples(name)).examples });
    },
    render({ examples, example, card }) {
      if (shown !== examples) {
        shown = examples;
        fill(select, el("option", { value: OWN }, "My own values"),
          examples.map((each, i) => el("option", { value: i }, told(each, card))));
        for (const id of ["example-back", "example-on"]) slot(id).disabled = examples.length === 0;
      }
      const index = examples.findIndex((each) => each.number === example);
      select.value = index < 0 ? OWN : String(index);
    },
  };
}

const told = ({ number, probability }, card) =>
  card.labels_only ? `Row ${number}` : `Row ${number}, chance ${chance(probability)}`;

async function open(file, store, chosen) {
  const note = slot("case-note");
  note.textContent = "";
  try {
    const { row, left } = read(await textOf(file), store.get());
    chosen(row, null);
    note.textContent = left.length ? `Not used from the file: ${listed(left.slice(0, 5).map(clean))}.` : "";
  } catch (error) {
    note.textContent = error.message;
  }
}

async function textOf(file) {
  if (file.size > LARGEST_FILE) throw new Error("This file is too large for one case (the most is 256 KB).");
  return file.text();
}

/** Take from a file what the card knows; what it does not name stays as it is on the page. */
function read(text, { card, row }) {
  let table;
  try {
    table = JSON.parse(text);
  } catch {
    throw new Error("This file is no JSON. A case looks like {\"income\": 40500, …}.");
  }
  if (table === null || typeof table !== "object" || Array.isArray(table)) {
    throw new Error("A case file holds one JSON object: {column: value, …}.");
  }
  const names = new Set(card.features.map((feature) => feature.name));
  const known = Object.entries(table).filter(([name]) => names.has(name));
  if (known.length === 0) throw new Error("This file names none of the values of this page.");
  return {
    row: { ...row, ...Object.fromEntries(known) },
    left: Object.keys(table).filter((name) => !names.has(name)),
  };
}
