// What a person cannot do, on top of the card's rules: pure functions over the locks.

import { own } from "./state.js";

const without = (table, name) => Object.fromEntries(Object.entries(table).filter(([key]) => key !== name));

export const isFixed = (locks, name) => locks.fixed.includes(name);

export function toggle(locks, name) {
  const fixed = isFixed(locks, name) ? locks.fixed.filter((each) => each !== name) : [...locks.fixed, name];
  return { ...locks, fixed };
}

export const fix = (locks, name) => (isFixed(locks, name) ? locks : toggle(locks, name));

/** Bound a number; a limit of `null` is none. */
export function limit(locks, name, min, max) {
  const ranges = without(locks.ranges, name);
  const isLimit = min !== null || max !== null;
  return { ...locks, ranges: isLimit ? { ...ranges, [name]: { min, max } } : ranges };
}

/** Allow only some levels; all of them is no lock. */
export function allowOnly(locks, name, values, all) {
  const choices = without(locks.choices, name);
  return { ...locks, choices: values.length < all.length ? { ...choices, [name]: values } : choices };
}

export function exclude(locks, changes) {
  const known = locks.excluded.some((each) => JSON.stringify(each) === JSON.stringify(changes));
  return known ? locks : { ...locks, excluded: [...locks.excluded, changes] };
}

export const allowAgain = (locks, changes) => ({
  ...locks,
  excluded: locks.excluded.filter((each) => each !== changes),
});

/** What two windows ruled out at the same moment: all of it. */
export function joined(mine, theirs) {
  const known = new Set(mine.excluded.map((changes) => JSON.stringify(changes)));
  return {
    fixed: [...new Set([...mine.fixed, ...theirs.fixed])],
    ranges: { ...theirs.ranges, ...mine.ranges },
    choices: { ...theirs.choices, ...mine.choices },
    excluded: [...mine.excluded, ...theirs.excluded.filter((changes) => !known.has(JSON.stringify(changes)))],
  };
}

/** Whether nothing is locked or ruled out. */
export const isOpen = ({ fixed, ranges, choices, excluded }) =>
  [fixed, Object.keys(ranges), Object.keys(choices), excluded].every((list) => list.length === 0);

/** What of the locks an option of a card breaks, as [kind, feature]; null where it keeps them all. */
export function broken(locks, option, card) {
  for (const [name, [, to]] of Object.entries(option.changes)) {
    if (isFixed(locks, name)) return ["fixed", name];
    if (own(locks.choices, name)?.includes(to) === false) return ["choice", name];
  }
  for (const [name, range] of Object.entries(locks.ranges)) {
    const value = own(option.row, name);
    if (typeof value === "number" && outside(range, value)) return ["range", name];
  }
  const levels = new Set(card.features.filter((feature) => feature.levels).map((feature) => feature.name));
  return locks.excluded.some((changes) => goesAsFar(option, changes, levels)) ? ["excluded", ""] : null;
}

const outside = ({ min, max }, value) => (min !== null && value < min) || (max !== null && value > max);

/** Whether an option goes at least as far in each of the changes; levels, even 1 and 2, have no farther. */
function goesAsFar(option, changes, levels) {
  return Object.entries(changes).every(([name, [from, to]]) => {
    const now = own(option.changes, name)?.[1];
    if (now === undefined) return false;
    if (levels.has(name) || typeof to !== "number" || typeof from !== "number") return now === to;
    return to > from ? now >= to : now <= to;
  });
}
