// What a person takes along: a page to print, a letter, a table, the data.

import { searchPath } from "./api.js";
import { el, fill, slot } from "./dom.js";
import { isRunning } from "./state.js";

const FILES = [
  { words: "Report", path: "/report.html", tab: true },
  { words: "Letter", path: "/letter.html", tab: true },
  { words: "Letter as text", path: "/letter.txt" },
  { words: "Table (CSV)", path: "/options.csv", early: true },
  { words: "Data (JSON)", path: "/result.json" },
];

export function createDownloads() {
  let shown = "";
  return {
    render({ search }) {
      const signature = search ? `${search.id} ${isRunning(search)}` : "";
      if (signature === shown) return;
      shown = signature;
      if (!search) return;
      fill(slot("downloads"), el("span", { class: "soft" }, "Take it with you:"),
        FILES.map((file) => link(search, file)), print());
    },
  };
}

function link(search, { words, path, tab, early }) {
  if (isRunning(search) && !early) {
    return el("span", { class: "button is-off", title: "Once the search has stopped" }, words);
  }
  const where = tab ? { target: "_blank", rel: "noopener" } : { download: true };
  return el("a", { class: "button", href: searchPath(search.id, path) + (tab ? "" : "?download=1"), ...where }, words);
}

const print = () => el("button", { type: "button", on: { click: () => window.print() } }, "Print this page");
