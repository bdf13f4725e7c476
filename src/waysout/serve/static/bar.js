// Find, stop, continue; and what it has cost so far.

import { bdi, el, fill, slot } from "./dom.js";
import { keeping } from "./options.js";
import { isOtherCase, isRunning, same } from "./state.js";
import { chance, clean, counted, time } from "./words.js";

const PAUSE = 1000; // ms between two sentences, for those who have them read aloud

export function createBar(store, acts) {
  let told = { text: "", when: -PAUSE, status: "" };
  let waiting = 0;
  let offered = "";

  function summarize(state) {
    const text = summaryOf(state);
    const status = state.search?.status ?? "";
    const left = told.when + PAUSE - performance.now();
    if (text === told.text) return;
    clearTimeout(waiting);
    if (isRunning(state.search) && status === told.status && left > 0) {
      waiting = setTimeout(() => summarize(store.get()), left);
      return;
    }
    told = { text, status, when: performance.now() };
    slot("summary").textContent = text;
  }

  function offer(state) {
    const buttons = buttonsFor(state, acts);
    const signature = JSON.stringify(buttons.map(({ words, kind, disabled }) => [words, kind, disabled]));
    if (signature === offered) return;
    offered = signature;
    const held = slot("actions").contains(document.activeElement);
    fill(slot("actions"), buttons.map(button));
    if (held) slot("actions").querySelector("button:not(:disabled)")?.focus();
  }

  // Seconds go on between two answers.
  setInterval(() => isRunning(store.get().search) && renderLedger(store.get()), 1000);

  return {
    render(state) {
      slot("bar").classList.toggle("is-running", isRunning(state.search));
      offer(state);
      summarize(state);
      renderLedger(state);
      renderOutcome(state);
    },
  };
}

function button({ words, act, kind = "", disabled = false }) {
  return el("button", { type: "button", class: kind, disabled, on: { click: act } }, words);
}

function buttonsFor(state, { find, stop, goOn, anew, back }) {
  const { search, locks } = state;
  const begin = { words: "Find ways out", act: find, kind: "primary", disabled: !canSearch(state) };
  if (!search || search.status === "gone") return [begin];
  if (isRunning(search)) {
    const words = search.stopping ? "Stopping…" : "Stop, and keep what was found";
    return [{ words, act: stop, kind: "stop", disabled: search.stopping }];
  }
  if (isOtherCase(state)) return [{ words: "Back to the values before", act: back, kind: "quiet" }, begin];
  const words = same(locks, search.locks) ? "Continue" : "Continue with these locks";
  return [
    { words: "Start anew", act: anew, kind: "quiet" },
    { words, act: goOn, kind: "primary", disabled: !canGoOn(state) },
  ];
}

function canSearch({ decision, faults, row }) {
  const known = decision && same(decision.row, row);
  return Boolean(known) && !decision.approved && Object.keys(faults).length === 0;
}

const canGoOn = ({ search }) => search.ended?.outcome !== "already-approved" && search.budget.oracle_rows_left > 0;

function summaryOf(state) {
  const { search, decision } = state;
  if (!search && decision?.approved) return "It is a yes already: nothing needs to change.";
  if (!search) return "Ready to look for ways out.";
  const count = counted(search.options.size, "way out", "ways out");
  if (isRunning(search)) {
    if (search.learning) return `${clean(search.learning.what)}: ${chance(search.learning.share)}`;
    return search.options.size ? `${count} so far` : "Looking for ways out…";
  }
  if (isOtherCase(state)) return `${count} for the values before`;
  if (search.options.size === 0) return "No way out found";
  if (same(state.locks, search.locks)) return count;
  return `${count}, ${keeping(search, state.locks).toLocaleString("en")} within your locks`;
}

function renderLedger({ search, card }) {
  const dl = slot("ledger");
  dl.hidden = !search;
  const share = search ? Math.max(part(search.ledger.llm_calls, search.budget.calls_left), partRows(search, card)) : 0;
  slot("progress-done").style.setProperty("--share", share);
  if (!search) return;
  const { ledger, budget } = search;
  const since = isRunning(search) ? (performance.now() - search.ledgerAt) / 1000 : 0;
  fill(dl,
    entry("LLM calls", ledger.llm_calls, `${budget.calls_left} left`),
    entry("Model asked", counted(ledger.oracle_rows, "time"), `${budget.oracle_rows_left.toLocaleString("en")} left`),
    entry("Tokens", (ledger.tokens_in + ledger.tokens_out).toLocaleString("en")),
    entry("Time", time(ledger.seconds + since)));
}

const part = (used, left) => (used + left > 0 ? used / (used + left) : 0);

/** How far this part has come with its rows: a part may ask for fewer than are left in all. */
function partRows({ ledger, budget, part: number }, card) {
  const most = Math.min(card.limits.part_rows * number, ledger.oracle_rows + budget.oracle_rows_left);
  return most > 0 ? Math.min(1, ledger.oracle_rows / most) : 0;
}

function entry(name, value, more = "") {
  return el("div", {}, el("dt", {}, name), el("dd", {}, el("strong", {}, String(value)), more ? ` · ${more}` : ""));
}

const ADVICE = {
  "budget-spent": "What to try: press Continue, allow more LLM calls, or unlock something on the left.",
  exhausted: "What to try: unlock something or loosen a limit on the left, then continue.",
  infeasible: "What to try: unlock something or loosen a limit on the left, then continue.",
  interrupted: "What was found is kept. Press Continue to go on.",
  failed: "What was found is kept. Press Continue to try again.",
};

const NO_MORE = "All that this search may ask is used up: start anew to go on.";

function renderOutcome(state) {
  const { search } = state;
  slot("hints").hidden = Boolean(search);
  const box = slot("outcome");
  const ended = search?.ended;
  box.hidden = !ended;
  box.className = "outcome";
  if (!ended) return;
  box.classList.toggle("note", isBad(search));
  box.classList.toggle("is-old", isOtherCase(state));
  const advice = canGoOn(state) ? ADVICE[ended.outcome] : ADVICE[ended.outcome] && NO_MORE;
  fill(box, el("p", {}, bdi(clean(ended.sentence))), advice ? el("p", {}, advice) : null);
}

function isBad({ ended, options }) {
  if (ended.outcome === "failed") return true;
  return options.size === 0 && ended.outcome !== "already-approved";
}
