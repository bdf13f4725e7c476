// Find, stop, continue; and what it has cost so far.

import { bdi, el, fill, slot } from "./dom.js";
import { keeping } from "./options.js";
import { paced } from "./pace.js";
import { isOtherCase, isRunning, same } from "./state.js";
import { chance, clean, counted, time } from "./words.js";

const PAUSE = 5000; // ms between two sentences, for those who have them read aloud

export function createBar(store, acts) {
  let offered = "";
  let status = "";
  const speak = () => say(slot("spoken"), summaryOf(store.get()));
  const speakSoon = paced(speak, PAUSE);

  function summarize(state) {
    const changed = status !== (state.search?.status ?? "");
    status = state.search?.status ?? "";
    say(slot("summary"), summaryOf(state));
    if (changed || !isRunning(state.search)) speak();
    else speakSoon();
  }

  function offer(state) {
    const buttons = buttonsFor(state, acts);
    const signature = JSON.stringify(buttons.map(({ words, kind, disabled }) => [words, kind, disabled]));
    if (signature === offered) return;
    offered = signature;
    const held = slot("actions").contains(document.activeElement);
    fill(slot("actions"), buttons.map(button));
    const enabled = [...slot("actions").querySelectorAll("button:enabled")];
    if (held) (enabled.find((each) => each.classList.contains("primary")) ?? enabled[0])?.focus();
  }

  // Seconds go on between two answers.
  setInterval(() => isRunning(store.get().search) && renderLedger(store.get()), 1000);

  return {
    render(state) {
      slot("bar").classList.toggle("is-running", isRunning(state.search) && !state.search.unheard);
      offer(state);
      summarize(state);
      renderLedger(state);
      renderOutcome(state);
    },
  };
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function button({ words, act, kind = "", disabled = false }) {
  // The second half of a double click would press what has taken the button's place.
  const once = (event) => event.detail < 2 && act();
  return el("button", { type: "button", class: kind, disabled, on: { click: once } }, words);
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
  const count = countOf(search);
  if (isRunning(search)) return soFar(search, count);
  if (isOtherCase(state)) return `${count} for the values before`;
  if (search.options.size === 0) return isStopped(search) ? "Stopped: no way out found yet" : "No way out found";
  if (same(state.locks, search.locks)) return count;
  return `${count}, ${keeping(search, state.locks, state.card).toLocaleString("en")} within your locks`;
}

/** "9 ways out (41 of 150 rows approved)"; while it runs, the options so far. */
function countOf({ ways, options, ended }) {
  const count = ways.length > 0 ? counted(ways.length, "way out", "ways out") : counted(options.size, "option");
  if (!ended?.asked) return count;
  return `${count} (${ended.approved.toLocaleString("en")} of ${counted(ended.asked, "row")} approved)`;
}

function soFar({ options, learning, unheard, llm, begun, budget, tried }, count) {
  if (unheard) return `${count} so far. The server does not answer: trying again…`;
  if (learning) return `${clean(learning.what)}: ${chance(learning.share, [])}`;
  if (options.size) return `${count} so far`;
  const isWaiting = llm && tried.length === 0 && budget.calls_left > 0 && budget.calls_left === begun.calls_left;
  return isWaiting ? "Waiting for the LLM's first suggestions…" : "Looking for ways out…";
}

const isStopped = ({ ended }) => ended?.outcome === "interrupted";

function renderLedger({ search, card }) {
  const dl = slot("ledger");
  dl.hidden = !search;
  slot("progress-done").style.setProperty("--share", search ? shareDone(search, card.limits) : 0);
  if (!search) return;
  const { ledger, budget } = search;
  const since = isRunning(search) && !search.unheard ? (performance.now() - search.ledgerAt) / 1000 : 0;
  const asksLlm = search.llm || ledger.llm_calls > 0;
  fill(dl,
    entry("Model asked", ledger.oracle_rows.toLocaleString("en"), budget.oracle_rows_left),
    asksLlm && entry("LLM calls", ledger.llm_calls.toLocaleString("en"), budget.calls_left),
    asksLlm && entry("Tokens", (ledger.tokens_in + ledger.tokens_out).toLocaleString("en")),
    entry("Time", time(ledger.seconds + since)));
}

/** How far the part that runs has come, by the rows and the LLM calls that it may use. */
function shareDone({ begun, budget }, { part_rows: rows }) {
  const asked = part(begun.oracle_rows_left - budget.oracle_rows_left, Math.min(rows, begun.oracle_rows_left));
  const called = part(begun.calls_left - budget.calls_left, begun.calls_left);
  return begun.calls_left > 0 ? (asked + called) / 2 : asked;
}

const part = (done, all) => (all > 0 ? Math.min(1, done / all) : 0);

function entry(name, value, left = null) {
  const more = left === null ? "" : ` · ${left.toLocaleString("en")} left`;
  return el("div", {}, el("dt", {}, name), el("dd", {}, el("strong", {}, value), more));
}

const ADVICE = {
  "budget-spent": "What to try: press Continue, or unlock something.",
  exhausted: "What to try: unlock something or loosen a limit, then continue.",
  infeasible: "What to try: unlock something or loosen a limit, then continue.",
  interrupted: "What was found is kept. Press Continue to go on.",
  failed: "What was found is kept. Press Continue to try again.",
};

const NO_MORE = "This search has asked the model as often as it may. What was found stays; start anew to search again.";

function adviceFor(state) {
  const { ended, options } = state.search;
  if (ended.outcome === "already-approved") return "";
  if (!canGoOn(state)) return NO_MORE;
  if (isStopped(state.search) && options.size === 0) return "Press Continue to go on.";
  return ADVICE[ended.outcome] ?? "";
}

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
  const advice = adviceFor(state);
  // The headline is above already.
  const said = clean(ended.sentence).replace(`${countOf(search)}. `, "");
  fill(box, el("p", {}, bdi(said)), advice ? el("p", {}, advice) : null);
}

function isBad({ ended, options }) {
  if (ended.outcome === "failed") return true;
  return options.size === 0 && ended.outcome !== "already-approved";
}
