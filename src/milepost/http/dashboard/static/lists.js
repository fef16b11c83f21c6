// A list from a file: looked at first, taken in after that.
import { base, complaint, headers, segment } from "./api.js";

const TYPES = { csv: "text/csv", txt: "text/plain", jsonl: "application/x-ndjson", ndjson: "application/x-ndjson" };
const form = document.querySelector("[data-upload]");
const report = form.querySelector("[data-report]");
const progress = form.querySelector("[data-progress]");
const take = form.querySelector("[data-submit]");
const file = form.elements.file;

for (const kind of ["dragover", "dragleave", "drop"]) {
  form.addEventListener(kind, (event) => {
    event.preventDefault();
    form.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) {
      file.files = event.dataTransfer.files;
      send(true);
    }
  });
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  send(true);
});
file.addEventListener("change", () => (take.disabled = true));
take.addEventListener("click", () => send(false));

function tell(told, look) {
  const counts = Object.entries(told.counts).filter(([, n]) => n);
  const words = counts.map(([word, n]) => `${n.toLocaleString()} ${word.replaceAll("_", " ")}`);
  const bad = told.malformed.slice(0, 5).map((line) => `line ${line.line}: ${line.reason}`);
  report.textContent = [`${look ? "It would be" : "Taken in"}: ${words.join(", ") || "nothing"}.`, ...bad].join(" · ");
  take.disabled = !look;
  if (!look) setTimeout(() => location.reload(), 1200);
}

// XMLHttpRequest, for only it says how much of a file has been sent.
function send(look) {
  const chosen = file.files[0];
  if (!chosen) return;
  const type = TYPES[chosen.name.split(".").pop().toLowerCase()] ?? "text/plain";
  const query = new URLSearchParams({ name: chosen.name, full: form.elements.full.checked, dry_run: look });
  const request = new XMLHttpRequest();
  request.open("POST", `${base}/api/v1/routes/${segment(form.elements.route.value)}/items?${query}`);
  for (const [name, value] of Object.entries(headers({ "Content-Type": type }))) request.setRequestHeader(name, value);
  request.upload.onprogress = (event) => {
    progress.hidden = false;
    progress.value = event.lengthComputable ? event.loaded / event.total : 0;
  };
  request.onload = () => {
    progress.hidden = true;
    const told = JSON.parse(request.responseText);
    if (request.status >= 400) report.textContent = complaint(told);
    else tell(told, look);
  };
  request.onerror = () => {
    progress.hidden = true;
    report.textContent = "The server did not answer; nothing more was sent.";
  };
  request.send(chosen);
}
