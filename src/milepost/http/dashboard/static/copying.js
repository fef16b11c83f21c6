// A word when something was copied: the button is of another colour for a moment.
const COPIED_MS = 1200;

// Browsers let only pages copy that came over a safe way.
if (!navigator.clipboard) document.documentElement.classList.add("no-copying");
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), COPIED_MS);
});
