// What the address of the page names, so that a link brings it back.

/** What the address names: a search, and the row of the table, which outlives it. */
export function wanted() {
  const told = new URLSearchParams(location.hash.slice(1));
  const row = told.get("row");
  const search = told.get("search");
  return { search: /^[\w-]{1,100}$/.test(search ?? "") ? search : null, row: row !== null && /^\d{1,15}$/.test(row) ? Number(row) : null };
}

export function addressOf(search, row) {
  const told = new URLSearchParams();
  if (row !== null) told.set("row", String(row));
  if (search !== null) told.set("search", search);
  return [...told].length ? `#${told}` : location.pathname;
}
