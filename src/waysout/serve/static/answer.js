// What the model says of the case as it stands, what would turn it in one sentence, and the search.

import { bdi, el, fill, slot } from "./dom.js";
import { isOpen } from "./locks.js";
import { paced } from "./pace.js";
import { callsUsed, isOtherCase, isRunning, same } from "./state.js";
import { chance, clean, counted, time } from "./words.js";

const PAUSE = 5000; // ms between two sentences, for those who have them read aloud

/** A bar that shows a chance, with its words for those who do not see it. */
export function meter(probability, name = "Chance of a yes") {
  const share = Math.max(0, Math.min(1, probability));
  return el("div", {
    class: "meter", role: "meter", "aria-label": name, "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": Math.round(share * 100), "aria-valuetext": chance(probability), vars: { share },
  }, el("div", { class: "meter-done" }));
}

/** A yes of the model may still be less than what is asked for. */
export function verdict(card, { approved, decision }) {
  if (approved) return "Yes";
  return decision === card.yes ? "Not enough" : "No";
}

export function createAnswer(store, acts) {
  let offered = "";
  let shown = null;
  const speak = () => say(slot("spoken"), spokenOf(store.get()));
  const speakSoon = paced(speak, PAUSE);

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
  setInterval(() => isRunning(store.get().search) && renderStatus(store.get()), 1000);

  return {
    render(state) {
      const box = slot("answer");
      box.classList.toggle("is-old", Object.keys(state.faults).length > 0);
      box.classList.toggle("is-yes", Boolean(state.decision?.approved));
      slot("bar").classList.toggle("is-running", isRunning(state.search) && !state.search.unheard);
      if (state.decision && state.decision !== shown) renderDecision(state);
      shown = state.decision;
      box.hidden = !state.decision;
      offer(state);
      renderSentence(state);
      renderStatus(state);
      renderMeaning(state);
      if (isRunning(state.search)) speakSoon();
      else speak();
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

function renderDecision({ card, decision }) {
  fill(slot("decision"),
    el("strong", {}, verdict(card, decision)), ": ", bdi(clean(decision.decision)), ". ",
    card.labels_only ? null : ["Chance of a yes: ", el("strong", {}, chance(decision.probability)), ". "],
    el("span", { class: "soft" }, bdi(clean(card.goal_words))));
  fill(slot("decision-meter"), card.labels_only ? null : meter(decision.probability));
}

function buttonsFor(state, { find, stop, goOn, askLlm, anew, back }) {
  const { search, card } = state;
  const begin = { words: "Find ways", act: find, kind: "primary", disabled: !canSearch(state) };
  if (!search || search.status === "gone") return card.instant && !search ? [] : [begin];
  if (isRunning(search)) {
    const words = search.stopping ? "Stopping…" : "Stop, and keep what was found";
    return [{ words, act: stop, kind: "stop", disabled: search.stopping }];
  }
  if (isOtherCase(state)) {
    return [{ words: "Back to the values before", act: back, kind: "quiet" }, ...(card.instant ? [] : [begin])];
  }
  if (search.ended?.outcome === "already-approved") return [];
  const locked = !same(state.locks, search.locks);
  const further = { words: locked ? "Search with these limits" : "Look further", act: goOn,
    kind: locked ? "primary" : "", disabled: search.budget.oracle_rows_left === 0 };
  const ideas = canAskLlm(state) ? [{ words: "Ask the LLM for ideas", act: askLlm }] : [];
  return [{ words: "New search", act: anew, kind: "quiet" }, ...ideas, further];
}

export function canSearch({ decision, faults, row }) {
  const known = decision && same(decision.row, row);
  return Boolean(known) && !decision.approved && Object.keys(faults).length === 0;
}

/** Whether the LLM may still be asked about a search that has ended. */
export function canAskLlm({ search, calls }) {
  return Boolean(search.llm) && callsUsed(search) === 0 && calls > 0 && search.budget.oracle_rows_left > 0;
}

function sentenceOf(state) {
  const { search, decision, card } = state;
  if (Object.keys(state.faults).length > 0) return "Mend the value that is marked, and the search goes on.";
  if (!search && decision?.approved) return "Already approved: nothing needs to change.";
  if (search?.ended && !isOtherCase(state)) return endedWords(state);
  if (isRunning(search) && search.ways.length > 0) {
    return same(search.locks, search.lastLocks) ? clean(search.lastSentence) : "Looking again, within your limits…";
  }
  if (isRunning(search)) return "Looking for ways to a yes…";
  return card.instant ? "Looking for ways to a yes…" : "Press “Find ways” to look for ways to a yes.";
}

/** Nobody should read "no way out" about limits of their own. */
function endedWords({ search, locks }) {
  const said = clean(search.ended.sentence);
  return isOpen(locks) ? said : said.replace(/^No way out was found\./, "With what you ruled out, nothing was found that is enough.");
}

function renderSentence(state) {
  const text = sentenceOf(state);
  slot("sentence").classList.toggle("is-old", isRunning(state.search) || isOtherCase(state));
  if (slot("sentence").textContent !== text) fill(slot("sentence"), bdi(text));
}

/** "Stopped at the limit of 150 model checks. 0.4 s." */
function statusOf(state) {
  const { search, card } = state;
  if (!search) return "";
  if (isRunning(search)) return soFar(search);
  if (isOtherCase(state)) return "These are the routes for the values before.";
  const advice = adviceFor(state);
  const spent = [counted(search.ledger.oracle_rows, "model check")];
  if (search.ledger.llm_calls > 0) spent.push(counted(search.ledger.llm_calls, "LLM call"));
  const exact = card.limits.settling_rows > 0 ? "With what makes it exact" : "In all";
  const all = `${exact}: ${[...spent, time(search.ledger.seconds)].join(", ")}.`;
  return [clean(search.ended?.ending ?? ""), advice, all].filter(Boolean).join(" ");
}

function soFar({ learning, unheard, llm, begun, budget, ledger, ledgerAt }) {
  if (unheard) return "The server does not answer: trying again…";
  const seconds = ledger.seconds + (performance.now() - ledgerAt) / 1000;
  const isWaiting = llm && begun.calls_left > 0 && budget.calls_left === begun.calls_left;
  if (learning && !isWaiting) return `${capital(clean(learning.what))}${learning.share > 0 ? `: ${chance(learning.share, [])}` : "…"}`;
  const what = isWaiting ? "Waiting for the LLM" : `${counted(ledger.oracle_rows, "model check")} so far`;
  return `${what}, ${time(seconds)}.`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const ADVICE = {
  exhausted: "To find more, unlock something or loosen a limit.",
  infeasible: "To find more, unlock something or loosen a limit.",
  interrupted: "What was found is kept.",
  failed: "What was found is kept; look further to try again.",
};
const NO_MORE = "This search has asked the model as often as it may; a new search may ask again.";

function adviceFor({ search }) {
  if (search.ended?.outcome === "already-approved") return "";
  if (search.budget.oracle_rows_left === 0) return NO_MORE;
  if (search.ways.length > 0 && search.ended?.outcome === "exhausted") return "";
  return ADVICE[search.ended?.outcome] ?? "";
}

function renderStatus(state) {
  const { search, card } = state;
  say(slot("status"), statusOf(state));
  slot("status").classList.toggle("fault", search?.ended?.outcome === "failed");
  slot("bar").dataset.state = search ? search.status : "none";
  slot("progress-done").style.setProperty("--share", search ? shareDone(search, card.limits) : 0);
}

/** How far the part that runs has come, by the rows and the LLM calls that it may use. */
function shareDone({ begun, budget }, { part_rows: rows }) {
  const asked = part(begun.oracle_rows_left - budget.oracle_rows_left, Math.min(rows, begun.oracle_rows_left));
  const called = part(begun.calls_left - budget.calls_left, begun.calls_left);
  return begun.calls_left > 0 ? (asked + called) / 2 : asked;
}

const part = (done, all) => (all > 0 ? Math.min(1, done / all) : 0);

const spokenOf = (state) => (isRunning(state.search) ? "Searching." : `${sentenceOf(state)} ${statusOf(state)}`);

/** What a search costs, under "advanced". */
function renderMeaning({ card, calls }) {
  const { llm, stand_in: standIn, limits } = card;
  slot("calls-box").hidden = !llm;
  const box = slot("calls");
  box.max = limits.calls;
  if (box !== document.activeElement) box.value = calls;
  const exact = limits.settling_rows > 0 ? `, ${limits.settling_rows} to make exact what is shown` : "";
  const rows = `A search asks the model at most ${counted(limits.part_rows, "time")}${exact} and ${limits.setup_rows} for set-up; ` +
    `${counted(limits.oracle_rows, "time")} with all that follows it. Values that you try are asked besides.`;
  const who = llm ? ` The LLM: ${clean(llm)}${standIn ? ` (${standIn}: a stand-in, not a language model)` : ""}. ` +
    "It adds values with reasons after the search, and is never waited for." : " No LLM is asked.";
  say(slot("calls-meaning"), `${rows}${who}`);
}

/** Wire the number of LLM calls. */
export function createCalls(store) {
  slot("calls").addEventListener("change", (event) => {
    const wanted = Math.round(Number(event.target.value));
    const { card } = store.get();
    if (wanted >= 0) store.set({ calls: Math.min(wanted, card.limits.calls) });
  });
}
