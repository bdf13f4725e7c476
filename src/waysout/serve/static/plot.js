// The ways by effort and chance. Pointing at one tells it, pressing pins it.

import { bdi, fill, setAttribute, slot, svg } from "./dom.js";
import { same } from "./state.js";
import { shownWays } from "./routes.js";
import { chance, clean } from "./words.js";

const SIZE = { width: 640, height: 300 }; // the width is that of the page where it is narrower
const MARGIN = { left: 64, right: 28, top: 34, bottom: 46 };
const FEWEST = 2;
const APART = 30; // px between the middles of two dots

export function createPlot(store, { pin }) {
  let drawn = { ways: null, pins: null };
  return {
    render(state) {
      const { search, card } = state;
      const ways = shownWays(state);
      slot("plot").hidden = ways.length < FEWEST || card.labels_only;
      const pins = search?.pins ?? [];
      if (slot("plot").hidden || (drawn.pins === pins && same(drawn.ways, ways.map(({ id }) => id)))) return;
      drawn = { ways: ways.map(({ id }) => id), pins };
      draw(ways, pins, pin);
    },
  };
}

function draw(ways, pins, pin) {
  SIZE.width = Math.min(640, slot("plot-picture").clientWidth || 640);
  const scale = scaleOf(ways);
  const placed = apart(ways.map((way, i) => ({ way, place: i + 1, x: scale.x(way.cost), y: scale.y(way.probability) })));
  const held = document.activeElement?.dataset?.dot;
  const dots = placed.map((each) => dot(each, pins.some((one) => same(one.changes, each.way.changes)), pin));
  fill(slot("plot-picture"), svg("svg", {
    viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, width: SIZE.width, class: "plot", role: "group", "aria-label": "The routes by effort and chance",
  }, axes(scale), dots));
  dots.find((node) => node.dataset.dot === held)?.focus();
}

function scaleOf(ways) {
  const most = Math.max(...ways.map(({ cost }) => cost)) * 1.08 || 1;
  const low = Math.min(0.5, ...ways.map(({ probability }) => Math.floor(probability * 10) / 10));
  const high = Math.min(1, Math.max(...ways.map(({ probability }) => Math.ceil(probability * 10 + 0.5) / 10)));
  const [wide, tall] = [SIZE.width - MARGIN.left - MARGIN.right, SIZE.height - MARGIN.top - MARGIN.bottom];
  return {
    low, high,
    x: (cost) => MARGIN.left + (cost / most) * wide,
    y: (probability) => MARGIN.top + (1 - (probability - low) / (high - low || 1)) * tall,
  };
}

/** Move dots that would hide one another to the right of each other. */
function apart(placed) {
  const done = [];
  for (const each of [...placed].sort((a, b) => a.x - b.x)) {
    const hides = () => done.some((other) => Math.hypot(other.x - each.x, other.y - each.y) < APART);
    while (hides() && each.x < SIZE.width - MARGIN.right) each.x += 4;
    while (hides()) each.y -= 4;
    done.push(each);
  }
  return placed;
}

function axes({ low, high, y }) {
  const floor = SIZE.height - MARGIN.bottom;
  const lines = [];
  for (let tenths = Math.round(low * 10); tenths <= Math.round(high * 10); tenths += 1) {
    const at = y(tenths / 10);
    lines.push(svg("line", { x1: MARGIN.left, x2: SIZE.width - MARGIN.right, y1: at, y2: at, class: "lane" }),
      svg("text", { x: MARGIN.left - 10, y: at + 4, "text-anchor": "end" }, `${tenths * 10}\u00a0%`));
  }
  return [lines,
    svg("text", { x: MARGIN.left - 54, y: 14, class: "axis-end" }, "chance of a yes"),
    svg("text", { x: MARGIN.left, y: floor + 30, class: "axis-end" }, "less effort"),
    svg("text", { x: SIZE.width - MARGIN.right, y: floor + 30, "text-anchor": "end", class: "axis-end" }, "more effort →")];
}

function dot({ way, place, x, y }, isPinned, pin) {
  const words = `${clean(way.title)}: chance ${chance(way.probability)}`;
  const tell = () => fill(slot("plot-told"), `${place}. `, bdi(words), isPinned ? " (pinned)" : "");
  const press = () => pin(way);
  const node = svg("g", {
    class: `dot${isPinned ? " is-pinned" : ""}`, tabindex: "0", role: "button", "aria-pressed": String(isPinned),
    "aria-label": `Pin route ${place}: ${words}`, "data-dot": way.id,
    on: { click: press, pointerenter: tell, focus: tell, keydown: (event) => {
      if (!["Enter", " "].includes(event.key)) return;
      event.preventDefault();
      press();
    } },
  }, svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 14 }),
  svg("text", { x: x.toFixed(1), y: (y + 4.5).toFixed(1), "text-anchor": "middle", "aria-hidden": "true" }, String(place)),
  svg("title", {}, words));
  setAttribute(node, "focusable", "true");
  return node;
}
