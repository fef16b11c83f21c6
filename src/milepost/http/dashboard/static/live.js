// Live: when something has happened, the page is fetched again and the parts that differ are put in place. Nothing else moves.
import { times } from "./times.js";

const CALM_MS = 1000;
const AGES_MS = 30000;

export function live() {
  const parts = document.querySelectorAll("[data-live]");
  if (!parts.length) return;
  const state = document.querySelector("[data-live-state]");
  const base = document.querySelector('link[rel="stylesheet"]').getAttribute("href").replace("/static/style.css", "");
  const before = new Map();
  for (const part of parts) before.set(part.dataset.live, null);
  let waiting = null;
  let last = 0;

  async function refresh() {
    waiting = null;
    last = Date.now();
    if (document.hidden || document.querySelector("dialog[open]")) return;
    let text;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      text = await answer.text();
    } catch {
      state.textContent = "The server does not answer; trying again.";
      return;
    }
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
      if (!other || before.get(part.dataset.live) === other.innerHTML) continue;
      before.set(part.dataset.live, other.innerHTML);
      if (part.contains(document.activeElement) && document.activeElement !== document.body) continue;
      const ticked = new Set([...part.querySelectorAll("[data-key]:checked")].map((box) => box.dataset.key));
      part.replaceChildren(...other.childNodes);
      for (const box of part.querySelectorAll("[data-key]")) box.checked = ticked.has(box.dataset.key);
      times(part);
    }
    state.replaceChildren(...fresh.querySelector("[data-live-state]").childNodes);
    times(state);
  }

  function soon() {
    if (waiting === null) waiting = setTimeout(refresh, Math.max(0, CALM_MS - (Date.now() - last)));
  }

  const source = new EventSource(`${base}/live`);
  source.addEventListener("changed", soon);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
  setInterval(soon, AGES_MS);
}
