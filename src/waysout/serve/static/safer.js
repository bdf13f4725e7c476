// A slider inside a card: the same plan carried farther, and what the model says of each step.

import { el, fill, setAttribute } from "./dom.js";
import { chance, counted } from "./words.js";

let made = 0;

/** Make the slider of a way. `ask(way)` returns its steps, asked in one go; `moved(step)` shows one. */
export function createSafer(way, { card, ask, moved }) {
  const id = `safer-${(made += 1)}`;
  const said = el("p", { id: `${id}-said`, class: "small soft" });
  let steps = null;
  let asking = null;

  const load = () => (asking ??= ask(way).then((found) => {
    steps = found.length > 1 ? found : null;
    setAttribute(slider, "max", Math.max(1, found.length - 1));
    slider.disabled = !steps;
    if (!steps) fill(said, "There is nothing farther to go.");
    else show();
  }, () => {
    asking = null; // so that it can be tried again
    fill(said, "The model did not answer.");
  }));
  const show = () => {
    if (!steps) return load();
    const at = Math.min(steps.length - 1, Number(slider.value));
    const step = steps[at];
    setAttribute(slider, "aria-valuetext", at === 0 ? "just enough" : wordsOf(step, card));
    fill(said, at === 0 ? "Just enough." : wordsOf(step, card));
    return moved(at === 0 ? way : { ...step, reach: reachOf(way, step) });
  };
  const slider = el("input", {
    id, type: "range", min: 0, max: 8, step: 1, value: 0, "aria-describedby": said.id,
    on: { input: show, pointerdown: load, focus: load },
  });
  return el("div", { class: "safer" },
    el("label", { for: id }, "How safe"),
    el("div", { class: "safer-slider" }, el("span", { class: "small soft", "aria-hidden": "true" }, "just enough"), slider,
      el("span", { class: "small soft", "aria-hidden": "true" }, "safer")),
    said);
}

/** How far along what is allowed a step goes, from how far the way itself does. */
function reachOf({ reach = {}, changes }, step) {
  return Object.fromEntries(Object.entries(reach).map(([name, far]) => {
    const [[from, to], [, there]] = [changes[name], step.changes[name] ?? changes[name]];
    const isNumber = far.share !== null && [from, to, there].every((value) => typeof value === "number");
    return [name, isNumber ? { ...far, share: Math.min(1, far.share * ((there - from) / (to - from))) } : far];
  }));
}

function wordsOf({ share, approved, probability }, { labels_only: labelsOnly }) {
  const far = share < 1 ? `${Math.round(share * 100)}\u00a0% farther` : `${counted(share + 1, "time")} as far`;
  if (!approved) return `${far}: a no again. Going farther does not help here.`;
  return labelsOnly ? `${far}: still a yes.` : `${far}: chance ${chance(probability)}.`;
}
