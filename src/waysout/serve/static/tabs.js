// The three views of what was found, one at a time; arrow keys go from tab to tab.

import { setAttribute, slot } from "./dom.js";

const VIEWS = ["all", "map", "tree"];

/** Wire the tabs; `changed` is told when another view is shown. */
export function createTabs(changed) {
  const choose = (wanted) => {
    for (const view of VIEWS) {
      const chosen = view === wanted;
      setAttribute(slot(`tab-${view}`), "aria-selected", String(chosen));
      setAttribute(slot(`tab-${view}`), "tabindex", chosen ? "0" : "-1");
      slot(`view-${view}`).hidden = !chosen;
    }
    changed();
  };
  VIEWS.forEach((view, i) => {
    slot(`tab-${view}`).addEventListener("click", () => choose(view));
    slot(`tab-${view}`).addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = VIEWS[(i + by + VIEWS.length) % VIEWS.length];
      choose(next);
      slot(`tab-${next}`).focus();
    });
  });
}
