// Values and numbers as a person reads them.

// Characters that a screen would obey instead of showing: controls, and what turns the direction.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const PERCENT = "\u00a0%"; // kept on one line with its number

/** Untrusted text on one line, harmless to show. */
export const clean = (text) => String(text).replace(/\s+/g, " ").replace(UNSEEN, "").trim();

// What the card on show calls its features, and the chances that decide with it.
const card = { labels: new Map(), limits: [0.5] };

/** Take the names and the limits of a card. */
export function speakOf({ features, limits_of_chance: limits }) {
  card.labels = new Map(features.map((feature) => [feature.name, clean(feature.label)]));
  card.limits = limits;
}

/** A feature's name for people: the card's, or its own as words: `other_debts` reads "other debts". */
export const label = (name) => card.labels.get(name) || clean(name).replaceAll("_", " ").trim() || "(no name)";

/** The same at the start of a line. */
export function heading(name) {
  const words = label(name);
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A number with at most the feature's decimals, its thousands apart; a year stays 2024. */
export function number(value, feature = null) {
  const isYear = /year|yr/i.test(feature?.name ?? "") && value >= 1500 && value < 2200;
  return value.toLocaleString("en", { useGrouping: !isYear, maximumFractionDigits: feature?.decimals ?? 10 });
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
  if (!feature?.unit || feature.levels || typeof value !== "number") return told;
  return clean(feature.unit) === "%" ? `${told}${PERCENT}` : `${told} ${clean(feature.unit)}`;
}

/** A probability; what is not certain is not shown as certain, nor on the wrong side of a limit. */
export function chance(probability, limits = card.limits) {
  const percent = tidy(100 * probability);
  if (limits.includes(probability)) return `${percent}${PERCENT}`;
  if (probability > 0.99 && probability < 1 && !limits.some((limit) => limit >= 0.99 && limit < 1)) return `>99${PERCENT}`;
  if (probability > 0 && probability < 0.01 && !limits.some((limit) => limit > 0 && limit <= 0.01)) return `<1${PERCENT}`;
  let wrong = null;
  for (const digits of [0, 1]) {
    const shown = rounded(percent, digits);
    const isWrong = (limit) => Math.sign(shown - tidy(100 * limit)) !== Math.sign(percent - tidy(100 * limit));
    wrong = [0, ...limits, 1].find(isWrong);
    if (wrong === undefined) return `${shown.toFixed(digits)}${PERCENT}`;
  }
  const near = probability > wrong ? `>${tidy(100 * wrong)}` : (Math.floor(10 * percent) / 10).toFixed(1);
  return `${near}${PERCENT}`;
}

/** A number with so many decimals, a half to the even digit, as the server rounds. */
function rounded(number, digits) {
  const [scaled, down] = [tidy(number * 10 ** digits), Math.floor(tidy(number * 10 ** digits))];
  const up = scaled - down > 0.5 || (scaled - down === 0.5 && down % 2 !== 0);
  return (up ? down + 1 : down) / 10 ** digits;
}

/** A number without what floats add at their end. */
const tidy = (number) => Number(number.toPrecision(12));

/** A number of things: `counted(1, "way out", "ways out")`. */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

const COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/** A small number as a word at the start of a line: "Five". */
export function countWord(count) {
  const word = COUNTS[count] ?? count.toLocaleString("en");
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** Several words as a person lists them: "income, savings and age". */
export function listed(words, last = "and") {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`;
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
