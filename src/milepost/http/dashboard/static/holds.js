// Pausing and resuming a route or a stage. A button says which: data-hold="ROUTE/holds[/STAGE]", data-held="1" if it is paused.
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
      ? "What waits here goes on."
      : "Nothing new is begun here until it is resumed, and nothing is counted. What is in work is finished.",
    act: async ({ reason }) => {
      await (held ? call("DELETE", path, { query: { reason } }) : call("PUT", path, { body: { reason } }));
      return held ? "It goes on." : "It is paused.";
    },
  });
});
