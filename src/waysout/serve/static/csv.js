// A table from a file, read here and sent nowhere: the first line names the columns.

const MOST_COLUMNS = 5000;

/** Read the first so many rows of CSV; the separator is the one that the first line has most of. */
export function readCsv(text, most) {
  const plain = text.replace(/^\ufeff/, "");
  const head = plain.slice(0, plain.search(/[\r\n]|$/));
  const separator = [",", ";", "\t", "|"].reduce((best, each) => (head.split(each).length > head.split(best).length ? each : best));
  const [names, ...rows] = linesOf(plain, separator).filter((cells) => cells.some((cell) => cell.trim() !== ""));
  if (!names || rows.length === 0) return [];
  if (names.length > MOST_COLUMNS) throw new Error(`This file has more than ${MOST_COLUMNS} columns.`);
  return rows.slice(0, most).map((cells) => Object.fromEntries(names.map((name, i) => [name.trim(), cells[i] ?? ""])));
}

function linesOf(text, separator) {
  const lines = [[""]];
  let quoted = false;
  for (let i = 0; i < text.length; i += 1) {
    const [line, letter] = [lines.at(-1), text[i]];
    const put = (more) => { line[line.length - 1] += more; };
    if (quoted && letter === '"' && text[i + 1] === '"') {
      put('"');
      i += 1;
    } else if (letter === '"' && (quoted || line.at(-1) === "")) quoted = !quoted;
    else if (quoted) put(letter);
    else if (letter === separator) line.push("");
    else if (letter === "\n") lines.push([""]);
    else if (letter !== "\r") put(letter);
  }
  if (quoted) throw new Error("A quotation mark in this file is not closed.");
  return lines;
}
