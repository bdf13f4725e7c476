// The ways as cards: the first few, the others folded; what is being read does not move.

import { arrange, el, fill, slot } from "./dom.js";
import { makeCard, pocketOf } from "./cards.js";
import { isRunning } from "./state.js";
import * as locking from "./locks.js";
import { clean, countWord, counted, fullValue, label, listed, plainValue } from "./words.js";

export const SHOWN = 5; // what a person takes in at once; the others are one press away

export function createRoutes(store, acts) {
  const first = createList(slot("cards"), acts);
  const more = createList(slot("more-cards"), acts);
  const misses = createList(slot("misses-cards"), null);

  return {
    render(state) {
      const { search, card } = state;
      const ways = shownWays(state);
      const early = ways.length === 0 && isRunning(search) ? search.shortlist : [];
      const shown = ways.length > 0 ? ways : early;
      slot("found").hidden = shown.length === 0;
      renderMisses(state, misses);
      if (!search) return;
      first.draw(shown.slice(0, SHOWN), card, search);
      more.draw(shown.slice(SHOWN), card, search, SHOWN);
      for (const list of [first, more]) list.pinned(search.pins);
      slot("more").hidden = shown.length <= SHOWN;
      const others = Math.max(0, shown.length - SHOWN);
      slot("more-words").textContent = others > 0 ? `${countWord(others)} more ${others === 1 ? "route" : "routes"}` : "";
      slot("cards-heading").textContent = headingOf(ways, early);
      slot("cards-note").hidden = ways.length === 0 || !ways.every(isSure) || ways.some((way) => pocketOf(way, search.tipping));
      slot("found").classList.toggle("is-running", isRunning(search));
    },
    forget() {
      for (const list of [first, more, misses]) list.forget();
      slot("more").open = false;
    },
    /** Bring a way's card into view. */
    reveal(id) {
      if (first.reveal(id)) return;
      slot("more").open = true;
      more.reveal(id);
    },
  };
}

/** The ways within the locks as they stand on the page: what was ruled out frees its slot at once.
 *
 * Where some leave nothing in doubt, the others are only padding. */
export function shownWays({ search, locks, card }) {
  const kept = (search?.ways ?? []).filter((way) => locking.broken(locks, way, card) === null);
  const sure = kept.filter(isSure);
  return sure.length > 0 ? sure : kept;
}

const isSure = ({ irreducible, tight, holds, stable }) => Boolean(irreducible && tight && holds) && stable !== false;

function headingOf(ways, early) {
  if (ways.length === 0) return `${counted(early.length, "route")} so far`;
  const shown = Math.min(SHOWN, ways.length);
  return shown === 1 ? "One route" : `${countWord(shown)} different routes`;
}

/** A list of cards that keeps its nodes. */
function createList(node, acts) {
  let nodes = new Map();
  return {
    draw(ways, card, search, before = 0) {
      const made = new Map();
      ways.forEach((way, i) => {
        const place = way.levers ? before + i + 1 : null;
        const key = JSON.stringify(way.changes);
        const known = nodes.get(key);
        const keep = known && known.way === way && known.place === place;
        made.set(key, keep ? known : { way, place, ...makeCard(way, { card, search, acts, place }) });
      });
      nodes = made;
      arrange(node, [...made.values()].map((each) => each.node));
    },
    pinned(pins) {
      for (const { pinned } of nodes.values()) pinned(pins);
    },
    forget() {
      nodes = new Map();
      arrange(node, []);
    },
    reveal(id) {
      const found = [...nodes.values()].find(({ way }) => way.id === id)?.node;
      if (!found) return false;
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      found.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
      found.focus({ preventScroll: true });
      return true;
    },
  };
}

function renderMisses({ card, search, misses }, list) {
  const any = misses.length > 0 && search?.ended && search.ways.length === 0;
  slot("misses").hidden = !any;
  if (any) list.draw(misses, card, search);
}

/** What a person ruled out or locked, in words, each with a button to allow it again. */
export function renderRuledOut({ card, locks }, change) {
  const told = ruledOut(locks, card);
  slot("excluded").hidden = told.length === 0;
  fill(slot("excluded-list"), told.map(([words, allow]) => el("li", {}, el("span", {}, words), el("button", {
    type: "button", class: "quiet", "aria-label": `Allow again: ${words}`, on: { click: () => {
      change(allow);
      slot(told.length > 1 ? "excluded-heading" : "cards-heading").focus();
    } },
  }, "Allow again"))));
}

/** Each lock in words, and the locks without it. */
function ruledOut({ fixed, ranges, choices, excluded }, card) {
  const featureOf = (name) => card.features.find((each) => each.name === name);
  return [
    ...fixed.map((name) => [`${label(name)} stays as it is`, (locks) => locking.toggle(locks, name)]),
    ...Object.entries(ranges).map(([name, ends]) =>
      [`${label(name)} ${rangeWords(featureOf(name), ends)}`, (locks) => locking.limit(locks, name, null, null)]),
    ...Object.entries(choices).map(([name, values]) => [
      `${label(name)}: only ${listed(values.map((value) => plainValue(featureOf(name), value)), "or") || "as it is"}`,
      (locks) => locking.allowOnly(locks, name, [], [])]),
    ...excluded.map((changes) => [excludedWords(changes, card), (locks) => locking.allowAgain(locks, changes)]),
  ];
}

function rangeWords(feature, { min, max }) {
  const ends = [min === null ? "" : `not below ${fullValue(feature, min)}`, max === null ? "" : `not above ${fullValue(feature, max)}`];
  return ends.filter(Boolean).join(" and ");
}

/** "savings of 8,200 euros or more, together with credit score of 649 points or more" */
function excludedWords(changes, card) {
  return Object.entries(changes).map(([name, [from, to]]) => {
    const feature = card.features.find((each) => each.name === name);
    return acrossWords(feature, name, from, to);
  }).map(clean).join(", together with ");
}


function acrossWords(feature, name, from, to) {
  const value = fullValue(feature, to);
  if (feature?.levels || typeof to !== "number" || typeof from !== "number") return `${label(name)}: ${value}`;
  return `${label(name)} of ${value} or ${to > from ? "more" : "less"}`;
}
