// What the model says of the case as it stands.

import { bdi, el, fill, slot } from "./dom.js";
import { chance, clean } from "./words.js";

/** A bar that shows a chance, with its words for those who do not see it. */
export function meter(probability, name = "Chance of a yes") {
  const share = Math.max(0, Math.min(1, probability));
  return el("div", {
    class: "meter", role: "meter", "aria-label": name, "aria-valuemin": "0", "aria-valuemax": "100",
    "aria-valuenow": Math.round(share * 100), "aria-valuetext": chance(probability), vars: { share },
  }, el("div", { class: "meter-done" }));
}

export function createDecision({ whatIf }) {
  let shown = null;
  slot("decision-what-if").addEventListener("click", () => whatIf(null));
  return {
    render({ card, decision, faults }) {
      const box = slot("decision");
      box.classList.toggle("is-old", Object.keys(faults).length > 0);
      box.hidden = !decision;
      if (!decision || decision === shown) return;
      shown = decision;
      box.classList.toggle("is-yes", decision.approved);
      fill(slot("decision-words"),
        el("p", { class: "decision-answer" },
          el("strong", {}, answer(card, decision)), bdi(clean(decision.decision)), "."),
        card.labels_only ? null : el("p", {},
          "Chance of a yes: ", el("strong", {}, chance(decision.probability)), goal(card)));
      fill(slot("decision-meter"), card.labels_only ? null : meter(decision.probability));
    },
  };
}

/** A yes of the model may still be less than what is asked for. */
export function answer(card, { approved, decision }) {
  if (approved) return "Yes: ";
  return decision === card.yes ? "Not enough: " : "No: ";
}

const OWN_YES = "the model's own yes"; // goes without saying

function goal({ goal: wanted }) {
  return wanted && wanted !== OWN_YES ? el("span", { class: "soft" }, " · wanted: ", bdi(clean(wanted))) : null;
}
