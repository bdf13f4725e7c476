// A map of the options: how near each stays to the present values, by how many changes it needs.

import { el, fill, setAttribute, slot, svg } from "./dom.js";
import { chance, counted, label, listed, stepSize } from "./words.js";

const WIDEST = 900;
const MARGIN = { left: 92, right: 24, top: 16, bottom: 48 };
const LANE = 74; // height of the lane of one number of changes
const APART = 15; // px between two dots
const SHIFTS = [0, 15, -15, 30, -30];
const SURE = [[0.9, "sure"], [0.7, "likely"], [0, "just enough"]];

export function createMap(store, { reveal }) {
  let drawn = null;
  let at = 0; // the dot that the Tab key reaches

  return {
    render({ search, card }) {
      if (slot("view-map").hidden || !search || drawn === search.options) return;
      drawn = search.options;
      draw([...search.options.values()], card.labels_only);
    },
  };

  function draw(options, labelsOnly) {
    if (options.length === 0) {
      fill(slot("view-map"), el("p", { class: "soft" }, "No way out to draw yet."));
      return;
    }
    const scale = scaleOf(options, Math.min(WIDEST, slot("view-map").clientWidth || WIDEST));
    at = Math.min(at, options.length - 1);
    const dots = places(options, scale).map(({ option, x, y }, i) => dot(option, x, y, i === at, labelsOnly));
    const picture = svg("svg", {
      viewBox: `0 0 ${scale.width} ${scale.height}`, width: scale.width, class: "map", role: "group",
      "aria-label": "Map of the ways out. Arrow keys walk from one to the next.",
    }, axes(scale), dots);
    picture.addEventListener("keydown", (event) => walk(event, dots));
    fill(slot("view-map"), el("p", { class: "chart-words" }, inWords(options, labelsOnly)), picture,
      labelsOnly ? null : legend());
  }

  function dot(option, x, y, reachable, labelsOnly) {
    const names = listed(Object.keys(option.changes).map(label));
    const sure = labelsOnly ? "" : `chance ${chance(option.probability)}, `;
    const words = `${names}: ${sure}${counted(option.sparsity, "change")}, ${stepSize(option.proximity)}`;
    const node = svg("circle", {
      cx: x.toFixed(1), cy: y.toFixed(1), r: 6 + 3 * option.probability, class: `dot ${sureness(option)}`,
      tabindex: reachable ? "0" : "-1", role: "button", "aria-label": words,
      on: { click: () => reveal(option.key) },
    }, svg("title", {}, words));
    return node;
  }

  function walk(event, dots) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const now = dots.indexOf(document.activeElement);
    if (["Enter", " "].includes(event.key) && now >= 0) {
      event.preventDefault();
      dots[now].dispatchEvent(new MouseEvent("click"));
    }
    if (!by || now < 0) return;
    event.preventDefault();
    at = (now + by + dots.length) % dots.length;
    dots.forEach((each, i) => setAttribute(each, "tabindex", i === at ? "0" : "-1"));
    dots[at].focus();
  }
}

const sureness = (option) => SURE.find(([least]) => option.probability >= least)[1].split(" ")[0];

function scaleOf(options, width) {
  const nearness = options.map((option) => option.proximity);
  const low = Math.max(0, Math.floor((Math.min(...nearness) - 0.02) * 10) / 10);
  const high = Math.min(1, Math.ceil((Math.max(...nearness) + 0.02) * 10) / 10);
  const counts = options.map((option) => option.sparsity);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const height = MARGIN.top + LANE * (most - least + 1) + MARGIN.bottom;
  const x = (value) => MARGIN.left + ((value - low) / (high - low || 1)) * (width - MARGIN.left - MARGIN.right);
  const y = (count) => MARGIN.top + LANE * (count - least + 0.5);
  return { width, height, low, high, least, most, x, y };
}

/** Give each option its place, near ones one above the other within their lane. */
function places(options, { x, y }) {
  const lanes = new Map();
  const sorted = [...options].sort((a, b) => a.sparsity - b.sparsity || b.proximity - a.proximity);
  return sorted.map((option) => {
    const lane = lanes.get(option.sparsity) ?? [];
    lanes.set(option.sparsity, lane);
    const here = x(option.proximity);
    const free = (shift) => lane.every((other) => Math.hypot(other.x - here, other.shift - shift) >= APART);
    const shift = SHIFTS.find(free) ?? 0;
    lane.push({ x: here, shift });
    return { option, x: here, y: y(option.sparsity) + shift };
  });
}

function axes({ width, height, low, high, least, most, x, y }) {
  const floor = height - MARGIN.bottom;
  const lanes = [];
  for (let count = least; count <= most; count += 1) {
    lanes.push(svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(count), y2: y(count), class: "lane" }),
      svg("text", { x: MARGIN.left - 12, y: y(count) + 4, "text-anchor": "end" }, counted(count, "change")));
  }
  return [lanes,
    svg("text", { x: x(low), y: floor + 28, class: "axis-end" }, "← large step"),
    svg("text", { x: x(high), y: floor + 28, "text-anchor": "end", class: "axis-end" }, "small step →")];
}

function inWords(options, labelsOnly) {
  const few = Math.min(...options.map((option) => option.sparsity));
  const lean = options.filter((option) => option.sparsity === few).length;
  const sure = options.filter((option) => option.probability >= 0.9).length;
  const surest = labelsOnly ? "" : `, ${sure} with a chance of 90% or more`;
  return `${counted(options.length, "way out", "ways out")}: ${lean} with ${counted(few, "change")}${surest}. ` +
    "To the right, less has to move; further up, fewer things. Press a dot to see its card.";
}

function legend() {
  const words = { sure: "chance of 90% or more", likely: "70% to 90%", just: "below 70%" };
  const sign = (kind) => svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("circle", { cx: 10, cy: 10, r: 8, class: `dot ${kind}` }));
  return el("ul", { class: "legend" },
    Object.entries(words).map(([kind, text]) => el("li", {}, sign(kind), text)));
}
