// How many LLM calls a person will pay, and what that buys.

import { setAttribute, slot } from "./dom.js";
import { callsUsed, isRunning } from "./state.js";
import { clean, counted } from "./words.js";

export function createCalls(store) {
  const [box, slider] = [slot("calls"), slot("calls-slider")];
  const changed = (event) => {
    const { card, search } = store.get();
    const wanted = Math.round(Number(event.target.value));
    if (event.target.value === "" || !(wanted >= 0)) return;
    store.set({ calls: Math.min(Math.max(wanted, callsUsed(search)), card.limits.calls) });
  };
  box.addEventListener("change", changed);
  slider.addEventListener("input", changed);

  return {
    render(state) {
      const { card, calls, search } = state;
      slot("calls-box").hidden = !card.llm;
      setAttribute(box, "min", callsUsed(search));
      slot("calls-label").textContent = search ? "LLM calls in all, at most" : "LLM calls it may cost, at most";
      for (const node of [box, slider]) {
        setAttribute(node, "max", card.limits.calls);
        node.disabled = isRunning(search);
        if (node !== document.activeElement || node === slider) node.value = calls;
      }
      slot("calls-meaning").textContent = meaning(state);
    },
  };
}

function meaning({ card, search, calls }) {
  const { llm, simulated, limits } = card;
  const who = simulated ? `${clean(llm)} (simulated: a stand-in that makes suggestions up)` : clean(llm);
  if (search) return `${furtherCost(search, calls, limits)}${llm ? ` The LLM: ${who}.` : ""}`;
  if (!llm) return `The model that decides is asked at most ${asking(limits.part_rows, limits)}.`;
  return "A language model (LLM) suggests changes, a few with each call; " +
    `the model that decides is asked at most ${asking(limits.part_rows, limits)}. The LLM here: ${who}.`;
}

/** How often the model is asked: about candidates, and to try it and to check what was found. */
function asking(times, { setup_rows: setup }) {
  return `${counted(times, "time")} for the search and ${setup} for set-up`;
}

/** What continuing costs, and what it does not pay again. */
function furtherCost(search, calls, limits) {
  const { oracle_rows_left: left } = search.budget;
  const rows = `the model that decides at most ${asking(Math.min(limits.part_rows, left), limits)}`;
  const known = "what is known already is not asked again";
  if (!search.llm) return isRunning(search) || left === 0 ? "" : `Continue asks ${rows}; ${known}.`;
  if (isRunning(search) || left === 0) return `${counted(callsUsed(search), "call")} made so far.`;
  const more = calls - callsUsed(search);
  const calling = more > 0 ? `at most ${counted(more, "more LLM call")}` : "no LLM call unless you allow more";
  return `Continue makes ${calling}, and asks ${rows}; ${known}.`;
}
