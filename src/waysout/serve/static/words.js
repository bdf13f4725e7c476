// Values and numbers as a person reads them.

// Characters that a screen would obey instead of showing: controls, and what turns the direction.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Untrusted text on one line, harmless to show. */
export const clean = (text) => String(text).replace(/\s+/g, " ").replace(UNSEEN, "").trim();

/** A feature's name as words: `other_debts` reads "other debts". */
export const label = (name) => clean(name).replaceAll("_", " ").trim() || "(no name)";

/** The same at the start of a line. */
export function heading(name) {
  const words = label(name);
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A number with its thousands apart where the feature goes to 10,000: a year stays 2024. */
export function number(value, feature = null) {
  const largest = Math.max(Math.abs(value), ...(feature?.range ?? []).map(Math.abs));
  return value.toLocaleString("en", { useGrouping: largest >= 10000, maximumFractionDigits: 10 });
}

/** A value without its unit, in the card's own words where it has some. */
export function plainValue(feature, value) {
  if (value === null || value === undefined) return "missing";
  const level = feature?.levels?.find((each) => each.value === value);
  if (level) return clean(level.words) || "(empty)";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? number(value, feature) : clean(value) || "(empty)";
}

/** A value with its unit. */
export function fullValue(feature, value) {
  const told = plainValue(feature, value);
  return feature?.unit && typeof value === "number" ? `${told} ${clean(feature.unit)}` : told;
}

/** A probability; what is not certain is not shown as certain. */
export function chance(probability) {
  if (probability > 0.99 && probability < 1) return ">99%";
  if (probability > 0 && probability < 0.01) return "<1%";
  return `${Math.round(probability * 100)}%`;
}

/** A number of things: `counted(1, "way out", "ways out")`. */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** How big a step an option is, from how near it stays to the present values. */
export function stepSize(proximity) {
  if (proximity >= 0.75) return "small step";
  return proximity >= 0.6 ? "medium step" : "large step";
}

/** Several words as a person lists them: "income, savings and age". */
export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** The LLM's reasons as one text; what holds no two words is no reason. */
export function reasonText(reasons) {
  const told = reasons.map((reason) => clean(reason).replace(/[ .;]+$/, "")).filter(saysSomething);
  return [...new Set(told)].map(withPlainName).join("; ");
}

function saysSomething(reason) {
  const said = reason.includes(": ") ? reason.slice(reason.indexOf(": ") + 2) : reason;
  return (said.match(/\p{L}{2,}/gu) ?? []).length >= 2;
}

function withPlainName(reason) {
  return reason.replace(/^[\p{L}\p{N}_]+(?=: )/u, (name) => name.replaceAll("_", " "));
}

/** A time as a person reads it. */
export function time(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}
