// Builds the page's nodes. Names, values and reasons are untrusted: they become text, never markup,
// and only attributes on these lists are ever set.

const SVG = "http://www.w3.org/2000/svg";

const HTML_TAGS = new Set([
  "a", "bdi", "button", "caption", "details", "div", "dd", "dt", "fieldset", "h3", "input", "label", "legend", "li",
  "option", "p", "select", "span", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul",
]);
const SVG_TAGS = new Set(["svg", "path", "circle", "g", "line", "text", "title"]);
const ATTRIBUTES = new Set([
  "checked", "class", "dir", "disabled", "download", "for", "hidden", "href", "id", "inputmode", "max", "min",
  "placeholder", "rel", "role", "scope", "step", "tabindex", "target", "title", "type", "value",
  "cx", "cy", "d", "focusable", "r", "text-anchor", "viewBox", "width", "x", "x1", "x2", "y", "y1", "y2",
]);

/** Make an HTML element: `on` holds listeners, `vars` custom properties for the style sheet. */
export function el(tag, attributes = {}, ...children) {
  if (!HTML_TAGS.has(tag)) throw new Error(`the page makes no <${tag}>`);
  return dress(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  if (!SVG_TAGS.has(tag)) throw new Error(`the page draws no <${tag}>`);
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(node, { on = {}, vars = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  for (const [name, value] of Object.entries(vars)) node.style.setProperty(`--${name}`, value);
  node.append(...present(children));
  return node;
}

/** Set one attribute: `true` is the bare attribute, `false` and `null` are its absence. */
export function setAttribute(node, name, value) {
  if (!ATTRIBUTES.has(name) && !name.startsWith("aria-") && !name.startsWith("data-")) {
    throw new Error(`the page sets no attribute ${name}`);
  }
  if (name === "href" && !/^[/#]/.test(value)) throw new Error("links stay on this server");
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

/** Put children in the place of those a node has. */
export function fill(node, ...children) {
  node.replaceChildren(...present(children));
  return node;
}

/** Put the children in order, moving only those that stand elsewhere: what is read stays put. */
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
}

/** Untrusted text that cannot turn the direction of the words around it. */
export const bdi = (text, attributes = {}) => el("bdi", attributes, text);

/** A part of the page's shell, by its id. */
export function slot(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no #${id}`);
  return node;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
