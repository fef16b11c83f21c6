// Pause and resume a route or a stage. A button has data-hold="ROUTE/holds[/STAGE]", data-paused="1" if it is paused.
import { call } from "./api.js";
import { ask } from "./dialog.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-hold]");
  if (!button) return;
  const paused = button.dataset.paused === "1";
  const path = `/routes/${button.dataset.hold}`;
  ask({
    title: button.getAttribute("aria-label"),
    told: paused
      ? "Items that wait here continue."
      : "No item is started here until it is resumed, and no attempt is counted. Items that are being processed are finished.",
    act: async ({ reason }) => {
      if (paused) {
        await call("DELETE", path, { query: { reason } });
        return "Resumed.";
      }
      const { waiting } = await call("PUT", path, { body: { reason } });
      return waiting === null ? "Paused." : `Paused. ${waiting.toLocaleString()} ${waiting === 1 ? "item waits" : "items wait"} here.`;
    },
  });
});
