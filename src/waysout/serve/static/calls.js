// How many LLM calls a person will pay, and what that buys.

import { setAttribute, slot } from "./dom.js";
import { isRunning } from "./state.js";
import { clean, counted } from "./words.js";

export function createCalls(store) {
  const [box, slider] = [slot("calls"), slot("calls-slider")];
  const changed = (event) => {
    const { card } = store.get();
    const wanted = Math.round(Number(event.target.value));
    if (event.target.value === "" || !(wanted >= 0)) return;
    store.set({ calls: Math.min(Math.max(wanted, least(store.get())), card.limits.calls) });
  };
  box.addEventListener("change", changed);
  slider.addEventListener("input", changed);

  return {
    render(state) {
      const { card, calls } = state;
      for (const node of [box, slider]) {
        setAttribute(node, "min", least(state));
        setAttribute(node, "max", card.limits.calls);
        node.disabled = !card.llm || isRunning(state.search);
        if (node !== document.activeElement || node === slider) node.value = calls;
      }
      slot("calls-meaning").textContent = meaning(state);
    },
  };
}

/** What is spent cannot be taken back. */
const least = ({ search }) => search?.ledger?.llm_calls ?? 0;

function meaning({ card, search }) {
  const rows = card.limits.part_rows;
  if (!card.llm) {
    return "No language model (LLM) is set up here: the search makes its own suggestions. " +
      `The model that decides is asked at most ${rows} times.`;
  }
  const who = card.simulated ? `${clean(card.llm)} (simulated: a stand-in that makes suggestions up)` : clean(card.llm);
  if (search) return `${counted(search.ledger.llm_calls, "call")} made by this search so far. The LLM: ${who}.`;
  return "A language model (LLM) suggests changes, a few with each call; " +
    `the model that decides is then asked at most ${rows} times. The LLM here: ${who}.`;
}
