// The overview: retry all items with the same cause of failure.
import { askDeed } from "./bulk.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-retry]");
  if (!button) return;
  askDeed(button.dataset.route, "retry", { filter: JSON.parse(button.dataset.retry) }, { title: button.getAttribute("aria-label") });
});
