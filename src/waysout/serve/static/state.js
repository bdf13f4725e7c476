// The state of the page in one object, and how each event of a search changes it.

export const NO_LOCKS = Object.freeze({ fixed: [], ranges: {}, choices: {}, excluded: [] });

export const START = Object.freeze({
  card: null, // the problem, as the server describes it
  person: null, // the number of the customer's row in the table; null for values that were typed
  row: {},
  faults: {}, // feature → what is wrong with its value
  decision: null, // the model's answer to the row
  locks: NO_LOCKS,
  calls: 0, // LLM calls that a search may cost
  search: null,
  misses: [], // the nearest misses of a search that found nothing
  trial: null, // the values of "what if", where they differ from the case
  trialAnswer: null, // the model's answer to them
  notice: "",
});

/** The state of a search before its first event, from the server's description of it. */
export function freshSearch(told) {
  return {
    id: told.id,
    row: told.row,
    llm: told.llm,
    standIn: told.stand_in,
    status: told.status,
    part: 0, // the part of the latest event
    lastPart: told.part, // the latest part on the server
    locks: told.locks ?? NO_LOCKS,
    budget: told.budget,
    begun: told.budget, // what was left when the part began
    ledger: told.ledger,
    ledgerAt: performance.now(),
    shortlist: [], // while the first part runs
    ways: [], // those of the part that ended last; they stay while the next one runs
    known: null, // the ways before this part, by their levers: what is not among them is new
    tipping: [], // what each lever does alone
    pins: told.pins ?? [],
    learning: null,
    ended: null,
    lastSentence: "", // of the part before, and its locks
    lastLocks: NO_LOCKS,
    stopping: false,
    unheard: false, // whether the server does not answer at present
    lastEvent: 0,
  };
}

const HEARD = {
  part: (search, told) => ({
    part: told.part, locks: told.locks, budget: told.budget, begun: told.budget, status: "running", ended: null,
    stopping: false, learning: null, shortlist: [], lastSentence: search.ended?.sentence ?? search.lastSentence,
    lastLocks: search.ended ? search.locks : search.lastLocks,
    known: search.ways.length > 0 ? new Map(search.ways.map((way) => [leversOf(way), way.id])) : search.known,
  }),
  decided: () => ({}),
  learning: (search, told) => ({ learning: told }),
  options: () => ({ learning: null }),
  shortlist: (search, told) => ({ shortlist: told.options }),
  ways: (search, told) => ({
    ways: told.ways.map((way) => ({ ...way, isNew: newsOf(way, search.known) })),
    tipping: told.tipping,
  }),
  pins: (search, told) => ({ pins: told.pins }),
  ledger: (search, told) => ({ ledger: told, ledgerAt: performance.now(), budget: leftOf(search.budget, told) }),
  // A part that found nothing tells no ways: those of the part before it are over.
  ended: (search, told) => ({
    status: "ended", ended: told, learning: null, stopping: false, ...(told.ways === 0 ? { ways: [] } : {}),
  }),
  gone: () => ({ status: "gone", stopping: false }),
};

const leversOf = ({ levers }) => [...levers].sort().join("\n");

/** Whether a way is new, or has other values than before; "" where it stood there already. */
function newsOf(way, known) {
  if (known === null || known.get(leversOf(way)) === way.id) return "";
  return known.has(leversOf(way)) ? "other values" : "new";
}

function leftOf(budget, told) {
  return { ...budget, calls_left: told.calls_left, oracle_rows_left: told.oracle_rows_left };
}

/** Return the search after an event. */
export function heard(search, type, told, number) {
  return { ...search, ...HEARD[type](search, told), lastEvent: number || search.lastEvent };
}

/** A value that calls its listeners when it changes, at most once a frame. */
export function createStore(first) {
  let now = first;
  let waiting = false;
  const listeners = [];
  const tell = () => {
    waiting = false;
    for (const listener of listeners) listener(now);
  };
  return {
    get: () => now,
    set(change) {
      now = { ...now, ...change };
      if (waiting) return;
      waiting = true;
      // Frames stop in a hidden tab; its title and lists should be right all the same.
      if (document.hidden) setTimeout(tell, 100);
      else requestAnimationFrame(tell);
    },
    listen: (listener) => listeners.push(listener),
  };
}

/** An object's own property: a feature may be called "constructor". */
export const own = (table, name) => (table && Object.hasOwn(table, name) ? table[name] : undefined);

/** Whether two values from the server are equal, whatever the order of their keys. */
export const same = (a, b) => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

export const isRunning = (search) => search?.status === "running";

/** How many LLM calls a search has used of its budget; those of a run it continues are not counted. */
export const callsUsed = (search) => (search ? search.budget.calls - search.budget.calls_left : 0);

/** Whether the values on the page differ from those of the search. */
export const isOtherCase = (state) => Boolean(state.search) && !same(state.row, state.search.row);
