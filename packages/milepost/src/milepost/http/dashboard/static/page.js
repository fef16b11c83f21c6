// Scripts of every page: theme, local times, keyboard shortcuts, copy buttons, and live parts.
import { base } from "./api.js";
import { live } from "./live.js";
import { times } from "./times.js";

const root = document.documentElement;
const kept = localStorage.getItem("theme");
if (kept) root.dataset.theme = kept;
document.querySelector("[data-theme-button]").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.querySelector("#find").focus();
  }
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) navigator.clipboard?.writeText(button.dataset.copy);
});

// Forms with times say in which time zone the reader writes them.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
// The server draws charts in it.
document.cookie = `milepost-zone=${encodeURIComponent(zone)}; path=${base || "/"}; max-age=31536000; samesite=lax`;
for (const input of document.querySelectorAll("input[data-zone]")) input.value = zone;
for (const name of document.querySelectorAll("[data-zone-name]")) name.textContent = `your time zone (${zone})`;

times(document);
live();
