// Whose case it is: a customer of the table, found by number or by any value; a file; or typed values.

import { api, latestOnly } from "./api.js";
import { readCsv } from "./csv.js";
import { bdi, el, fill, setAttribute, slot } from "./dom.js";
import { own } from "./state.js";
import { chance, clean, counted, fullValue, label, listed } from "./words.js";

const PAUSE = 200;
const LARGEST_FILE = 2 ** 20;
const MOST_ROWS = 200; // of a file, to choose from

/** Wire the choice of a person. `chosen(row, number, incomplete)` is told; the number is null for one's own. */
export function createPerson(store, chosen) {
  const [box, list] = [slot("find"), slot("find-list")];
  const look = latestOnly((text, signal) => api.people(store.get().card.name, text, signal));
  let people = [];
  let refused = []; // those to walk through
  let at = -1;
  let wanted = false; // an answer may come when nobody waits for it any more

  const close = () => {
    wanted = false;
    list.hidden = true;
    slot("find-note").textContent = "";
    at = -1;
    setAttribute(box, "aria-expanded", "false");
    setAttribute(box, "aria-activedescendant", null);
  };
  const choose = (person) => {
    close();
    box.value = "";
    slot("case-note").textContent = ""; // of a file that was opened before
    fill(slot("file-rows"));
    chosen(person.row, person.number);
  };
  const show = ({ people: found, total }) => {
    if (!wanted) return;
    people = found;
    at = -1;
    fill(list, found.map((person, i) => el("li", {
      id: `found-${i}`, role: "option", "aria-selected": "false", on: { mousedown: (event) => event.preventDefault(), click: () => choose(person) },
    }, el("strong", {}, `Row ${person.number}`), el("span", { class: "small" }, " ", standing(person, store.get().card)),
    el("span", { class: "small soft" }, bdi(inShort(person.row, store.get().card))))),
    found.length < total || total === 0 ? el("li", { class: "small soft", role: "option", "aria-disabled": "true", "aria-selected": "false" },
      total === 0 ? "Nobody in the table fits." : `… and ${counted(total - found.length, "more", "more")}: type more to narrow it down.`) : null);
    slot("find-note").textContent = counted(total, "row fits", "rows fit"); // for those who hear it
    list.hidden = false;
    setAttribute(box, "aria-expanded", "true");
  };
  const search = (pause) => {
    wanted = true;
    look(box.value, pause, show, close);
  };
  const move = (by) => {
    if (list.hidden || people.length === 0) return;
    at = (at + by + people.length) % people.length;
    [...list.children].forEach((node, i) => setAttribute(node, "aria-selected", String(i === at)));
    setAttribute(box, "aria-activedescendant", `found-${at}`);
    list.children[at].scrollIntoView({ block: "nearest" });
  };
  const keys = { ArrowDown: () => (list.hidden ? search(0) : move(1)), ArrowUp: () => move(-1), Escape: () => { box.value = ""; close(); },
    Enter: () => people.length > 0 && !list.hidden && choose(people[Math.max(0, at)]) };
  box.addEventListener("input", () => search(PAUSE));
  box.addEventListener("focus", () => search(0));
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  const walk = (by) => {
    const now = refused.findIndex(({ number }) => number === store.get().person);
    const next = refused[now < 0 ? 0 : (now + by + refused.length) % refused.length];
    if (next) choose(next);
  };
  slot("example-back").addEventListener("click", () => walk(-1));
  slot("example-on").addEventListener("click", () => walk(1));
  slot("case-open").addEventListener("click", () => slot("case-file").click());
  slot("case-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await open(file, store, chosen);
    event.target.value = "";
  });

  return {
    /** Look up whom to begin with; returns the first who was refused. */
    async load(name) {
      const found = (await api.people(name, "")).people;
      refused = found.filter(({ approved }) => !approved);
      slot("finder").hidden = found.length === 0;
      return refused[0] ?? found[0] ?? null;
    },
    /** Return the row of a number, if the table has it. */
    async byNumber(name, number) {
      const { people: found } = await api.people(name, String(number));
      return found.find((each) => each.number === number) ?? null;
    },
    render({ person }) {
      slot("whose").textContent = person === null ? "Values of your own" : `Row ${person.toLocaleString("en", { useGrouping: false })}`;
      for (const id of ["example-back", "example-on"]) slot(id).disabled = refused.length === 0;
    },
  };
}

function standing({ approved, probability }, { labels_only: labelsOnly }) {
  if (approved) return "Already approved";
  return labelsOnly ? "refused" : `refused, chance ${chance(probability)}`;
}

/** A few values that tell people apart. */
function inShort(row, { features }) {
  return features.filter(({ name }) => own(row, name) !== null).slice(0, 4)
    .map((feature) => fullValue(feature, own(row, feature.name))).join(", ");
}

async function open(file, store, chosen) {
  const note = slot("case-note");
  note.textContent = "";
  fill(slot("file-rows"));
  try {
    if (file.size > LARGEST_FILE) throw new Error("This file is too large for a case (the most is 1 MB).");
    const tables = read(await file.text(), store.get().card);
    const take = async (table) => {
      const { row, left, missing } = fitting(table, store.get().card);
      const told = (words, names) => (names.length ? `${words}: ${fewOf(names.map(clean))}.` : "");
      note.textContent = [told("The file does not say, so fill in", missing.map(label)), told("Not used from the file", left)].join(" ").trim();
      const wrong = await chosen(row, null, missing.length > 0);
      if (wrong) note.textContent = `This row of the file is not shown: ${wrong}`;
    };
    await take(tables[0]);
    if (tables.length > 1) fill(slot("file-rows"), choice(tables, take));
  } catch (error) {
    note.textContent = error.message;
  }
}

const MOST_NAMED = 12;

function fewOf(names) {
  const rest = names.length - MOST_NAMED;
  return listed(rest > 0 ? [...names.slice(0, MOST_NAMED), `${rest} more`] : names);
}

function choice(tables, take) {
  const shown = tables.slice(0, MOST_ROWS); // a list in JSON may have more
  const select = el("select", { id: "file-row", on: { change: () => take(shown[Number(select.value)]) } },
    shown.map((table, i) => el("option", { value: i }, `${i + 1}: ${clean(Object.values(table).slice(0, 3).join(", ")).slice(0, 60)}`)));
  return [el("label", { for: "file-row" }, `Row of the file (${tables.length})`), select];
}

/** Read a JSON object, a list of them, or CSV with the names of its columns. */
function read(text, card) {
  const isJson = /^\s*[{[]/.test(text);
  const tables = isJson ? readJson(text) : readCsv(text, MOST_ROWS);
  const isTable = (table) => table !== null && typeof table === "object" && !Array.isArray(table);
  if (tables.length === 0 || !tables.every(isTable)) {
    throw new Error("A case file is a JSON object {column: value, …}, or CSV with the columns' names in its first line.");
  }
  const names = new Set(card.features.map((feature) => feature.name));
  if (!Object.keys(tables[0]).some((name) => names.has(name))) {
    throw new Error("This file names none of the values of this page.");
  }
  return tables;
}

function readJson(text) {
  try {
    return [JSON.parse(text)].flat();
  } catch {
    throw new Error("This file is no JSON. A case looks like {\"income\": 40500, …}.");
  }
}

/** Take from a file what the card knows; what it does not name is to be filled in, and never another customer's. */
function fitting(table, { features }) {
  const names = new Set(features.map((feature) => feature.name));
  return {
    row: Object.fromEntries(features.map((feature) => [feature.name, valueOf(feature, own(table, feature.name))])),
    left: Object.keys(table).filter((name) => !names.has(name)),
    missing: features.filter(({ name, may_be_missing: may }) => own(table, name) === undefined && !may).map(({ name }) => name),
  };
}

/** A value of a file; a level may be written in the words of this page. */
function valueOf({ levels }, raw) {
  const level = levels?.find(({ words }) => typeof raw === "string" && clean(words).toLowerCase() === clean(raw).toLowerCase());
  return level ? level.value : raw ?? null;
}
