// Pause and resume a route or a stage. A button has data-hold="ROUTE/holds[/STAGE]", data-held="1" if it is paused.
import { call } from "./api.js";
import { ask } from "./dialog.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-hold]");
  if (!button) return;
  const held = button.dataset.held === "1";
  const path = `/routes/${button.dataset.hold}`;
  ask({
    title: button.getAttribute("aria-label"),
    told: held
      ? "Items that wait here continue."
      : "No item is started here until it is resumed, and no attempt is counted. Items that are being processed are finished.",
    act: async ({ reason }) => {
      await (held ? call("DELETE", path, { query: { reason } }) : call("PUT", path, { body: { reason } }));
      return held ? "Resumed." : "Paused.";
    },
  });
});
