// Live updates: after an event the page is fetched again, and the differences are applied. Nothing else moves.
import { base } from "./api.js";
import { morph, morphInPlace } from "./morph.js";
import { times } from "./times.js";

const CALM_MS = 1000;
const AGES_MS = 30000;
const AGAIN_MS = 5000;

export function live() {
  if (!document.querySelector("[data-live]")) return;
  const state = document.querySelector("[data-live-state]");
  const gone = document.querySelector("[data-gone]");
  let waiting = null;
  let last = 0;

  async function refresh() {
    waiting = null;
    last = Date.now();
    if (document.hidden || document.querySelector("dialog[open]")) return;
    let fresh;
    try {
      // The header tells the server that only live parts are needed, so that it skips expensive ones.
      const answer = await fetch(location.href, { headers: { Accept: "text/html", "X-Live": "1" } });
      // Without a session the server redirects to the log-in, and from there back.
      if (answer.redirected) return location.assign(location.href);
      // A proxy whose server is down may answer too.
      if (answer.status >= 500) throw new Error(answer.status);
      gone.replaceChildren();
      if (!answer.ok) return;
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      // The page keeps its content, and shows how old it is.
      const seen = state.querySelector("time").cloneNode(true);
      if (!gone.hasChildNodes()) gone.append("The server does not answer; trying again. This is as of ", seen, ".");
      return;
    }
    times(fresh);
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
      if (other && part.hasAttribute("data-held")) {
        part.dispatchEvent(new CustomEvent("held", { detail: { left: morphInPlace(part, other), fresh: other } }));
      } else if (other) morph(part, other);
    }
    morph(state, fresh.querySelector("[data-live-state]"));
  }

  function soon() {
    waiting ??= setTimeout(refresh, Math.max(0, CALM_MS - (Date.now() - last)));
  }

  function listen() {
    const source = new EventSource(`${base}/live`);
    // The first event comes on connecting: later changes follow.
    source.addEventListener("changed", soon);
    source.addEventListener("error", () => {
      soon();
      // A browser reconnects by itself if the connection was cut, but not after another answer (from a proxy, say).
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
    });
  }

  listen();
  // While a dialog was open, nothing was updated behind it.
  document.addEventListener("close", soon, true);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) soon();
  });
  setInterval(soon, AGES_MS);
}
