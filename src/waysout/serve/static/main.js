// The page: wires what a person does to the server, and what the server says to what is seen.

import { api, latestOnly, listen } from "./api.js";
import { createBar } from "./bar.js";
import { createDecision } from "./decision.js";
import { bdi, el, fill, slot } from "./dom.js";
import { createDownloads } from "./downloads.js";
import { createForm } from "./form.js";
import { createCalls } from "./calls.js";
import { createLogin } from "./login.js";
import * as locking from "./locks.js";
import { createMap } from "./map.js";
import { createOptions } from "./options.js";
import { createPerson } from "./person.js";
import { NO_LOCKS, START, callsUsed, createStore, freshSearch, heard, same } from "./state.js";
import { createTabs } from "./tabs.js";
import { createTree } from "./tree.js";
import { createWhatIf } from "./whatif.js";
import { clean, speakOf } from "./words.js";

const TYPING = 250; // ms after the last key before the model is asked

const store = createStore(START);
const login = createLogin(async () => {
  await start();
  slot("example").focus();
});
const whatIf = createWhatIf(store);
const options = createOptions(store, {
  whatIf: whatIf.open,
  exclude: (option) => relock(locking.exclude(store.get().locks, option.changes)),
  fix: (name) => relock(locking.fix(store.get().locks, name)),
});
const form = createForm(store, { edited: (row, faults) => take(row, null, faults, TYPING), relocked: relock });
const person = createPerson(store, (row, number) => show(row, number));
const decision = createDecision({ whatIf: whatIf.open });
const calls = createCalls(store);
const back = () => show(store.get().search.row, null);
const bar = createBar(store, { find: once(find), stop, goOn: once(goOn), anew, back });
const downloads = createDownloads();
const map = createMap(store, options);
const tree = createTree(store, options);
createTabs(() => store.set({}));

const decide = latestOnly((row, signal) => api.decide(store.get().card.name, { row }, signal));
let unlisten = () => {};

store.listen((state) => {
  slot("main").hidden = !state.card;
  if (!state.card) return;
  for (const part of [person, form, decision, calls, bar, options, downloads, map, tree]) part.render(state);
  renderNotice(state);
  renderTitle(state);
});

/** Show a row in the form, as if it had been typed. */
function show(row, number) {
  form.show(row);
  const { row: read, faults } = form.read();
  take(read, number, faults);
}

/** Take values in, and ask the model about them. */
function take(row, number, faults, pause = 0) {
  store.set({ row, example: number, faults, notice: "" });
  if (Object.keys(faults).length > 0) return;
  decide(row, pause, (answer) => store.set({ decision: answer, row: answer.row }), (error) => refused(error, row));
}

/** Show a refusal at the value that it names, or above all. */
function refused(error, row) {
  const named = Object.keys(row).find((name) => error.message.includes(`'${name}'`));
  store.set(named ? { faults: { [named]: clean(error.message) } } : {});
  if (!named) report(error);
}

function relock(locks) {
  store.set({ locks });
}

/** Do something that the server may refuse. */
async function attempt(act) {
  store.set({ notice: "" });
  try {
    await act();
  } catch (error) {
    report(error);
  }
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

function find() {
  return attempt(async () => {
    const { card, row, locks, calls: most } = store.get();
    adopt(await api.start({ problem: card.name, row, locks, calls: most }));
    bringResults();
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

function goOn() {
  return attempt(async () => {
    const { search, locks, calls: most } = store.get();
    const wish = { locks, calls: Math.max(most, callsUsed(search)) };
    join(await api.goOn(search.id, wish).catch((error) => goneOnElsewhere(error, search.id)));
  });
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
  amend({ status: "running", ended: null, budget: told.budget, begun: told.budget, lastPart: told.part });
  follow(told.id);
}

/** Another window may have gone on with the search while this one was not looked at. */
async function catchUp() {
  const { search } = store.get();
  if (document.hidden || search?.status !== "ended") return;
  const told = await api.search(search.id).catch(() => null);
  if (told?.part > search.part && store.get().search === search) join(told);
}

function anew() {
  unlisten();
  options.reset();
  // The browser's Back button brings the search back.
  if (location.hash) history.pushState(null, "", location.pathname);
  store.set({ search: null, misses: [], calls: store.get().card.suggested_calls });
}

/** Take up a search: its events tell everything that happened. */
function adopt(told) {
  options.reset();
  const address = `#search=${encodeURIComponent(told.id)}`;
  if (location.hash && location.hash !== address) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  store.set({ search: freshSearch(told), misses: [] });
  follow(told.id);
}

function follow(id) {
  unlisten();
  unlisten = listen(id, {
    heard(type, told, number) {
      const { search } = store.get();
      if (search?.id !== id) return;
      store.set({ search: heard(search, type, told, number) });
      if (type === "ended") ended(id);
      if (type === "gone") gone();
    },
    quiet: (unheard) => amend({ unheard }),
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
  const { search } = store.get();
  if (search.part < search.lastPart) return;
  // A browser keeps few streams open at once; continuing opens this one again.
  unlisten();
  if (search.options.size > 0) return;
  const result = await api.result(id).catch(() => null);
  if (result && store.get().search?.id === id) store.set({ misses: result.near_misses.slice(0, 3) });
}

function gone() {
  unlisten();
  amend({ status: "gone" });
  store.set({ notice: "The server no longer keeps this search. What is shown here can still be printed." });
}

/** On a narrow screen the ways out are below the case: go there when the search begins. */
function bringResults() {
  if (matchMedia("(max-width: 60rem)").matches) slot("results").scrollIntoView();
}

function renderNotice({ notice }) {
  slot("notice").hidden = !notice;
  if (slot("notice").textContent !== notice) slot("notice").textContent = notice;
}

function renderTitle({ search }) {
  const count = search?.ways.length || (search?.options.size ?? 0);
  const title = count ? `(${count}) Ways out` : "Ways out";
  if (document.title !== title) document.title = title;
}

async function openProblem(name) {
  const card = await api.problem(name);
  speakOf(card);
  form.build(card);
  slot("problem-title").textContent = clean(card.title || card.name);
  fill(slot("rules"), card.rules.map(({ says, why }) => el("li", {}, bdi(clean(says)), why ? ` (${clean(why)})` : "")));
  store.set({ ...START, card, calls: card.llm ? card.suggested_calls : 0 });
  await person.load(name);
}

function offerProblems(problems) {
  slot("problem-choice").hidden = problems.length < 2;
  fill(slot("problem-select"), problems.map(({ name, title }) =>
    el("option", { value: name }, clean(title || name))));
}

function changeProblem(event) {
  return attempt(async () => {
    anew();
    await openProblem(event.target.value);
    showFirst();
  });
}

/** Begin with the first example, unless somebody was faster and typed. */
function showFirst() {
  const { examples: [first], row } = store.get();
  if (Object.keys(row).length === 0) show(first?.row ?? {}, first?.number ?? null);
}

const wantedId = () => new URLSearchParams(location.hash.slice(1)).get("search");

/** The search that the address names, if the server still keeps it. */
async function wantedSearch() {
  const id = wantedId();
  if (!id) return null;
  try {
    return await api.search(id);
  } catch (error) {
    if (error.status !== 404) throw error;
    return null;
  }
}

function forget() {
  history.replaceState(null, "", location.pathname);
  store.set({ notice: "The server no longer keeps the search that the address names." });
}

async function start() {
  await attempt(async () => {
    const { problems } = await api.problems();
    login.done();
    offerProblems(problems);
    const wanted = await wantedSearch();
    await openProblem(wanted?.problem ?? problems[0].name);
    if (wanted) {
      const example = store.get().examples.find((each) => same(each.row, wanted.row));
      store.set({ locks: { ...NO_LOCKS, ...wanted.locks }, calls: wanted.budget.calls });
      slot("problem-select").value = wanted.problem;
      show(wanted.row, example?.number ?? null);
      adopt(wanted);
    } else {
      showFirst();
      if (wantedId()) forget();
    }
  });
}

slot("problem-select").addEventListener("change", changeProblem);
// The address names the search: to skip to the ways out must not change it.
slot("skip").addEventListener("click", (event) => {
  event.preventDefault();
  slot("results").focus();
});
addEventListener("hashchange", () => location.reload());
document.addEventListener("visibilitychange", catchUp);
start();
