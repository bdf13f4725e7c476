// What was tried, as a growing tree: the present values in the middle, each ring one change more.

import { el, fill, slot, svg } from "./dom.js";
import { paced } from "./pace.js";
import { first, same } from "./state.js";
import { counted, heading, plainValue } from "./words.js";

const SIZE = 640;
const MOST_NODES = 300;

export function createTree(store, { reveal }) {
  let drawn = null;
  const drawSoon = paced(() => {
    const { search, card } = store.get();
    if (!search) return;
    drawn = search.tried;
    draw(search, card);
  });

  function draw(search, card) {
    const { tried } = search;
    const nodes = folded(tried);
    const placed = placedOn(nodes);
    const byId = new Map(placed.map((each) => [each.id, each]));
    const features = new Map(card.features.map((feature) => [feature.name, feature]));
    const edges = placed.filter((each) => each.id !== 0).map((each) => edge(byId.get(each.parent), each));
    const dots = placed.map((each) => dot(each, features, () => show(search, each)));
    fill(slot("view-tree"),
      el("p", { class: "chart-words" }, inWords(tried)),
      svg("svg", { viewBox: `${-SIZE / 2} ${-SIZE / 2} ${SIZE} ${SIZE}`, class: "tree", role: "img",
        "aria-label": inWords(tried) }, edges, dots),
      legend(nodes.some((each) => each.folded)));
  }

  function show(search, node) {
    const found = [...first(search), ...search.options.values()].find((option) => same(option.changes, node.changes));
    if (found) reveal(found);
  }

  return {
    render({ search }) {
      if (slot("views").open && !slot("view-tree").hidden && search && drawn !== search.tried) drawSoon();
    },
  };
}

/** Put the tried rows into at most so many nodes: leaves of one parent become one where they are too many. */
function folded(tried) {
  if (tried.length <= MOST_NODES) return tried;
  const refused = foldLeaves(tried, (node) => !node.approved);
  return refused.length <= MOST_NODES ? refused : foldLeaves(refused, () => true);
}

function foldLeaves(nodes, wanted) {
  const parents = new Set(nodes.map((node) => node.parent));
  const kept = [];
  const piles = new Map();
  for (const node of nodes) {
    if (parents.has(node.id) || !wanted(node)) {
      kept.push(node);
      continue;
    }
    const name = `${node.parent} ${node.approved}`;
    const pile = piles.get(name);
    if (pile) pile.folded += node.folded ?? 1;
    else piles.set(name, { ...node, folded: node.folded ?? 1 });
  }
  return [...kept, ...piles.values()];
}

/** Give each node its ring, one for each change, and its angle: a subtree gets room by its leaves. */
function placedOn(nodes) {
  const children = childrenOf(nodes);
  const walked = walk(children);
  const leaves = new Map();
  for (const { id } of [...walked].reverse()) {
    const below = (children.get(id) ?? []).map((child) => leaves.get(child.id));
    leaves.set(id, below.reduce((sum, each) => sum + each, 0) || 1);
  }
  const outermost = Math.max(1, ...walked.map((node) => node.ring));
  const room = new Map([[0, [0, 2 * Math.PI]]]);
  return walked.map((node) => {
    const [from, to] = room.get(node.id);
    let start = from;
    for (const child of children.get(node.id) ?? []) {
      const share = ((to - from) * leaves.get(child.id)) / leaves.get(node.id);
      room.set(child.id, [start, start + share]);
      start += share;
    }
    const angle = (from + to) / 2 - Math.PI / 2;
    const radius = (node.ring / outermost) * (SIZE / 2 - 20);
    return { ...node, x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  });
}

/** Whose child each node is; those that change the same things stand side by side. */
function childrenOf(nodes) {
  const known = new Set(nodes.map((node) => node.id));
  const children = new Map();
  const levers = (node) => Object.keys(node.changes).sort().join("\n");
  for (const node of [...nodes].sort((a, b) => (levers(a) < levers(b) ? -1 : 1))) {
    const parent = known.has(node.parent) && node.parent < node.id ? node.parent : 0;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push({ ...node, parent });
  }
  return children;
}

/** All nodes, each after its parent, with the ring it stands on. */
function walk(children) {
  const walked = [{ id: 0, parent: 0, changes: {}, approved: false, ring: 0 }];
  for (const node of walked) {
    for (const child of children.get(node.id) ?? []) {
      walked.push({ ...child, ring: Math.max(node.ring + 1, Object.keys(child.changes).length) });
    }
  }
  return walked;
}

const edge = (from, to) => svg("line", {
  x1: from.x.toFixed(1), y1: from.y.toFixed(1), x2: to.x.toFixed(1), y2: to.y.toFixed(1),
  class: to.approved ? "edge is-yes" : "edge",
});

function dot(node, features, pressed) {
  const kind = node.id === 0 ? "is-start" : node.approved ? "is-yes" : "is-no";
  const r = node.id === 0 ? 9 : Math.min(12, 4.5 + Math.sqrt((node.folded ?? 1) - 1));
  return svg("circle", {
    cx: node.x.toFixed(1), cy: node.y.toFixed(1), r, class: `node ${kind}`, on: { click: pressed },
  }, svg("title", {}, words(node, features)));
}

function words(node, features) {
  if (node.id === 0) return "The present values";
  if (node.folded > 1) return `${node.folded} rows, ${node.approved ? "approved" : "not approved"}`;
  const changes = Object.entries(node.changes).map(([name, [, to]]) =>
    `${heading(name)} ${plainValue(features.get(name), to)}`);
  return `${changes.join(", ")}: ${node.approved ? "yes" : "no"}`;
}

function inWords(tried) {
  const yes = tried.filter((node) => node.approved).length;
  return `The model was asked about ${counted(tried.length, "row")}: ${yes.toLocaleString("en")} approved, ` +
    `${(tried.length - yes).toLocaleString("en")} not. ` +
    "In the middle, the present values; each ring further out is one change more.";
}

function legend(hasFolded) {
  const sign = (kind) => svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("circle", { cx: 10, cy: 10, r: 6, class: `node ${kind}` }));
  return el("ul", { class: "legend" },
    el("li", {}, sign("is-start"), "present values"),
    el("li", {}, sign("is-yes"), "approved: press to see its card"),
    el("li", {}, sign("is-no"), "not approved"),
    hasFolded ? el("li", {}, "larger: several rows in one dot") : null);
}
