// Acts on items: choose, preview how many it would be, say why, do it.
const csrf = document.querySelector('meta[name="csrf"]').content;

async function act(route, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  if (csrf) headers["X-CSRF-Token"] = csrf;
  const path = location.pathname.split("/items/")[0];
  const answer = await fetch(`${path}/api/v1/routes/${encodeURIComponent(route)}/acts`, { method: "POST", headers, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail + (told.expected ? ` Expected: ${told.expected}` : ""));
  return told;
}

// Pausing and resuming a stage: the same dialog, without a preview.
function holds(dialog, find) {
  let chosen = null;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-hold]");
    if (!button) return;
    chosen = button;
    const held = button.dataset.held === "1";
    find("act-title").textContent = button.getAttribute("aria-label");
    find("act-told").textContent = held
      ? "What waits here goes on."
      : "Nothing new is begun here until it is resumed, and nothing is counted. What is in work is finished.";
    find("value-label").hidden = true;
    find("do").disabled = false;
    dialog.showModal();
  });
  find("cancel").addEventListener("click", () => { chosen = null; dialog.close(); });
  find("do").addEventListener("click", async () => {
    if (!chosen) return;
    const reason = find("reason").value.trim();
    if (!reason) { find("reason").focus(); find("act-told").textContent = "Say why, please."; return; }
    const held = chosen.dataset.held === "1";
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    if (csrf) headers["X-CSRF-Token"] = csrf;
    const where = `/api/v1/routes/${chosen.dataset.hold}`;
    const answer = held
      ? await fetch(`${where}?${new URLSearchParams({ reason })}`, { method: "DELETE", headers })
      : await fetch(where, { method: "PUT", headers, body: JSON.stringify({ reason }) });
    if (answer.ok) location.reload();
    else find("act-told").textContent = (await answer.json()).detail;
  });
}

export function acts() {
  const bar = document.querySelector("[data-acts]");
  const dialog = document.querySelector("[data-dialog]");
  if (!dialog) return;
  const find = (name) => dialog.querySelector(`[data-${name}]`);
  if (!bar) { holds(dialog, find); return; }
  let all = false;
  let chosen = null;

  const ticked = () => [...document.querySelectorAll("[data-key]:checked")].map((box) => box.dataset.key);
  function count() {
    const shown = bar.querySelector("[data-chosen]");
    if (shown) shown.textContent = all ? "all that match" : ticked().length;
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-tick-all]")) {
      for (const box of document.querySelectorAll("[data-key]")) box.checked = event.target.checked;
    }
    if (event.target.matches("[data-tick-all], [data-key]")) { all = false; count(); }
  });
  bar.querySelector("[data-all]")?.addEventListener("click", () => { all = true; count(); });

  function selection() {
    if (bar.dataset.one) return { keys: [bar.dataset.one] };
    return all ? { filter: JSON.parse(bar.dataset.filter) } : { keys: ticked() };
  }

  bar.addEventListener("click", async (event) => {
    const verb = event.target.closest("[data-verb]")?.dataset.verb;
    if (!verb) return;
    const which = selection();
    if (which.keys && !which.keys.length) { alertIn("Choose some items first."); return; }
    chosen = { verb, ...which };
    if (verb === "confirm") chosen.stage = bar.dataset.stage;
    find("act-title").textContent = `${verb[0].toUpperCase()}${verb.slice(1)}`;
    find("value-label").hidden = verb !== "confirm";
    find("do").disabled = true;
    find("act-told").textContent = "Looking what that would be…";
    dialog.showModal();
    try {
      const report = await act(bar.dataset.route, { ...chosen, dry_run: true });
      const refused = report.refused_count ? ` ${report.refused_count} would be left alone: ${Object.values(report.refused ?? {})[0] ?? ""}` : "";
      find("act-told").textContent = `${report.done} of ${report.matched} would be done.${refused}`;
      find("do").disabled = report.done === 0;
    } catch (error) { find("act-told").textContent = error.message; }
  });
  find("cancel").addEventListener("click", () => dialog.close());
  find("do").addEventListener("click", async () => {
    const reason = find("reason").value.trim();
    if (!reason) { find("reason").focus(); find("act-told").textContent = "Say why, please."; return; }
    const body = { ...chosen, reason };
    if (chosen.verb === "confirm" && find("value").value.trim()) {
      try { body.outcome = { type: "done", output: JSON.parse(find("value").value) }; } catch { find("act-told").textContent = "What was confirmed is not JSON."; return; }
    }
    find("progress").hidden = false;
    find("do").disabled = true;
    try {
      const report = await act(bar.dataset.route, body);
      find("act-told").textContent = `Done: ${report.done} of ${report.matched}.`;
      setTimeout(() => location.reload(), 600);
    } catch (error) { find("act-told").textContent = error.message; }
    find("progress").hidden = true;
  });

  function alertIn(text) {
    find("act-title").textContent = "Nothing chosen";
    find("act-told").textContent = text;
    find("do").disabled = true;
    dialog.showModal();
  }
}
