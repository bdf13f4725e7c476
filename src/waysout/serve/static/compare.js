// The pinned ways side by side, and what goes into the report and the letter.

import { bdi, el, fill, slot } from "./dom.js";
import { own } from "./state.js";
import { broken } from "./locks.js";
import { chance, clean, fullValue, heading } from "./words.js";

export function createCompare(store, { unpin }) {
  let drawn = null;
  return {
    render({ search, card, locks }) {
      const pins = search?.pins ?? [];
      slot("compare").hidden = pins.length === 0;
      if (drawn?.pins === pins && drawn.locks === locks) return;
      drawn = { pins, locks };
      if (pins.length === 0) return;
      const names = card.features.map(({ name }) => name).filter((name) => pins.some((pin) => own(pin.changes, name)));
      fill(slot("compare-table"),
        el("caption", { class: "unseen" }, "The pinned routes beside the present values"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "unseen" }, "What changes")),
          el("th", { scope: "col" }, "Now"), pins.map((pin) => head(pin, pins, unpin, broken(locks, pin, card))))),
        el("tbody", {}, names.map((name) => line(card, name, search.row, pins)),
          card.labels_only ? null : el("tr", {}, el("th", { scope: "row" }, "Chance of a yes"), el("td", {}, nowChance(store)),
            pins.map((pin) => el("td", {}, el("strong", {}, chance(pin.probability)))))));
    },
  };
}

function nowChance(store) {
  const { decision } = store.get();
  return decision ? chance(decision.probability) : "";
}

function head(pin, pins, unpin, isBroken) {
  return el("th", { scope: "col" },
    el("span", { class: "pin-title" }, bdi(clean(pin.title))),
    pin.own ? el("span", { class: "tag own" }, "put together by you") : null,
    pin.carried_on ? el("span", { class: "tag" }, "carried farther") : null,
    isBroken ? el("span", { class: "tag warn" }, "ruled out by you") : null,
    el("button", { type: "button", class: "quiet", "aria-label": `Unpin: ${clean(pin.title)}`, on: {
      click: async () => {
        await unpin(pin);
        slot(pins.length > 1 ? "compare-heading" : "cards-heading").focus();
      },
    } }, "Unpin"));
}

function line(card, name, row, pins) {
  const feature = card.features.find((each) => each.name === name);
  const cell = (pin) => {
    const pair = own(pin.changes, name);
    return el("td", {}, pair ? el("strong", {}, bdi(fullValue(feature, pair[1]))) : el("span", { class: "soft" }, "as now"));
  };
  return el("tr", {}, el("th", { scope: "row" }, bdi(heading(name))), el("td", {}, bdi(fullValue(feature, own(row, name)))),
    pins.map(cell));
}
