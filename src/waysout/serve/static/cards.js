// One option or way as a card: only what changes, how sure it is, how big a step, what is doubtful,
// and what can be done.

import { bdi, el, fill } from "./dom.js";
import { meter } from "./decision.js";
import * as locking from "./locks.js";
import { chance, clean, counted, fullValue, heading, label, listed, plainValue, reasonText, stepSize } from "./words.js";

const LONGEST_REASON = 200;

/** Make the node of an option. `acts` says what its buttons do; a near miss has none. */
export function makeCard(option, { card, search, acts = null }) {
  const features = new Map(card.features.map((feature) => [feature.name, feature]));
  const names = Object.keys(option.changes);
  const broken = el("p", { class: "card-broken", hidden: true });
  const node = el("li", { class: "card", tabindex: "-1", "data-key": option.key },
    el("h3", { class: "unseen" }, "Change ", bdi(title(names))),
    el("div", { class: "card-head" },
      card.labels_only ? null : el("p", { class: "card-chance" },
        el("strong", {}, chance(option.probability)), " chance of a yes"),
      step(option)),
    card.labels_only ? null : meter(option.probability),
    option.stable === false ? el("p", { class: "tag warn" }, "not approved each time") : null,
    option.holds === false ? el("p", { class: "tag warn" }, "does not hold: a no again if you go farther") : null,
    acts ? null : el("p", { class: "tag warn" }, "not approved"),
    broken,
    changeList(features, option),
    doubts(option),
    option.levers ? [safer(option, features, card), variants(option, features, card)] : null,
    reason(option, search),
    acts ? buttons(option, names, acts) : null);
  return { node, dim: (locks) => dim(node, broken, locking.broken(locks, option, card)) };
}

function title(names) {
  const words = names.slice(0, 3).map(label);
  const rest = names.length - words.length;
  return rest > 0 ? `${words.join(", ")} and ${rest} more` : listed(words);
}

function changeList(features, { changes }) {
  return el("ul", { class: "changes" },
    Object.entries(changes).map(([name, pair]) => change(features.get(name), name, pair)));
}

function change(feature, name, [from, to]) {
  return el("li", {},
    el("span", { class: "change-name", title: clean(feature?.about ?? "") || null }, bdi(heading(name))),
    el("span", { class: "change-values" },
      el("span", { class: "from" }, bdi(plainValue(feature, from))),
      el("span", { class: "arrow", "aria-hidden": "true" }, " → "),
      el("span", { class: "unseen" }, " to "),
      el("strong", {}, bdi(fullValue(feature, to)))));
}

function step(option) {
  const size = stepSize(option.proximity);
  const moved = Object.keys(option.changes).length > option.sparsity ? ", the rest moves with it" : "";
  return el("div", { class: "step" },
    el("div", { class: "step-bar", "aria-hidden": "true", vars: { share: 1 - option.proximity } }, el("div")),
    el("span", {}, `${heading(size)} · ${counted(option.sparsity, "change")}${moved}`));
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

/** What carries a way on to each higher chance that was asked for. */
function safer(way, features, card) {
  return card.safer.filter((level) => way.probability < level).map((level) => {
    const found = way.safer.find((option) => option.at_least === level);
    const words = `for a chance of ${chance(level)} or more`;
    return found ? plan(`Safer, ${words}`, found, features, card)
      : el("p", { class: "doubts" }, `Nothing safer found ${words}.`);
  });
}

/** Other values for what a way changes, folded. */
function variants(way, features, card) {
  const { length } = way.variants;
  return length ? el("details", { class: "variants" },
    el("summary", {}, counted(length, "other set"), " of values for the same changes"),
    way.variants.map((option) => plan("Instead", option, features, card))) : null;
}

function plan(words, option, features, { labels_only: labelsOnly }) {
  const likely = labelsOnly ? "" : ` (chance ${chance(option.probability)})`;
  return el("div", { class: "other" }, el("p", {}, words, likely), changeList(features, option));
}

function reason(option, search) {
  const told = reasonText(option.reasons ?? []).replaceAll(search?.simulated ? "simulated: " : "\n", "");
  if (!told) return null;
  const who = search?.simulated ? "Reason given by the simulated LLM: " : "Reason given by the LLM: ";
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

function buttons(option, names, { whatIf, exclude, fix }) {
  const named = (words) => ({ "aria-label": `${words}: change ${title(names)}` });
  const head = el("summary", named("Not possible for me"), "Not possible for me");
  const close = () => {
    menu.open = false;
    head.focus();
  };
  const escape = ({ key }) => key === "Escape" && close();
  const menu = el("details", { class: "not-possible", on: { keydown: escape } }, head);
  const choice = (words, act) => el("button", { type: "button", on: { click: () => {
    close();
    act();
  } } }, bdi(words));
  menu.append(el("div", { class: "menu" },
    choice("Leave this one out", () => exclude(option)),
    names.map((name) => choice(`I cannot change ${label(name)}`, () => fix(name)))));
  return el("div", { class: "card-foot" },
    el("button", { ...named("What if…"), type: "button", on: { click: () => whatIf(option) } }, "What if…"), menu);
}

function dim(node, broken, what) {
  node.classList.toggle("is-broken", what !== null);
  broken.hidden = what === null;
  if (what !== null) fill(broken, "Not possible for you: ", bdi(whyBroken(what)));
}

function whyBroken([kind, name]) {
  if (kind === "excluded") return "you left it, or one that asks less, out.";
  return { fixed: `${label(name)} is locked.`, range: `${label(name)} goes past your limits.`,
    choice: `${label(name)} is not among what you allow.` }[kind];
}
