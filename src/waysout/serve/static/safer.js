// A slider inside a card: the same plan carried farther, and what the model says of each step.

import { el, fill, setAttribute } from "./dom.js";
import { chance, clean, counted } from "./words.js";

let made = 0;

/** Make the slider of a way. `ask(way)` returns its steps, asked in one go; `moved(step)` shows one. */
export function createSafer(way, { card, ask, moved }) {
  const id = `safer-${(made += 1)}`;
  const said = el("p", { id: `${id}-said`, class: "small soft" });
  let steps = null;
  let ends = ""; // why it goes no farther
  let asking = null;

  const load = () => (asking ??= ask(way).then((found) => {
    const refused = found.findIndex((step, i) => i > 0 && !step.approved);
    steps = refused < 0 ? found : found.slice(0, refused);
    ends = refused < 0 ? "" : " Farther than this it is a no again.";
    setAttribute(slider, "max", Math.max(1, steps.length - 1));
    slider.disabled = steps.length < 2;
    show();
  }, () => {
    asking = null; // so that it can be tried again
    fill(said, "The model did not answer.");
  }));
  const show = () => {
    if (!steps) return load();
    const at = Math.min(steps.length - 1, Number(slider.value));
    const words = wordsOf(steps[at], at, card) + (at === steps.length - 1 ? ends : "");
    setAttribute(slider, "aria-valuetext", words);
    setAttribute(slider, "aria-label", `How safe: ${clean(steps[at].title)}`);
    fill(said, words);
    return moved(at === 0 ? way : steps[at]);
  };
  const slider = el("input", {
    id, type: "range", min: 0, max: 8, step: 1, value: 0, "aria-describedby": said.id, "aria-valuetext": "Just enough.",
    "aria-label": `How safe: ${clean(way.title)}`, on: { input: show, pointerdown: load, focus: load },
  });
  return el("div", { class: "safer" },
    el("label", { for: id }, "How safe"),
    el("div", { class: "safer-slider" }, el("span", { class: "small soft", "aria-hidden": "true" }, "just enough"), slider,
      el("span", { class: "small soft", "aria-hidden": "true" }, "safer")),
    said);
}

function wordsOf({ share, probability }, at, { labels_only: labelsOnly }) {
  if (at === 0) return "Just enough.";
  const far = share < 1 ? `${Math.round(share * 100)}\u00a0% farther` : `${counted(share + 1, "time")} as far`;
  return labelsOnly ? `${far}: still a yes.` : `${far}: chance ${chance(probability)}.`;
}
