// The page: wires what a person does to the server, and what the server says to what is seen.

import { canAskLlm, canSearch, createAnswer, createCalls } from "./answer.js";
import { addressOf, wanted } from "./address.js";
import { api, latestOnly, listen } from "./api.js";
import { createCompare } from "./compare.js";
import { bdi, el, fill, slot } from "./dom.js";
import { createDownloads } from "./downloads.js";
import { createForm } from "./form.js";
import { createLogin } from "./login.js";
import * as locking from "./locks.js";
import { createPerson } from "./person.js";
import { createPlot } from "./plot.js";
import { createRoutes, shownWays } from "./routes.js";
import { NO_LOCKS, START, createStore, freshSearch, heard, isOtherCase, isRunning, same } from "./state.js";
import { createTryout } from "./tryout.js";
import { clean, speakOf } from "./words.js";

const TYPING = 250; // ms after the last key before the model is asked
const SETTLING = 350; // ms after the last change before a search begins by itself
const MOST_PINS = 4;

const store = createStore(START);
const login = createLogin(async () => {
  await start();
  slot("find").focus();
});
const tryout = createTryout(store, { keep: afresh((row) => pin({ row })) }); // only offered where it is not pinned
const routes = createRoutes(store, {
  pin: afresh(pin),
  farther,
  tryOut: (option) => tryout.open(option.row),
  exclude: (way) => ruleOut(locking.exclude(store.get().locks, way.changes)),
  fix: (name) => ruleOut(locking.fix(store.get().locks, name)),
});
const form = createForm(store, { edited: afresh((row, faults) => take(row, null, faults, TYPING)), relocked: afresh(relock) });
const person = createPerson(store, afresh(choose));
const beginOnce = once(find);
const goOnOnce = once(() => goOn());
const answer = createAnswer(store, {
  find: afresh(beginOnce), goOn: afresh(goOnOnce), askLlm: afresh(once(askLlm)),
  stop: afresh(stop), anew: afresh(once(anew)), back: afresh(back),
});
const compare = createCompare(store, { unpin: afresh(pin) });
const parts = [person, form, answer, routes, compare, createPlot(store, { pin: afresh(pin) }), tryout, createDownloads()];
createCalls(store);

const decide = latestOnly((row, signal) => api.decide(store.get().card.name, { row }, signal));
let unlisten = () => {};
let settling = 0;
const asked = new Set(); // the locks that this window went on with

store.listen((state) => {
  slot("main").hidden = !state.card;
  renderNotice(state);
  if (!state.card) return;
  for (const part of parts) part.render(state);
  renderTitle(state);
});

// The case --------------------------------------------------------------------------------------

/** Another customer: what the last one could not do says nothing of this one. Returns what is wrong with it. */
async function choose(row, number, incomplete = false) {
  try {
    // The server reads what a file holds: it knows the table's spelling.
    const typed = number === null && !incomplete ? (await api.decide(store.get().card.name, { row })).row : row;
    store.set({ locks: NO_LOCKS });
    show(typed, number);
    return "";
  } catch (error) {
    if (error.status !== 422) report(error);
    return clean(error.message);
  }
}

/** Show a row in the form, as if it had been typed; a search begins at once. */
function show(row, number) {
  form.show(row);
  const { row: typed, faults } = form.read();
  take(typed, number, faults, 0, 0);
}

/** Take values in, and ask the model about them. */
function take(row, number, faults, pause = 0, settle = SETTLING) {
  store.set({ row, person: number, faults, trial: null });
  clearTimeout(settling);
  if (Object.keys(faults).length > 0) return;
  decide(row, pause, (told) => {
    store.set({ decision: told, row: told.row });
    settleSoon(settle);
  }, (error) => refused(error, row));
}

/** Show a refusal at the value that it names, or above all. */
function refused(error, row) {
  const named = Object.keys(row).find((name) => error.message.includes(`'${name}'`));
  store.set(named ? { faults: { [named]: clean(error.message) } } : {});
  if (!named) report(error);
}

/** What a card asks was ruled out: the card goes, and the others are read on. */
function ruleOut(locks) {
  relock(locks);
  slot("cards-heading").focus();
}

function relock(locks) {
  store.set({ locks, trial: null });
  settleSoon(SETTLING);
}

// The search begins by itself -------------------------------------------------------------------

function settleSoon(pause) {
  clearTimeout(settling);
  if (store.get().card.instant) settling = setTimeout(settle, pause);
}

/** Search for the case as it stands, where the model is at hand and no search has done so. */
async function settle() {
  const state = store.get();
  const { search, locks } = state;
  if (!canSearch(state)) {
    if (state.decision?.approved && search) forgetSearch();
    return;
  }
  const isFresh = !search || search.status === "gone" || isOtherCase(state);
  if (!isFresh && same(locks, search.locks)) return;
  if (!isFresh && isRunning(search)) {
    // It ends with what it has, and `ended` comes back here.
    if (!search.stopping) await stop();
    return;
  }
  if (isFresh || search.budget.oracle_rows_left < state.card.limits.part_rows) await beginOnce();
  else await goOnOnce();
}

/** Do something that the server may refuse. What begins by itself does not clear what was said before. */
async function attempt(act) {
  try {
    await act();
  } catch (error) {
    report(error);
  }
}

/** Something that a person does: what was said about the last thing is over. */
function afresh(act) {
  return (...given) => {
    store.set({ notice: "" });
    return act(...given);
  };
}

/** What is asked for again while it is being done is done once. */
function once(act) {
  let underWay = null;
  return () => (underWay ??= act().finally(() => {
    underWay = null;
  }));
}

function report(error) {
  if (error.status === 401) {
    unlisten();
    store.set({ card: null });
    return login.ask();
  }
  if (error.status === undefined) throw error;
  if (error.status === 404 && store.get().search) return gone();
  return store.set({ notice: clean(error.message) });
}

function amend(change) {
  store.set({ search: { ...store.get().search, ...change } });
}

/** Start a search; an LLM is asked afterwards, and never waited for. */
function find() {
  return attempt(async () => {
    const { card, row, locks } = store.get();
    const told = await api.start({ problem: card.name, row, locks, calls: 0 });
    // Somebody may have gone on to another case meanwhile.
    if (!same(store.get().row, row) || !same(store.get().locks, locks)) return settleSoon(0);
    const { search } = store.get();
    const pinned = search && same(search.row, told.row) ? search.pins.map((each) => each.row) : [];
    adopt(told);
    // A new search of the same case keeps what was pinned, as far as that still may be.
    if (pinned.length > 0) await api.pin(told.id, pinned).catch(() => null);
    return null;
  });
}

function stop() {
  return attempt(async () => {
    amend({ stopping: true });
    await api.stop(store.get().search.id).catch((error) => {
      amend({ stopping: false });
      throw error;
    });
  });
}

function goOn(calls = 0) {
  return attempt(async () => {
    const { search, locks } = store.get();
    const wish = { locks, ...(calls > 0 ? { calls } : {}) };
    asked.add(JSON.stringify(locks));
    const told = await api.goOn(search.id, wish).catch((error) => goneOnElsewhere(error, search.id));
    if (store.get().search?.id === search.id) join(told);
  });
}

function askLlm() {
  return goOn(store.get().calls);
}

/** The same search may stand in two windows, and the other one was pressed first. */
async function goneOnElsewhere(error, id) {
  const told = error.status === 409 ? await api.search(id) : null;
  if (told?.status !== "running") throw error;
  return told;
}

/** Follow a search that is known into its next part. */
function join(told) {
  store.set({ misses: [] });
  amend({ lastPart: told.part });
  follow(told.id);
}

/** Begin again, with no lock, nothing ruled out and nothing pinned. */
async function anew() {
  forgetSearch();
  store.set({ locks: NO_LOCKS, trial: null });
  if (store.get().card.instant) await find();
}

function back() {
  show(store.get().search.row, store.get().search.person);
}

function forgetSearch() {
  unlisten();
  routes.forget();
  // The browser's Back button brings the search back.
  if (wanted().search) history.pushState(null, "", addressOf(null, store.get().person));
  store.set({ search: null, misses: [] });
}

/** Take up a search: its events tell everything that happened. */
function adopt(told) {
  const before = store.get().search;
  if (before && !same(before.row, told.row)) routes.forget();
  const address = addressOf(told.id, store.get().person);
  // Going through customers makes steps to go back to; typing a value does not.
  if (before && before.person !== store.get().person) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  store.set({ search: { ...freshSearch(told), person: store.get().person }, misses: [] });
  follow(told.id);
}

function follow(id) {
  unlisten();
  unlisten = listen(id, {
    heard(type, told, number) {
      const { search, locks } = store.get();
      // A stream that is opened again tells everything from the beginning.
      if (search?.id !== id || number <= search.lastEvent) return;
      // Another window may have gone on with other locks: this one follows, and adds what it has of its own.
      if (type === "part" && !same(locks, told.locks)) {
        const isPending = !same(locks, search.locks) && !asked.has(JSON.stringify(told.locks));
        store.set({ locks: isPending ? locking.joined(locks, told.locks) : same(locks, search.locks) ? told.locks : locks });
      }
      if (type === "pins" && isRunning(search) && told.pins.length < search.pins.length) {
        store.set({ notice: "What you ruled out is no longer pinned." });
      }
      store.set({ search: heard(store.get().search, type, told, number) });
      if (type === "ended") ended(id);
      if (type === "gone") gone();
    },
    quiet: (unheard) => {
      if (!unheard && store.get().search?.unheard) store.set({ notice: "" });
      amend({ unheard });
    },
    lost: () => lost(id),
  });
}

/** A stream that was refused tells nothing of why: ask. */
function lost(id) {
  return attempt(async () => {
    await api.search(id);
    store.set({ notice: "The server sends no news of this search now. Reload the page to try again." });
  });
}

async function ended(id) {
  const state = store.get();
  const { search, card } = state;
  if (search.part < search.lastPart) return;
  if (!same(state.locks, search.locks) || isOtherCase(state)) settleSoon(0);
  else if (card.llm_local && search.ended.outcome !== "already-approved" && canAskLlm(state)) await askLlm();
  if (search.ways.length > 0 || search.ended.outcome === "already-approved") return;
  const result = await api.result(id).catch(() => null);
  if (result && store.get().search?.id === id) store.set({ misses: result.near_misses.slice(0, 1) });
}

function gone() {
  unlisten();
  amend({ status: "gone" });
  store.set({ notice: "The server no longer keeps this search. What is shown here can still be printed." });
}

// A browser keeps few streams open at once, so only windows that are seen have one.
document.addEventListener("visibilitychange", () => {
  const { search } = store.get();
  if (!search || search.status === "gone") return;
  if (document.hidden && !isRunning(search)) unlisten();
  if (!document.hidden) follow(search.id);
});

// Pins ------------------------------------------------------------------------------------------

/** Pin an option, or unpin it if it is pinned. */
function pin(option) {
  return attempt(async () => {
    const { search } = store.get();
    const rows = search.pins.map(({ row }) => row);
    const others = rows.filter((row) => !same(row, option.row));
    if (others.length === rows.length && rows.length >= MOST_PINS) {
      throw Object.assign(new Error(`At most ${MOST_PINS} can be pinned: unpin one first.`), { status: 0 });
    }
    const told = await api.pin(search.id, others.length < rows.length ? others : [...rows, option.row]);
    if (store.get().search?.id === search.id) amend({ pins: told.pins });
  });
}

async function farther(way) {
  const { card, search, locks } = store.get();
  return (await api.farther(card.name, { row: way.row, query: search.row, locks })).steps;
}

// What is seen besides --------------------------------------------------------------------------

function renderNotice({ notice }) {
  slot("notice").hidden = !notice;
  if (slot("notice").textContent !== notice) slot("notice").textContent = notice;
}

function renderTitle(state) {
  const count = shownWays(state).length;
  const title = count ? `(${count}) Ways out` : "Ways out";
  if (document.title !== title) document.title = title;
}

async function openProblem(name) {
  const card = await api.problem(name);
  speakOf(card);
  form.build(card);
  slot("problem-title").textContent = clean(card.title || card.name);
  fill(slot("rules"), card.rules.map(({ words }) => el("li", {}, bdi(clean(words)), ".")));
  store.set({ ...START, card, calls: card.llm ? card.suggested_calls : 0 });
  return person.load(name);
}

function offerProblems(problems) {
  slot("problem-choice").hidden = problems.length < 2;
  fill(slot("problem-select"), problems.map(({ name, title }) =>
    el("option", { value: name }, clean(title || name))));
}

function changeProblem(event) {
  return attempt(async () => {
    forgetSearch();
    showFirst(await openProblem(event.target.value));
  });
}

/** Begin with somebody who was refused, unless somebody was faster and typed. */
function showFirst(first) {
  if (Object.keys(store.get().row).length === 0) show(first?.row ?? {}, first?.number ?? null);
}

// The beginning ---------------------------------------------------------------------------------

/** The search that the address names, if the server still keeps it. */
async function wantedSearch(id) {
  if (!id) return null;
  try {
    return await api.search(id);
  } catch (error) {
    if (error.status === 401 || error.status === 0) throw error;
    return null;
  }
}

async function start() {
  await attempt(async () => {
    const { problems } = await api.problems();
    login.done();
    offerProblems(problems);
    const { search: id, row } = wanted();
    const told = await wantedSearch(id);
    const name = told?.problem ?? problems[0].name;
    slot("problem-select").value = name;
    const first = await openProblem(name);
    const named = row === null ? null : await person.byNumber(name, row);
    if (told) {
      store.set({ locks: { ...NO_LOCKS, ...told.locks }, person: row });
      form.show(told.row);
      store.set({ row: told.row });
      adopt(told);
      take(told.row, named && same(named.row, told.row) ? row : null, {});
    } else if (named) show(named.row, row);
    else {
      showFirst(first);
      if (location.hash) {
        history.replaceState(null, "", location.pathname);
        store.set({ notice: "The server no longer keeps what the address names." });
      }
    }
  });
}

slot("problem-select").addEventListener("change", changeProblem);
// The address names the search: to skip to the ways out must not change it.
slot("skip").addEventListener("click", (event) => {
  event.preventDefault();
  slot("results").focus();
});
// On a narrow screen the routes come before who it is and the long list of values.
if (matchMedia("(max-width: 60rem)").matches) for (const id of ["customer", "values"]) slot(id).open = false;
addEventListener("popstate", () => location.reload());
start();
