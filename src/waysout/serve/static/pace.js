// For what changes faster than anybody reads.

/** Wrap an act so that it is done at most once in so many ms; what was asked for last is never lost. */
export function paced(act, pause = 1000) {
  let next = 0;
  let waiting = 0;
  const now = () => {
    next = performance.now() + pause;
    act();
  };
  return () => {
    clearTimeout(waiting);
    const left = next - performance.now();
    if (left > 0) waiting = setTimeout(now, left);
    else now();
  };
}
