// The case: each feature's value, whether it may change, and between what limits.

import { bdi, el, fill, setAttribute, slot, svg } from "./dom.js";
import { control, faultOf } from "./inputs.js";
import * as locking from "./locks.js";
import { renderRuledOut } from "./routes.js";
import { own } from "./state.js";
import { clean, heading, label, number, plainValue } from "./words.js";

const MANY_FEATURES = 20;
const MOST_LEVELS = 60; // more would be no list to tick off

/** Build the form of a card. `edited(row, faults)` and `relocked(locks)` say what a person did. */
export function createForm(store, { edited, relocked }) {
  let fields = [];
  let drawn = null;
  let loaded = {}; // the row as it was shown first
  slot("features").addEventListener("submit", (event) => event.preventDefault());
  slot("feature-query").addEventListener("input", (event) => filter(fields, event.target.value));

  const read = () => {
    const values = fields.map(({ feature, value }) => [feature, value.get()]);
    const faults = values.map(([feature, now]) => [feature.name, faultOf(feature, now, own(loaded, feature.name))]);
    return {
      row: Object.fromEntries(values.map(([feature, now]) => [feature.name, now ?? null])),
      faults: Object.fromEntries(faults.filter(([, fault]) => fault)),
    };
  };
  const typed = () => {
    const { row, faults } = read();
    edited(row, faults);
  };
  const change = (act) => relocked(act(store.get().locks));

  return {
    read,
    build(card) {
      drawn = null;
      fields = card.features.map((feature, i) => field(feature, `feature-${i}`, typed, change));
      fill(slot("features"), fields.map((each) => each.node));
      slot("feature-search").hidden = fields.length <= MANY_FEATURES;
    },
    show(row) {
      loaded = row;
      for (const { feature, value } of fields) value.set(own(row, feature.name) ?? null);
    },
    render(state) {
      const { decision, faults, locks } = state;
      if (drawn?.decision === decision && drawn.faults === faults && drawn.locks === locks) return;
      drawn = { decision, faults, locks };
      for (const each of fields) each.render(state);
      renderRuledOut(state, change);
    },
  };
}

function filter(fields, wanted) {
  const words = wanted.trim().toLowerCase();
  for (const { feature, node } of fields) {
    node.hidden = !`${label(feature.name)} ${clean(feature.about)}`.toLowerCase().includes(words);
  }
}

function field(feature, id, typed, change) {
  const value = control(feature, { id, describedBy: `${id}-about ${id}-fault`, changed: typed });
  const lock = lockButton(feature, () => change((locks) => locking.toggle(locks, feature.name)));
  const limits = limitsOf(feature, id, change);
  const fault = el("p", { id: `${id}-fault`, class: "fault", hidden: true });
  const may = el("span", { class: "may" });
  const about = clean(feature.about);
  const node = el("div", { class: "feature" },
    el("div", { class: "feature-head" },
      el("label", { for: id, class: "feature-name" }, bdi(heading(feature.name))),
      el("p", { id: `${id}-about`, class: "feature-about" }, about && bdi(about), may)),
    lock.node,
    el("div", { class: "feature-value" }, value.node,
      feature.unit && el("span", { class: "unit" }, bdi(clean(feature.unit)))),
    limits.button, fault, limits.node);
  const parts = { feature, value, node, lock, limits, fault, may };
  return { feature, value, node, render: (state) => renderField(state, parts) };
}

function renderField(state, { feature, value, node, lock, limits, fault, may }) {
  const lever = own(state.decision?.levers, feature.name);
  const byRule = feature.kind === "opaque" || (Boolean(lever) && !lever.open);
  const byPerson = locking.isFixed(state.locks, feature.name);
  const said = own(state.faults, feature.name) ?? "";
  node.classList.toggle("is-locked", byRule || byPerson);
  setAttribute(value.node, "aria-invalid", said ? "true" : null);
  fault.hidden = !said;
  fault.textContent = said;
  lock.render(byRule, byPerson);
  may.textContent = byRule && lever ? reasonOf(lever) : "";
  limits.render(state.locks, byRule || byPerson);
}

function reasonOf(lever) {
  const why = clean(lever.why).replace(/^fixed:? */, "");
  return `Cannot change${why ? `: ${why}` : " under the rules"}.`;
}

function lockButton(feature, pressed) {
  const words = el("span"); // with the name behind it: "lock income", "locked income"
  const shackle = svg("path", { d: "" });
  const sign = svg("svg", { viewBox: "0 0 16 16", class: "lock-sign", "aria-hidden": "true", focusable: "false" },
    shackle, svg("path", { d: "M4 7h8v6H4z" }));
  const node = el("button", {
    type: "button", class: "lock", "aria-pressed": "false", on: { click: pressed },
  }, sign, words, el("span", { class: "unseen" }, bdi(label(feature.name))));
  const render = (byRule, byPerson) => {
    const closed = byRule || byPerson;
    node.disabled = byRule;
    setAttribute(node, "aria-pressed", String(closed));
    setAttribute(shackle, "d", closed ? "M5 7V5a3 3 0 0 1 6 0v2" : "M5 7V4a3 3 0 0 1 5.8-1");
    words.textContent = `${byRule ? "fixed" : closed ? "locked" : "lock"} `;
  };
  render(false, false);
  return { node, render };
}

function limitsOf(feature, id, change) {
  const inside = feature.levels ? levelLimits(feature, change) : numberLimits(feature, id, change);
  const told = el("p", { class: "limits-told" });
  const node = el("div", { class: "limits", id: `${id}-limits` }, told, inside.node);
  let open = false;
  const press = () => {
    open = !open;
    button.setAttribute("aria-expanded", String(open));
    inside.node.hidden = !open;
  };
  const button = el("button", {
    type: "button", class: "quiet limits-button", "aria-expanded": "false", "aria-controls": node.id,
    "aria-label": `Limits of ${label(feature.name)}`, on: { click: press },
  }, "limits");
  inside.node.hidden = true;
  const render = (locks, locked) => {
    button.hidden = node.hidden = locked;
    told.textContent = inside.told(locks);
    inside.show(locks);
  };
  return { button, node, render };
}

function numberLimits(feature, id, change) {
  const changed = () => {
    const [min, max] = [low, high].map(({ value }) => (value === "" ? null : Number(value)));
    change((locks) => locking.limit(locks, feature.name, min, max));
  };
  const bound = (end) => el("input", { id: `${id}-${end}`, type: "number", step: "any", on: { change: changed } });
  const [low, high] = [bound("low"), bound("high")];
  const node = el("div", { class: "bounds" },
    el("label", { for: low.id }, "Not below"), low, el("label", { for: high.id }, "Not above"), high);
  const told = ({ ranges }) => {
    const { min = null, max = null } = own(ranges, feature.name) ?? {};
    const low = min === null ? [] : [`not below ${number(min, feature)}`];
    const high = max === null ? [] : [`not above ${number(max, feature)}`];
    const none = min !== null && max !== null && min > max ? ": no value is left" : "";
    return [...low, ...high].join(", ") + none;
  };
  const show = ({ ranges }) => {
    if (node.contains(document.activeElement)) return;
    low.value = own(ranges, feature.name)?.min ?? "";
    high.value = own(ranges, feature.name)?.max ?? "";
  };
  return { node, told, show };
}

function levelLimits(feature, change) {
  if (feature.levels.length > MOST_LEVELS) {
    const words = "There are too many to list. Lock it, or rule out single ways out.";
    return { node: el("p", { class: "small soft" }, words), told: () => "", show: () => {} };
  }
  const all = feature.levels.map((level) => level.value);
  const boxes = all.map(() => el("input", { type: "checkbox", checked: true, on: { change: () => changed() } }));
  const changed = () => {
    const kept = all.filter((_, i) => boxes[i].checked);
    change((locks) => locking.allowOnly(locks, feature.name, kept, all));
  };
  const node = el("fieldset", {}, el("legend", {}, "Possible for me"),
    boxes.map((box, i) => el("label", { class: "tick" }, box, bdi(plainValue(feature, all[i])))));
  const told = ({ choices }) => {
    const kept = own(choices, feature.name);
    return kept ? `${kept.length} of ${all.length} possible` : "";
  };
  const show = ({ choices }) => boxes.forEach((box, i) => {
    box.checked = own(choices, feature.name)?.includes(all[i]) ?? true;
  });
  return { node, told, show };
}
