// One control for one feature, for the case's form and for what-if: a number, a choice, a yes or no.

import { el } from "./dom.js";
import { fullValue, plainValue } from "./words.js";

const MISSING = "";

/** Make a control. It has `node`, `get()` (undefined: not a value) and `set(value)`. */
export function control(feature, { id, describedBy, values = null, changed }) {
  const shared = { id, "aria-describedby": describedBy, dir: "auto" };
  const listeners = { on: { input: changed } };
  if (feature.kind === "opaque") return carried(shared);
  return feature.levels
    ? choice(feature, values, { ...shared, ...listeners })
    : numeric(feature, { ...shared, ...listeners });
}

function numeric(feature, attributes) {
  const [min, max] = feature.range ?? [null, null];
  const node = el("input", {
    ...attributes, type: "number", min, max, step: stepOf(feature),
    inputmode: feature.kind === "integer" && !(min < 0) ? "numeric" : "decimal",
    placeholder: feature.may_be_missing ? "missing" : null,
  });
  return {
    node,
    get() {
      if (node.value === "") return feature.may_be_missing && !node.validity.badInput ? null : undefined;
      return Number(node.value);
    },
    set(value) {
      node.value = value === null ? "" : String(value);
    },
  };
}

/** What is carried along is shown, and goes back to the server as it came. */
function carried(attributes) {
  const node = el("input", { ...attributes, type: "text" });
  node.readOnly = true;
  let held = null;
  return {
    node,
    get: () => held,
    set(value) {
      held = value ?? null;
      node.value = held === null ? "" : String(held);
    },
  };
}

export function stepOf(feature) {
  if (feature.step) return feature.step;
  if (feature.kind === "integer") return 1;
  return feature.decimals === null ? "any" : 10 ** -feature.decimals;
}

function choice(feature, values, attributes) {
  const offered = values ?? feature.levels.map((level) => level.value);
  const known = [...offered, ...(feature.may_be_missing ? [null] : [])];
  const node = el("select", attributes, known.map((value, i) =>
    el("option", { value: value === null ? MISSING : i }, plainValue(feature, value))));
  return {
    node,
    get: () => known[node.selectedIndex],
    set(value) {
      const exact = known.indexOf(value);
      node.selectedIndex = exact >= 0 ? exact : known.findIndex((each) => spells(feature, each, value));
    },
  };
}

/** Whether a text from a file stands for a level: its value or its words. */
function spells(feature, level, text) {
  return typeof text === "string" && level !== null && [String(level), plainValue(feature, level)].includes(text);
}

/** Say what is wrong with a value before the server is asked; "" where nothing is.
 *
 * A customer's own value may lie outside the range of what is proposed: only what is typed is refused. */
export function faultOf(feature, value, loaded = undefined) {
  if (value === undefined) return feature.levels ? "Choose one." : "Needs a number.";
  if (feature.kind === "integer" && value !== null && !Number.isInteger(value)) return "Needs a whole number.";
  const [low, high] = feature.range ?? [-Infinity, Infinity];
  if (typeof value !== "number" || value === loaded || (value >= low && value <= high)) return "";
  return `Goes from ${plainValue(feature, low)} to ${fullValue(feature, high)}.`;
}
