// One way as a card: what to do, what changes and how far that goes, how sure it is, what is doubtful.

import { meter } from "./answer.js";
import { bdi, el, fill, setAttribute } from "./dom.js";
import { createSafer } from "./safer.js";
import { own, same } from "./state.js";
import { chance, clean, counted, fullValue, heading, label, listed, number, plainValue, reasonText } from "./words.js";

const LONGEST_REASON = 200;

/** Make the node of a way. `acts` says what its buttons do; a near miss has none. */
export function makeCard(way, { card, search, acts = null, place = null }) {
  const features = new Map(card.features.map((feature) => [feature.name, feature]));
  const names = Object.keys(way.changes);
  let now = way; // as far as the slider carries it
  const isWay = Boolean(way.levers);
  const changes = el("div", {}, changeList(features, way, way.reach));
  const chances = el("div", { class: "card-chance" });
  const showChance = (option) => fill(chances, card.labels_only ? null : [
    el("p", {}, el("strong", {}, chance(option.probability)), " chance of a yes"), meter(option.probability)]);
  showChance(way);
  const title = bdi(clean(way.title ?? titleOf(names)));
  const moved = (step) => {
    now = step;
    title.textContent = clean(step.title);
    fill(changes, changeList(features, step, step.reach));
    showChance(step);
    pinned(pins);
  };
  let pins = [];
  const pin = acts && isWay ? pinButton(way, () => acts.pin(now)) : null;
  /** The button is about what the card shows: the slider may have carried it on. */
  const pinned = (rows) => {
    pins = rows;
    pin?.show(rows.some((each) => same(each.changes, now.changes)), now);
  };
  const node = el("li", { class: "card", tabindex: "-1", "data-id": way.id ?? null },
    el("div", { class: "card-head" },
      place === null ? null : el("span", { class: "place", "aria-hidden": "true" }, String(place)),
      way.isNew ? el("span", { class: "tag" }, way.isNew) : null,
      pin?.node),
    el("h3", {}, place === null ? null : el("span", { class: "unseen" }, `Route ${place}: `),
      title),
    tags(way, acts),
    changes, chances,
    acts && isWay && goesOn(way, features) ? createSafer(way, { card, ask: acts.farther, moved }) : null,
    doubts(way), pocket(way, search, features),
    isWay ? [asked(way, features, card), variants(way, features, card, acts)] : null,
    reason(way, search),
    acts && isWay ? buttons(way, names, acts, () => now) : null);
  return { node, pinned };
}

/** Whether something of a way has more and less. */
function goesOn({ changes, reach = {} }, features) {
  return Object.entries(changes).some(([name, [from]]) =>
    (typeof from === "number" && !features.get(name)?.levels) || typeof own(reach, name)?.share === "number");
}

const titleOf = (names) => `Change ${listed(names.map(label))}`;

function tags(way, acts) {
  return [
    way.stable === false ? el("p", { class: "tag warn" }, "not approved each time") : null,
    way.holds === false ? el("p", { class: "tag warn" }, "does not hold: a no again if you go farther") : null,
    acts ? null : el("p", { class: "tag warn" }, "not approved"),
  ];
}

/** The changes; `reach` tells how far along what is allowed each one goes. */
export function changeList(features, { changes }, reach = {}) {
  return el("ul", { class: "changes" },
    Object.entries(changes).map(([name, pair]) => change(features.get(name), name, pair, own(reach, name))));
}

function change(feature, name, [from, to], far) {
  return el("li", {},
    el("span", { class: "change-name" }, bdi(heading(name))),
    el("span", { class: "change-values" },
      el("span", { class: "from" }, bdi(plainValue(feature, from))),
      el("span", { class: "arrow", "aria-hidden": "true" }, " → "),
      el("span", { class: "unseen" }, " to "),
      el("strong", {}, bdi(fullValue(feature, to))),
      difference(feature, from, to)),
    far && far.share !== null ? reachOf(feature, far) : null);
}

/** "(−1,500)": the change itself, where both are numbers. */
function difference(feature, from, to) {
  if (feature?.levels || typeof from !== "number" || typeof to !== "number") return null;
  const by = Number((to - from).toPrecision(12));
  return el("span", { class: "by" }, ` (${by > 0 ? "+" : "−"}${number(Math.abs(by), feature)})`);
}

function reachOf(feature, { share, limit }) {
  const words = `${chance(share, [])} of the way to ${fullValue(feature, limit)}, the end of what is allowed`;
  return el("span", { class: "reach" },
    el("span", { class: "reach-bar", "aria-hidden": "true", vars: { share: Math.max(0.01, share) } }, el("span")), bdi(words));
}

const ASKED = {
  irreducible: "whether every change is needed",
  tight: "whether a little less is enough",
  holds: "whether more is still a yes",
};

/** What is doubtful about a way, or was not asked; that it does not hold has a tag of its own. */
function doubts(way) {
  if (!way.levers) return null;
  const open = Object.keys(ASKED).filter((name) => way[name] === null).map((name) => ASKED[name]);
  const told = [
    way.irreducible === false ? "Not every change is needed." : "",
    way.tight === false ? "A little less was approved too, but that does not hold or was not all asked." : "",
    open.length ? `Not asked: ${listed(open)}.` : "",
  ].filter(Boolean);
  return told.length ? el("p", { class: "doubts" }, told.join(" ")) : null;
}

/** The refusal beyond a single change, where the model says yes, no and yes again as it goes on; null where it does not. */
export function pocketOf(way, tipping) {
  const [name, ...others] = Object.keys(way.changes);
  const to = way.changes[name][1];
  if (others.length > 0 || typeof to !== "number") return null;
  const moves = tipping.find(({ feature }) => feature === name)?.moves ?? [];
  const among = ({ from, to: last }) => typeof from === "number" && (to - from) * (to - last) <= 0;
  return moves.flatMap(({ intervals }) => intervals).find(among)?.after ?? null;
}

function pocket(way, search, features) {
  const after = way.levers ? pocketOf(way, search?.tipping ?? []) : null;
  if (after === null) return null;
  const value = fullValue(features.get(Object.keys(way.changes)[0]), after);
  return el("p", { class: "doubts" }, "The model wavers here: it is a no again at ", bdi(value), ", and a yes farther on. See its strip below.");
}

/** What carries a way on to each higher chance that was asked for when the server was started. */
function asked(way, features, card) {
  return card.safer.filter((level) => way.probability < level).map((level) => {
    const found = way.safer.find((option) => option.at_least === level);
    const words = `for a chance of ${chance(level)} or more`;
    return found ? plan(`Safer, ${words}`, found, features, card)
      : el("p", { class: "doubts" }, `Nothing safer found ${words}.`);
  });
}

/** Other values for what a way changes, folded. */
function variants(way, features, card, acts) {
  const { length } = way.variants;
  const pin = (option) => acts && el("button", { type: "button", class: "quiet", on: { click: () => acts.pin(option) } }, "Pin this one");
  return length ? el("details", { class: "variants" },
    el("summary", {}, counted(length, "other set"), " of values for the same changes"),
    way.variants.map((option) => [plan("Instead", option, features, card), pin(option)])) : null;
}

function plan(words, option, features, { labels_only: labelsOnly }) {
  const likely = labelsOnly ? "" : ` (chance ${chance(option.probability)})`;
  return el("div", { class: "other" }, el("p", {}, words, likely), changeList(features, option));
}

function reason(option, search) {
  const told = reasonText(option.reasons ?? []).replaceAll(search?.standIn ? `${search.standIn}: ` : "\n", "");
  if (!told) return null;
  const who = search?.standIn ? `Reason given by the ${search.standIn} LLM: ` : "Reason given by the LLM: ";
  const text = bdi(told.slice(0, LONGEST_REASON));
  const node = el("p", { class: "reason" }, who, text);
  if (told.length <= LONGEST_REASON) return node;
  const more = el("button", { type: "button", class: "in-text", on: { click: () => {
    text.textContent = told;
    more.remove();
  } } }, "… more");
  node.append(more);
  return node;
}

function pinButton(way, pressed) {
  const node = el("button", { type: "button", class: "pin", "aria-pressed": "false", on: { click: pressed } });
  const show = (is, { title } = way) => {
    setAttribute(node, "aria-pressed", String(is));
    fill(node, is ? "Pinned" : "Pin", el("span", { class: "unseen" }, ": ", bdi(clean(title ?? ""))));
  };
  show(false);
  return { node, show };
}

function buttons(way, names, { tryOut, exclude, fix }, now) {
  const named = (words) => ({ "aria-label": `${words}: ${clean(way.title ?? titleOf(names))}` });
  const head = el("summary", named("Not possible for me"), "Not possible for me");
  const close = () => {
    menu.open = false;
    head.focus();
  };
  const menu = el("details", { class: "not-possible", on: {
    keydown: ({ key }) => key === "Escape" && close(),
    toggle: () => menu.open && menu.scrollIntoView({ block: "nearest" }),
  } }, head);
  // The card goes with what it asks, so the focus goes on to the others.
  const choice = (words, act) => el("button", { type: "button", on: { click: act } }, bdi(words));
  menu.append(el("div", { class: "menu" },
    choice("Rule out this one, and all that ask as much or more", () => exclude(way)),
    names.map((name) => choice(`I cannot change ${label(name)} at all`, () => fix(name)))));
  return el("div", { class: "card-foot" },
    el("button", { ...named("What if…"), type: "button", on: { click: () => tryOut(now()) } }, "What if…"), menu);
}
