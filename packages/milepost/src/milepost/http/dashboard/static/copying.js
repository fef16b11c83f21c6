// Copy buttons: after a copy, the button changes its colour for a moment.
const COPIED_MS = 1200;

// Browsers allow copying only on pages that came over HTTPS.
if (!navigator.clipboard) document.documentElement.classList.add("no-copying");
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), COPIED_MS);
});
