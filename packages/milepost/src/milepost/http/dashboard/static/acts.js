// Acts: continue one that was cut off.
import { call, segment } from "./api.js";
import { summed, watched } from "./bulk.js";
import { ask } from "./dialog.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-go-on]");
  if (!button) return;
  const { goOn: id, route, verb } = button.dataset;
  const path = `/routes/${segment(route)}/acts/${segment(id)}/go-on`;
  ask({
    title: `Continue this ${verb}`,
    preview: async () => {
      const left = await call("POST", path, { body: { dry_run: true } });
      return left.done
        ? `About ${left.done.toLocaleString()} items are left. Nothing is done twice.`
        : "No items are left; the act is marked as finished.";
    },
    act: async ({ reason }, progress) => summed(await watched(id, progress, () => call("POST", path, { body: { reason } })), true),
  });
});
