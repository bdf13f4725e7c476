// What if: move one value after another and see the model's answer at once.

import { api, latestOnly } from "./api.js";
import { bdi, el, fill, slot } from "./dom.js";
import { answer as answerWord, meter } from "./decision.js";
import { control, faultOf, stepOf } from "./inputs.js";
import { own } from "./state.js";
import { chance, clean, fullValue, heading, plainValue } from "./words.js";

const PAUSE = 120;
const FARTHEST = 1e14; // beyond, a lever has no end to slide to

/** Wire the dialog. `open(option)` starts from an option, or from the case itself with null. */
export function createWhatIf(store) {
  const dialog = slot("what-if");
  const ask = latestOnly((question, signal) => api.decide(store.get().card.name, question, signal));
  let query = {};
  let locks = {};
  let start = {};
  let row = {};

  const question = () => ({ row, query, locks });
  const answered = (answer) => renderAnswer(store.get().card, answer);
  const failed = (error) =>
    fill(slot("what-if-answer"), el("p", { class: "fault", role: "alert" }, clean(error.message)));
  const moved = (name, value) => {
    row = { ...row, [name]: value };
    slot("what-if-answer").classList.add("is-old");
    ask(question(), PAUSE, answered, failed);
  };

  const begin = () => ask(question(), 0, (answer) => {
    row = answer.row; // an option may write its numbers as the table does, which no slider takes
    renderLevers(store.get().card, answer.levers, { query, row, moved });
    answered(answer);
  }, failed);

  function open(option) {
    const { search, row: typed } = store.get();
    query = option && search ? search.row : typed;
    locks = store.get().locks;
    start = option ? option.row : query;
    row = start;
    fill(slot("what-if-levers"));
    fill(slot("what-if-answer"), el("p", { class: "soft" }, "Asking the model…"));
    dialog.showModal();
    begin();
  }

  slot("what-if-close").addEventListener("click", () => dialog.close());
  slot("what-if-reset").addEventListener("click", () => {
    row = start;
    begin();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return { open };
}

function renderAnswer(card, answer) {
  const box = slot("what-if-answer");
  const features = new Map(card.features.map((feature) => [feature.name, feature]));
  const good = answer.approved && answer.broken.length === 0;
  box.classList.remove("is-old");
  box.classList.toggle("is-yes", good);
  fill(box,
    el("p", { class: "decision-answer" }, el("strong", {}, answerWord(card, answer)), bdi(clean(answer.decision)), "."),
    card.labels_only ? null : [
      el("p", {}, "Chance of a yes: ", el("strong", {}, chance(answer.probability))),
      meter(answer.probability),
    ],
    changesLine(answer.changes, features),
    answer.broken.map(({ reason, rule }) =>
      el("p", { class: "tag warn block" }, "Not allowed: ", bdi(clean(reason || rule)))));
}

function changesLine(changes, features) {
  const told = Object.entries(changes).map(([name, [from, to]]) => el("li", {},
    bdi(heading(name)), ": ", bdi(plainValue(features.get(name), from)), " → ",
    el("strong", {}, bdi(fullValue(features.get(name), to)))));
  if (told.length === 0) return el("p", { class: "soft" }, "Nothing changed yet. Move a value below.");
  return el("ul", { class: "what-if-changes" }, told);
}

function renderLevers(card, levers, { query, row, moved }) {
  const isOpen = (feature) => own(levers, feature.name)?.open;
  const valuesOf = (feature) => ({ before: own(query, feature.name), now: own(row, feature.name) });
  const told = (feature) => `${heading(feature.name)} ${fullValue(feature, own(query, feature.name))}`;
  const stays = card.features.filter((feature) => !isOpen(feature)).map(told);
  fill(slot("what-if-levers"),
    card.features.filter(isOpen).map((feature, i) =>
      lever(feature, own(levers, feature.name), `lever-${i}`, valuesOf(feature), moved)),
    stays.length ? el("p", { class: "small soft" }, "Stays as it is: ", bdi(stays.join(", ")), ".") : null);
}

function lever(feature, told, id, { before, now }, moved) {
  const values = told.choices ? [before, ...told.choices.filter((value) => value !== before)] : null;
  const tell = () => {
    const value = input.get();
    if (faultOf(feature, value)) return;
    if (slider && value !== null) slider.value = value;
    moved(feature.name, value);
  };
  const about = clean(feature.about);
  const describedBy = about ? `${id}-about ${id}-now` : `${id}-now`;
  const input = control(feature, { id, describedBy, values, changed: tell });
  const slider = sliderFor(feature, told, before, (value) => {
    input.set(value);
    moved(feature.name, value);
  });
  input.set(now);
  if (slider && now !== null) slider.value = now;
  return el("div", { class: "lever" },
    el("div", {},
      el("label", { for: id }, bdi(heading(feature.name))),
      about && el("p", { id: `${id}-about`, class: "small soft" }, bdi(about))),
    slider ?? el("span"),
    el("div", {},
      el("span", { class: "lever-value" }, input.node,
        feature.unit && el("span", { class: "unit" }, bdi(clean(feature.unit)))),
      el("p", { id: `${id}-now`, class: "small soft" }, "now ", bdi(fullValue(feature, before)))));
}

/** A slider over what the lever spans, its marks on the lever's own grid; null where it has no end. */
function sliderFor(feature, { low, high, step }, before, moved) {
  if (feature.levels || low === null || high === null || low < -FARTHEST || high > FARTHEST || high <= low) return null;
  const grid = step ?? (stepOf(feature) === "any" ? (high - low) / 200 : stepOf(feature));
  const places = Math.max(0, Math.min(10, -Math.floor(Math.log10(grid))));
  const on = typeof before === "number" ? before : low;
  const min = on - Math.floor((on - low) / grid + 1e-9) * grid;
  const node = el("input", {
    type: "range", min: Math.min(min, on), max: Math.max(high, on), step: grid,
    "aria-label": `${heading(feature.name)}, slider`,
    on: { input: () => moved(Number(Number(node.value).toFixed(places))) },
  });
  return node;
}
