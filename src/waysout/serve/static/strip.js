// One feature from its present value to its limits: where the answer turns, what is forbidden, and
// what the model was never asked. Its values are drawn evenly, so that near ones have room.

import { bdi, el, fill, setAttribute } from "./dom.js";
import { control, faultOf, stepOf } from "./inputs.js";
import { clean, fullValue, heading, plainValue } from "./words.js";

const SIDE = 40; // values of a strip on each side of the present one, besides those that were asked
const FARTHEST = 1e14; // beyond, a feature has no end to slide to

/** Make the strip of a feature; `moved(name, value)` is told. */
export function createStrip(feature, id, moved) {
  return feature.levels ? levelStrip(feature, id, moved) : numberStrip(feature, id, moved);
}

function frame(feature, id, { head, body, said }) {
  return el("div", { class: "strip-row", role: "group", "aria-labelledby": `${id}-name`, "data-feature": feature.name },
    el("div", { class: "strip-head" }, el("strong", { id: `${id}-name` }, bdi(heading(feature.name))), head), body, said);
}

function levelStrip(feature, id, moved) {
  const chips = el("div", { class: "chips" });
  const now = el("span", { class: "soft small" });
  const said = el("p", { class: "strip-said" });
  const node = frame(feature, id, { head: now, body: chips, said });
  const show = (told, value) => {
    fill(now, "now ", bdi(plainValue(feature, told.start)));
    fill(said, bdi(saidOf(told)));
    const asked = [...told.asked.map((each) => ({ ...each, kind: kindOf(each) })),
      ...told.forbidden.map(({ from, why }) => ({ value: from, why, kind: "forbidden" }))];
    const held = chips.contains(document.activeElement) ? document.activeElement.dataset.level : null;
    fill(chips, asked.map(({ value: level, kind, why }) => el("button", {
      type: "button", class: `chip ${kind}`, "aria-pressed": String(level === value), disabled: kind === "forbidden",
      "data-level": String(level), title: why ? clean(why) : null, on: { click: () => moved(feature.name, level) },
    }, bdi(plainValue(feature, level)), el("span", { class: "unseen" }, `: ${MEANS[kind]}`))));
    if (held !== null) [...chips.children].find((chip) => chip.dataset.level === held)?.focus();
  };
  return { node, show };
}

const MEANS = { yes: "a yes", no: "a no", forbidden: "not allowed" };

function numberStrip(feature, id, moved) {
  const line = el("div", { class: "strip", role: "img" });
  const said = el("p", { class: "strip-said" });
  const now = el("span", { class: "soft small" });
  const ends = el("div", { class: "strip-ends small soft", "aria-hidden": "true" });
  const [before, after] = ["before", "after"].map((side) =>
    el("span", { class: `stub ${side}`, title: "not allowed", "aria-hidden": "true", hidden: true }));
  const fault = el("p", { id: `${id}-fault`, class: "fault", hidden: true });
  let values = [];
  let told = null;
  const tell = (value) => {
    shift(value);
    moved(feature.name, value);
  };
  const slider = el("input", { type: "range", min: 0, step: 1, "aria-label": `${heading(feature.name)}, slider`,
    on: { input: () => tell(values[Number(slider.value)]) } });
  const box = control(feature, { id, describedBy: `${id}-fault`, changed: () => {
    const value = box.get();
    const wrong = faultOf(feature, value, told?.start) || outside(feature, told, value);
    fault.hidden = !wrong;
    fault.textContent = wrong;
    setAttribute(box.node, "aria-invalid", wrong ? "true" : null);
    if (!wrong && value !== null) tell(value);
  } });
  setAttribute(box.node, "aria-label", `${heading(feature.name)}, value to try`);

  /** Put the slider and its mark where a value lies. */
  function shift(value) {
    if (values.length < 2 || typeof value !== "number") return;
    slider.value = String(nearest(values, value));
    setAttribute(slider, "aria-valuetext", fullValue(feature, value));
  }

  function show(next, value) {
    told = next;
    fill(now, "now ", bdi(fullValue(feature, told.start)));
    fill(said, bdi(saidOf(told)));
    const held = document.activeElement === slider;
    if (!held) values = valuesOf(feature, told, value);
    const drawable = values.length > 1;
    for (const part of [line, slider, ends]) part.hidden = !drawable;
    if (drawable) {
      setAttribute(slider, "max", values.length - 1);
      fill(line, segments(values, told), mark(values, told.start, "is-now"));
      before.hidden = !(told.low < values[0]);
      after.hidden = !(told.high > values.at(-1));
      setAttribute(line, "aria-label", `${heading(feature.name)}: ${saidOf(told)}`);
      fill(ends, el("span", {}, plainValue(feature, values[0])), turning(feature, values, told), el("span", {}, plainValue(feature, values.at(-1))));
    }
    if (box.node !== document.activeElement) {
      box.set(value);
      fault.hidden = true;
      setAttribute(box.node, "aria-invalid", null);
    }
    if (!held) shift(value);
  }

  const body = el("div", { class: "strip-body" }, el("div", { class: "strip-line" }, before, el("div", {}, line, slider, ends), after),
    el("div", { class: "strip-value" }, box.node, feature.unit && el("span", { class: "unit" }, bdi(clean(feature.unit))), fault));
  return { node: frame(feature, id, { head: now, body, said }), show };
}

function saidOf({ said, asked, start, open }) {
  if (!open) return "";
  const text = said.map(clean).join("; ");
  if (text) return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  const others = asked.filter(({ value }) => value !== start);
  if (others.length === 0) return start === null ? "" : "Not asked.";
  return others.some(({ approved }) => approved) ? "" : "Not enough, as far as was asked.";
}

function outside(feature, told, value) {
  const [low, high] = told?.allowed ?? [null, null];
  if (low === null || typeof value !== "number" || value === told.start) return "";
  if (value >= low && value <= high) return "";
  return `Allowed: ${plainValue(feature, low)} to ${fullValue(feature, high)}.`;
}

/** The values of a strip in order: more of them near the present one, and all that were asked. */
function valuesOf(feature, { start, allowed, asked }, value) {
  const now = typeof start === "number" ? start : null;
  const [low, high] = allowed ?? [now, now];
  if (low === null || high === null || low < -FARTHEST || high > FARTHEST) return [];
  const found = new Set([now, value, low, high, ...asked.map((each) => each.value)].filter((each) => typeof each === "number"));
  const grid = stepOf(feature);
  const origin = now ?? low;
  for (const end of [low, high]) {
    for (let i = 1; i <= SIDE; i += 1) {
      const aim = origin + (end - origin) * (i / SIDE) ** 2;
      const gap = Math.abs(end - origin) * ((2 * i - 1) / SIDE ** 2);
      const snapped = onGrid(rounded(aim, gap), grid, origin);
      if (snapped >= low && snapped <= high) found.add(snapped);
    }
  }
  return [...found].sort((a, b) => a - b);
}

/** A number of as few digits as tell it from its neighbours. */
function rounded(number, gap) {
  const unit = 10 ** Math.floor(Math.log10(gap || 1));
  return Math.round(number / unit) * unit;
}

function onGrid(number, grid, origin) {
  const on = grid === "any" ? number : origin + Math.round((number - origin) / grid) * grid;
  return Number(on.toPrecision(10));
}

const nearest = (values, wanted) => values.reduce((best, value, i) =>
  (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? i : best), 0);

const placeOf = (values, value) => nearest(values, value) / (values.length - 1);

/** What lies between two asked values: a yes, a no, or, where their answers differ, nobody knows. */
function segments(values, { asked, forbidden }) {
  const known = asked.filter(({ value }) => typeof value === "number");
  const between = known.slice(1).flatMap((right, i) => {
    const left = known[i];
    const [from, to] = [placeOf(values, left.value), placeOf(values, right.value)];
    if (left.approved === right.approved) return segment(from, to, kindOf(left));
    const isNext = nearest(values, right.value) - nearest(values, left.value) <= 1; // nothing lies between
    if (!isNext) return segment(from, to, "unknown");
    return [segment(from, (from + to) / 2, kindOf(left)), segment((from + to) / 2, to, kindOf(right))];
  });
  const barred = forbidden.map(({ from, to }) => segment(placeOf(values, from), placeOf(values, to), "forbidden"));
  const ticks = known.map(({ value, approved }) =>
    el("span", { class: `tick-mark ${approved ? "yes" : "no"}`, vars: { at: placeOf(values, value) } }));
  return [between, barred, ticks];
}

const kindOf = ({ approved }) => (approved ? "yes" : "no");

const segment = (from, to, kind) => el("span", { class: `segment ${kind}`, vars: { from, size: Math.max(0.004, to - from) } });

const mark = (values, value, kind) => (typeof value === "number"
  ? el("span", { class: `mark ${kind}`, vars: { at: placeOf(values, value) } }) : null);

/** The value at which the answer turns to a yes, nearest to where it stands, under its place. */
function turning(feature, values, { asked, now }) {
  const turns = asked.slice(1).flatMap((right, i) =>
    (right.approved === asked[i].approved ? [] : [right.approved ? right.value : asked[i].value]));
  if (turns.length === 0 || typeof now !== "number") return null;
  const first = turns.reduce((best, value) => (Math.abs(value - now) < Math.abs(best - now) ? value : best));
  const at = placeOf(values, first);
  if (at < 0.18 || at > 0.82) return null; // it would stand on the end's own number
  return el("span", { class: "turn", vars: { at } }, plainValue(feature, first));
}
