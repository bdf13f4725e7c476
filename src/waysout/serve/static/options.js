// The ways (while the search runs, a choice of its options), what one change does alone, and the
// list of all options. What is being read does not move: while somebody points at a list, stands in
// it, or has scrolled into it, new options wait to be asked for.

import { arrange, bdi, el, fill, setAttribute, slot } from "./dom.js";
import { makeCard } from "./cards.js";
import { first, idOf, isRunning } from "./state.js";
import { broken } from "./locks.js";
import { clean, counted, label, listed } from "./words.js";

const PAUSE = 1000; // ms between two changes of a list
const SHOWN = 20;

export function createOptions(store, acts) {
  const short = createList(slot("shortlist-cards"), acts);
  const all = createList(slot("all-cards"), acts);
  const misses = createList(slot("misses-cards"), null);
  let shown = SHOWN;
  let order = { of: null, sort: "", keys: [] };
  let told = []; // what is shown of the levers alone

  const resort = (search, sort) => {
    order = { of: search.id, part: search.part, sort, keys: sortedKeys(search, sort) };
    all.when = performance.now();
  };
  const redraw = () => render(store.get());

  function render(state) {
    const { search, card, locks } = state;
    const found = search ? [...search.options.values()] : [];
    slot("found").hidden = found.length === 0;
    slot("views").hidden = !search || (found.length === 0 && search.tried.length === 0);
    renderMisses(state, misses);
    renderTipping(search?.tipping ?? []);
    slot("sort-certainty").hidden = card.labels_only;
    if (!search) return;
    const { options } = search;
    // A new part makes what is shown void, whoever reads it.
    const isVoid = short.part !== search.part && (search.shortlist.length > 0 || !isRunning(search));
    if (isVoid || hasNewWays(short, search) || isFree(short, search, redraw)) {
      short.part = search.part;
      short.ways = search.ways;
      short.draw(first(search), card, search);
    }
    short.dim(locks);
    renderHeads(search, short.size());
    if (!slot("views").open) return; // what is folded away costs nothing
    const other = order.of !== search.id || order.part !== search.part || order.sort !== state.sort;
    if (other || isFree(all, search, redraw)) resort(search, state.sort);
    const kept = order.keys.map((key) => options.get(key)).filter(Boolean);
    all.draw(kept.slice(0, shown), card, search);
    renderMore(kept.length, shown);
    renderNew(found.length - kept.length);
    all.dim(locks);
  }

  function renderTipping(tipping) {
    if (told === tipping) return;
    told = tipping;
    slot("tipping").hidden = tipping.length === 0;
    const isOpen = ({ moves }) => moves.every((move) => move.status === "not_asked" && move.refused.length === 0);
    const turns = ({ moves }) => moves.some((move) => move.status === "turns");
    const open = tipping.filter(isOpen).map(({ feature }) => label(feature));
    fill(slot("tipping-list"),
      tipping.filter((each) => !isOpen(each)).map((each) =>
        el("li", { class: turns(each) ? "turns" : null }, bdi(clean(each.said.join(" "))))),
      open.length ? el("li", {}, "Not asked alone: ", bdi(listed(open)), ".") : null);
  }

  slot("show-more").addEventListener("click", () => {
    shown *= 2;
    redraw();
  });
  slot("show-new").addEventListener("click", () => {
    resort(store.get().search, store.get().sort);
    redraw();
  });
  slot("views").addEventListener("toggle", () => store.set({}));
  // Ways wait for who stands in the list: see `hasNewWays`.
  slot("shortlist-cards").addEventListener("focusout", () => requestAnimationFrame(redraw));
  slot("sort").addEventListener("change", (event) => store.set({ sort: event.target.value }));

  return {
    render,
    reset() {
      shown = SHOWN;
      for (const list of [short, all, misses]) list.forget();
    },
    /** Bring an option's card into view, in the list of all if the shortlist does not show it. */
    reveal(option) {
      if (short.reveal(option)) return;
      slot("views").open = true;
      if (!order.keys.includes(option.key)) resort(store.get().search, store.get().sort);
      shown = Math.max(shown, order.keys.indexOf(option.key) + 1);
      slot("tab-all").click();
      redraw();
      all.reveal(option);
    },
  };
}

/** A list of cards that keeps its nodes. */
function createList(node, acts) {
  let nodes = new Map();
  return {
    node,
    when: -PAUSE,
    part: 0,
    ways: [],
    waiting: 0,
    size: () => node.children.length,
    draw(options, card, search) {
      const made = new Map();
      for (const option of options) {
        const known = nodes.get(idOf(option));
        const same = known && known.option === option;
        made.set(idOf(option), same ? known : { option, ...makeCard(option, { card, search, acts }) });
      }
      nodes = made;
      arrange(node, [...made.values()].map((each) => each.node));
    },
    dim(locks) {
      for (const each of nodes.values()) {
        if (each.locks !== locks) each.dim(locks);
        each.locks = locks;
      }
    },
    forget() {
      nodes = new Map();
      arrange(node, []);
      this.when = -PAUSE;
    },
    reveal(option) {
      const found = nodes.get(idOf(option))?.node;
      if (!found) return false;
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      found.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
      found.focus({ preventScroll: true });
      found.classList.remove("is-lit");
      requestAnimationFrame(() => found.classList.add("is-lit"));
      return true;
    },
  };
}

/** Whether there are ways that a list does not show yet, and nobody is at work in it. */
function hasNewWays(list, { ways }) {
  return list.ways !== ways && ways.length > 0 && !list.node.contains(document.activeElement);
}

/** Whether a list may change now; if only time stands in the way, it is drawn again later. */
function isFree(list, search, redraw) {
  const over = list.node.matches(":hover") || list.node.contains(document.activeElement);
  const into = list.node.getBoundingClientRect().top < 0;
  if (list.size() > 0 && (over || into)) return false;
  const left = list.when + PAUSE - performance.now();
  if (isRunning(search) && list.size() > 0 && left > 0) {
    clearTimeout(list.waiting);
    list.waiting = setTimeout(redraw, left);
    return false;
  }
  list.when = performance.now();
  return true;
}

const BY = {
  ease: (a, b) => b.proximity - a.proximity || a.sparsity - b.sparsity,
  certainty: (a, b) => b.probability - a.probability,
};

function sortedKeys(search, sort) {
  const options = [...search.options.values()];
  const sorted = sort === "difference" ? mostDifferent(options, first(search)) : options.sort(BY[sort]);
  return sorted.map((option) => option.key);
}

/** Those to read first; then, again and again, one that changes what the last ones did not. */
function mostDifferent(options, toRead) {
  const early = new Map(toRead.map((option, place) => [idOf(option), place]));
  const seen = new Map();
  const groups = new Map();
  for (const option of options.sort(BY.ease)) {
    const set = Object.keys(option.changes).sort().join("\n");
    seen.set(option.key, groups.get(set) ?? 0);
    groups.set(set, seen.get(option.key) + 1);
  }
  const places = new Map(options.map((option) => [option.key, early.get(idOf(option)) ?? null]));
  const rank = ({ key }) => (places.get(key) === null ? seen.get(key) : places.get(key) - early.size);
  return options.sort((a, b) => rank(a) - rank(b));
}

function renderHeads({ ways, options }, few) {
  const [heading, note] = headsOf(ways.length, options.size, few);
  slot("shortlist-heading").textContent = heading;
  slot("shortlist-note").textContent = note;
  const all = `All ${counted(options.size, "option")}, a map of them, and what was tried`;
  slot("views-words").textContent = options.size > 0 ? all : "What was tried";
}

function headsOf(ways, total, few) {
  if (ways > 0) return ["The ways out", ways > 1 ? "Best first: each is a plan of its own." : ""];
  if (total <= few) return ["The ways out", ""];
  return [few === 1 ? "The one to read first" : `The ${few} to read first`, "Good ones that differ; the others are below."];
}

function renderMore(total, shown) {
  const first = `All options: the first ${shown.toLocaleString("en")} of ${total.toLocaleString("en")}`;
  setAttribute(slot("view-all"), "data-heading", total > shown ? first : "All options"); // on paper
  slot("show-more").hidden = total <= shown;
  slot("show-more").textContent = `Show more (${(total - shown).toLocaleString("en")} left)`;
}

function renderNew(count) {
  slot("show-new").hidden = count <= 0;
  slot("show-new").textContent = `Show ${counted(count, "new one")}`;
}

function renderMisses({ card, search, misses }, list) {
  const any = misses.length > 0 && search?.options.size === 0;
  slot("misses").hidden = !any;
  if (any) list.draw(misses, card, search);
}

/** How many ways, or options where no way is known, keep the locks as they stand on the page. */
export function keeping({ ways, options }, locks, card) {
  const found = ways.length > 0 ? ways : [...options.values()];
  return found.filter((option) => broken(locks, option, card) === null).length;
}
