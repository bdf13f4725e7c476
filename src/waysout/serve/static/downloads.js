// What a person takes along: a page to print, a letter, a table, the data.

import { searchPath } from "./api.js";
import { el, fill, slot } from "./dom.js";
import { isRunning } from "./state.js";
import { counted } from "./words.js";

const FILES = [
  { words: "Report", path: "/report.html", tab: true },
  { words: "Letter", path: "/letter.html", tab: true },
  { words: "Letter as text", path: "/letter.txt" },
  { words: "Table (CSV)", path: "/ways.csv" },
  { words: "Data (JSON)", path: "/result.json" },
];

export function createDownloads() {
  let shown = "";
  return {
    render({ search }) {
      const signature = search ? `${search.id} ${isRunning(search)} ${search.pins.length} ${search.ways.length}` : "";
      slot("take").hidden = !search || search.ways.length === 0;
      if (signature === shown || !search) return;
      shown = signature;
      slot("take-note").textContent = search.pins.length > 0
        ? `Report and letter show ${counted(search.pins.length, "pinned route")}.`
        : "Report and letter choose the best routes. Pin those that you want in them instead.";
      fill(slot("downloads"), FILES.map((file) => link(search, file)));
    },
  };
}

function link(search, { words, path, tab }) {
  if (isRunning(search)) return el("span", { class: "button is-off", title: "Once the search has ended" }, words);
  const where = tab ? { target: "_blank", rel: "noopener" } : { download: true };
  return el("a", { class: "button", href: searchPath(search.id, path) + (tab ? "" : "?download=1"), ...where }, words);
}
