// Calling the server: where it is, and the token that says that a call comes from one of its own pages.
const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

export const base = meta("base");
const csrf = meta("csrf");

export const segment = encodeURIComponent;

export function headers(more = {}) {
  return { Accept: "application/json", ...(csrf ? { "X-CSRF-Token": csrf } : {}), ...more };
}

// What is said of a call that was refused: what is wrong, and what would be right.
export function complaint(problem) {
  return problem.detail + (problem.expected ? ` Expected: ${problem.expected}.` : "");
}

// One call of the API: the answer's content, or an Error that says what is wrong. `path` begins behind /api/v1.
export async function call(method, path, { body, query } = {}) {
  const asked = query ? `?${new URLSearchParams(query)}` : "";
  const options = { method, headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) options.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(`${base}/api/v1${path}${asked}`, options);
  } catch {
    throw new Error("The server does not answer.");
  }
  const told = await answer.json();
  if (!answer.ok) throw new Error(complaint(told));
  return told;
}
