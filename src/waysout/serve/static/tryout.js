// What if: a strip for each feature shows where the model's answer turns if it alone moves. Move one,
// and the answer and all other strips follow.

import { api, latestOnly } from "./api.js";
import { meter, verdict } from "./answer.js";
import { bdi, el, fill, setAttribute, slot } from "./dom.js";
import { createStrip } from "./strip.js";
import { isRunning, own, same } from "./state.js";
import { chance, clean, fullValue, heading, listed, plainValue } from "./words.js";

const PAUSE = 60; // ms: a slider sends many values

export function createTryout(store, { keep }) {
  const ask = latestOnly((question, signal) => api.decide(store.get().card.name, question, signal));
  const scan = latestOnly((question, signal) => api.strips(store.get().card.name, question, signal));
  let strips = new Map(); // feature → its strip
  let scanned = null; // the question that the strips answer
  let built = null;
  let shown = null; // the answer that stands there

  const question = ({ row, trial, locks }) => ({ row: trial ?? row, query: row, locks });

  function moved(name, value) {
    const { row, trial } = store.get();
    const next = { ...(trial ?? row), [name]: value };
    store.set({ trial: same(next, row) ? null : next });
    slot("try-answer").classList.add("is-old");
    ask(question(store.get()), PAUSE, (told) => store.set({ trialAnswer: told }), failed);
    if (store.get().card.instant) rescan(store.get(), 2 * PAUSE);
  }

  const failed = (error) => fill(slot("try-answer"), el("p", { class: "fault", role: "alert" }, clean(error.message)));

  function rescan(state, pause = 0) {
    scanned = question(state);
    scan(scanned, pause, (told) => draw(store.get(), told.strips), failed);
  }

  function draw(state, told) {
    const open = told.filter((each) => each.open);
    const names = open.map(({ feature }) => feature).join("\n");
    if (built !== `${state.card.name}\n${names}`) build(state, open, `${state.card.name}\n${names}`);
    for (const each of open) strips.get(each.feature).show(each, own(state.trial ?? state.row, each.feature));
    renderStays(state, told.filter((each) => !each.open));
  }

  function build({ card }, open, signature) {
    built = signature;
    const features = new Map(card.features.map((feature) => [feature.name, feature]));
    strips = new Map(open.map((each, i) => [each.feature, createStrip(features.get(each.feature), `strip-${i}`, moved)]));
    fill(slot("strips"), [...strips.values()].map((strip) => strip.node));
  }

  /** Show a row of a way here. */
  function open(row) {
    const state = store.get();
    store.set({ trial: { ...state.row, ...row } });
    slot("try").scrollIntoView({ block: "start" });
    slot("try-heading").focus({ preventScroll: true });
    slot("try-answer").classList.add("is-old");
    ask(question(store.get()), 0, (told) => {
      store.set({ trial: same(told.row, store.get().row) ? null : told.row, trialAnswer: told });
      rescan(store.get());
    }, failed);
  }

  const reset = () => {
    store.set({ trial: null, trialAnswer: null });
    rescan(store.get());
  };
  slot("try-reset").addEventListener("click", reset);
  slot("try-keep").addEventListener("click", () => keep(store.get().trial));
  slot("try-ask").addEventListener("click", () => rescan(store.get()));

  return {
    open,
    render(state) {
      const { card, decision, search, trial, trialAnswer } = state;
      const ready = Boolean(decision) && same(decision.row, state.row) && Object.keys(state.faults).length === 0;
      slot("try").hidden = !ready;
      if (!ready) return;
      slot("try-ask").hidden = card.instant;
      const told = trial ? trialAnswer : null;
      const stands = told ?? (trial ? null : decision);
      if (stands && stands !== shown) {
        renderAnswer(state, told);
        shown = stands;
      }
      const kept = Boolean(trial) && (search?.pins ?? []).some((pin) => same(pin.changes, told?.changes));
      slot("try-keep").hidden = !trial || !search || kept || !isGood(told, trial);
      slot("try-kept").hidden = !kept;
      slot("try-reset").hidden = !trial;
      // The search goes first: it is what a person waits for.
      if (!card.instant || isRunning(search) || (!search && !decision.approved)) return;
      if (!same(scanned, question(state))) rescan(state);
    },
  };
}

const isGood = (answer, trial) => Boolean(answer?.approved) && answer.broken.length === 0 && same(answer.row, trial);

function renderAnswer({ card, decision }, told) {
  const box = slot("try-answer");
  const shown = told ?? decision;
  box.classList.remove("is-old");
  box.classList.toggle("is-yes", shown.approved && !(told?.broken.length > 0));
  const features = new Map(card.features.map((feature) => [feature.name, feature]));
  const changes = told ? Object.entries(told.changes).map(([name, [from, to]]) =>
    `${heading(name)}: ${plainValue(features.get(name), from)} → ${fullValue(features.get(name), to)}`) : [];
  fill(box,
    el("p", { class: "try-verdict" }, el("strong", {}, verdict(card, shown)), ": ", bdi(clean(shown.decision)), ". ",
      card.labels_only ? null : ["Chance of a yes: ", el("strong", {}, chance(shown.probability)), "."]),
    card.labels_only ? null : meter(shown.probability),
    el("p", { class: "small" }, changes.length ? bdi(changes.join("; ")) : "With the present values. Move one to see what the model says."),
    (told?.broken ?? []).map(({ says, reason }) => el("p", { class: "tag warn block" }, "Not allowed: ", bdi(clean(says || reason)))));
}

function renderStays({ card }, closed) {
  const features = new Map(card.features.map((feature) => [feature.name, feature]));
  const told = closed.filter(({ feature }) => features.has(feature)).map(({ feature, start }) =>
    `${heading(feature)} (${fullValue(features.get(feature), start)})`);
  slot("stays").textContent = told.length ? `Stays as it is: ${clean(listed(told))}.` : "";
  setAttribute(slot("stays"), "hidden", told.length === 0);
}
