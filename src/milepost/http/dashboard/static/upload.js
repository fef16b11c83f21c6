// A list from a file: looked at first, taken in after that.
const csrf = document.querySelector('meta[name="csrf"]').content;
const TYPES = { csv: "text/csv", txt: "text/plain", jsonl: "application/x-ndjson", ndjson: "application/x-ndjson" };

export function upload() {
  const form = document.querySelector("[data-upload]");
  if (!form) return;
  const report = form.querySelector("[data-report]");
  const progress = form.querySelector("[data-progress]");
  const take = form.querySelector("[data-submit]");
  const file = form.elements.file;

  for (const kind of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(kind, (event) => {
      event.preventDefault();
      form.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) { file.files = event.dataTransfer.files; send(true); }
    });
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); send(true); });
  file.addEventListener("change", () => { take.disabled = true; });
  take.addEventListener("click", () => send(false));

  function send(look) {
    const chosen = file.files[0];
    if (!chosen) return;
    const type = TYPES[chosen.name.split(".").pop().toLowerCase()] ?? "text/plain";
    const query = new URLSearchParams({ name: chosen.name, full: form.elements.full.checked, dry_run: look });
    const base = location.pathname.replace(/\/lists$/, "");
    const request = new XMLHttpRequest();
    request.open("POST", `${base}/api/v1/routes/${encodeURIComponent(form.elements.route.value)}/items?${query}`);
    request.setRequestHeader("Content-Type", type);
    if (csrf) request.setRequestHeader("X-CSRF-Token", csrf);
    request.upload.onprogress = (event) => { progress.hidden = false; progress.value = event.lengthComputable ? event.loaded / event.total : 0; };
    request.onload = () => {
      progress.hidden = true;
      const told = JSON.parse(request.responseText);
      if (request.status >= 400) { report.textContent = told.detail; return; }
      const counts = Object.entries(told.counts).filter(([, n]) => n).map(([word, n]) => `${n.toLocaleString()} ${word.replaceAll("_", " ")}`);
      const bad = (told.malformed ?? told.bad ?? []).slice(0, 5).map((line) => `line ${line.line}: ${line.reason}`);
      report.textContent = [`${look ? "It would be" : "Taken in"}: ${counts.join(", ") || "nothing"}.`, ...bad].join(" · ");
      take.disabled = !look;
      if (!look) setTimeout(() => location.reload(), 1200);
    };
    request.onerror = () => { progress.hidden = true; report.textContent = "The server did not answer; nothing more was sent."; };
    request.send(chosen);
  }
}
