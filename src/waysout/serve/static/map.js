// A map of the options: how near each stays to the present values, by how many changes it needs.

import { el, fill, setAttribute, slot, svg } from "./dom.js";
import { paced } from "./pace.js";
import { chance, counted, label, listed, stepSize } from "./words.js";

const WIDEST = 900;
const MARGIN = { left: 92, right: 24, top: 16, bottom: 48 };
const LANE = 90; // height of the lane of one number of changes
const SPREAD = 30; // px that dots may stand above or below the middle of their lane
const FEW = { apart: 15, size: 1 }; // px between two dots; their size
const MANY = { apart: 7.5, size: 0.5 };
const MANY_OPTIONS = 300;
const SURE = [[0.9, "sure"], [0.7, "likely"], [0, "just enough"]];

export function createMap(store, { reveal }) {
  let drawn = null;
  let at = ""; // the option whose dot the Tab key reaches

  const drawSoon = paced(() => {
    const { search, card } = store.get();
    if (!search) return;
    drawn = search.options;
    draw([...drawn.values()], card.labels_only);
  });

  return {
    render({ search }) {
      if (slot("views").open && !slot("view-map").hidden && search && drawn !== search.options) drawSoon();
    },
  };

  function draw(options, labelsOnly) {
    if (options.length === 0) {
      fill(slot("view-map"), el("p", { class: "soft" }, "No option to draw yet."));
      return;
    }
    const scale = scaleOf(options, Math.min(WIDEST, slot("view-map").clientWidth || WIDEST));
    const placed = places(options, scale);
    if (!drawn.has(at)) at = placed[0].option.key;
    const dots = placed.map((place) => dot(place, scale.dots.size, labelsOnly));
    const picture = svg("svg", {
      viewBox: `0 0 ${scale.width} ${scale.height}`, width: scale.width, class: "map", role: "group",
      "aria-label": "Map of the options. Arrow keys walk from one to the next.",
    }, axes(scale), dots);
    picture.addEventListener("keydown", (event) => walk(event, dots));
    const held = slot("view-map").contains(document.activeElement);
    fill(slot("view-map"), el("p", { class: "chart-words" }, inWords(options, labelsOnly)), picture,
      labelsOnly ? null : legend());
    if (held) dots.find((each) => each.dataset.key === at).focus();
  }

  function dot({ option, x, y }, size, labelsOnly) {
    const names = listed(Object.keys(option.changes).map(label));
    const sure = labelsOnly ? "" : `chance ${chance(option.probability)}, `;
    const words = `${names}: ${sure}${counted(option.sparsity, "change")}, ${stepSize(option.proximity)}`;
    return svg("circle", {
      cx: x.toFixed(1), cy: y.toFixed(1), r: size * (6 + 3 * option.probability), class: `dot ${sureness(option)}`,
      tabindex: option.key === at ? "0" : "-1", role: "button", "aria-label": words, "data-key": option.key,
      on: { click: () => reveal(option) },
    }, svg("title", {}, words));
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
    const next = dots[(now + by + dots.length) % dots.length];
    at = next.dataset.key;
    setAttribute(dots[now], "tabindex", "-1");
    setAttribute(next, "tabindex", "0");
    next.focus();
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
  const dots = options.length > MANY_OPTIONS ? MANY : FEW;
  return { width, height, low, high, least, most, x, y, dots };
}

/** Give each option its place, near ones one above the other within their lane. */
function places(options, { x, y, dots: { apart } }) {
  const lanes = new Map();
  const shifts = shiftsOf(apart);
  const sorted = [...options].sort((a, b) => a.sparsity - b.sparsity || b.proximity - a.proximity);
  return sorted.map((option) => {
    const lane = lanes.get(option.sparsity) ?? [];
    lanes.set(option.sparsity, lane);
    const here = x(option.proximity);
    const near = lane.filter((other) => other.x - here < apart);
    const isFree = (shift) => near.every((other) => Math.hypot(other.x - here, other.shift - shift) >= apart);
    const shift = shifts.find(isFree) ?? shifts[lane.length % shifts.length];
    lane.push({ x: here, shift });
    return { option, x: here, y: y(option.sparsity) + shift };
  });
}

/** How far from the middle of its lane a dot may stand, the nearest first: 0, 15, -15, … */
function shiftsOf(apart) {
  const steps = Array.from({ length: Math.floor(SPREAD / apart) }, (_, i) => (i + 1) * apart);
  return [0, ...steps.flatMap((step) => [step, -step])];
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
  const surest = labelsOnly ? "" : `, ${sure.toLocaleString("en")} with a chance of 90% or more`;
  const leanest = `${lean.toLocaleString("en")} with ${counted(few, "change")}`;
  return `${counted(options.length, "option")}: ${leanest}${surest}. ` +
    "To the right, less has to move; further up, fewer things. Press a dot to see its card.";
}

function legend() {
  const words = { sure: "chance of 90% or more", likely: "70% to 90%", just: "below 70%" };
  const sign = (kind) => svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("circle", { cx: 10, cy: 10, r: 8, class: `dot ${kind}` }));
  return el("ul", { class: "legend" },
    Object.entries(words).map(([kind, text]) => el("li", {}, sign(kind), text)));
}
