// The server's answers. Every refusal becomes an ApiError with the server's own sentence.

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const EVENTS = ["part", "decided", "learning", "options", "shortlist", "ways", "pins", "ledger", "ended", "gone"];

async function request(method, path, body, signal) {
  const options = { method, signal, credentials: "same-origin", headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Is it still running?");
  }
  return read(response);
}

async function read(response) {
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  const told = answer?.error?.message ?? `The server answered ${response.status}.`;
  throw new ApiError(response.status, told);
}

const problemPath = (name) => `/api/problems/${encodeURIComponent(name)}`;
export const searchPath = (id, part = "") => `/api/searches/${encodeURIComponent(id)}${part}`;

export const api = {
  login: (token) => request("POST", "/api/login", { token }),
  logout: () => request("POST", "/api/logout", {}),
  problems: () => request("GET", "/api/problems"),
  problem: (name) => request("GET", problemPath(name)),
  people: (name, text, signal) =>
    request("GET", `${problemPath(name)}/people?q=${encodeURIComponent(text)}&limit=30`, undefined, signal),
  decide: (name, question, signal) => request("POST", `${problemPath(name)}/decide`, question, signal),
  strips: (name, question, signal) => request("POST", `${problemPath(name)}/strips`, question, signal),
  farther: (name, question) => request("POST", `${problemPath(name)}/farther`, question),
  start: (wish) => request("POST", "/api/searches", wish),
  search: (id) => request("GET", searchPath(id)),
  stop: (id) => request("POST", searchPath(id, "/stop"), {}),
  goOn: (id, wish) => request("POST", searchPath(id, "/continue"), wish),
  pin: (id, rows) => request("PUT", searchPath(id, "/pins"), { rows }),
  result: (id) => request("GET", searchPath(id, "/result.json")),
};

/** Listen to a search: `heard(type, data, number)` for each event; `quiet(is)` while the server does not
 * answer and is asked again and again, `lost()` when it refuses. */
export function listen(id, { heard, quiet, lost }) {
  const source = new EventSource(searchPath(id, "/events"));
  for (const type of EVENTS) {
    source.addEventListener(type, (event) => heard(type, JSON.parse(event.data), Number(event.lastEventId)));
  }
  source.addEventListener("open", () => quiet(false));
  source.addEventListener("error", () => (source.readyState === EventSource.CLOSED ? lost() : quiet(true)));
  return () => source.close();
}

/** Wrap a question, asked after a pause, so that only the answer to the latest one is ever used. */
export function latestOnly(ask) {
  let timer = 0;
  let underWay = null;
  return (question, pause, answered, failed) => {
    clearTimeout(timer);
    underWay?.abort();
    const mine = new AbortController();
    underWay = mine;
    timer = setTimeout(async () => {
      try {
        const answer = await ask(question, mine.signal);
        if (!mine.signal.aborted) answered(answer);
      } catch (error) {
        if (!mine.signal.aborted) failed(error);
      }
    }, pause);
  };
}
