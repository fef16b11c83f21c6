// Calls of the server: its base path, and the token that proves that a call comes from one of its own pages.
const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

export const base = meta("base");
const csrf = meta("csrf");

export const segment = encodeURIComponent;

export function headers(more = {}) {
  return { Accept: "application/json", ...(csrf ? { "X-CSRF-Token": csrf } : {}), ...more };
}

// Text for a refused call: what is wrong, and what would be right.
export function complaint(problem) {
  return problem.detail + (problem.expected ? ` Expected: ${problem.expected}.` : "");
}

// JSON as a person has written it. It is sent unchanged inside the body of a call: if a browser parsed and formatted it, a large
// number would lose its last digits.
export class Written {
  constructor(text, what = "This") {
    try {
      JSON.parse(text);
    } catch {
      throw new Error(`${what} is not JSON.`);
    }
    this.text = text;
  }
}

function encoded(body) {
  const texts = [];
  const mark = `written-${Math.random()}-`;
  const plain = JSON.stringify(body, (_, value) => (value instanceof Written ? `${mark}${texts.push(value.text) - 1}` : value));
  return texts.reduce((text, written, place) => text.replace(`"${mark}${place}"`, () => written), plain);
}

// One call of the API: returns the answer's content, or throws an Error that says what is wrong. `path` is relative to /api/v1.
export async function call(method, path, { body, query } = {}) {
  const asked = query ? `?${new URLSearchParams(query)}` : "";
  const options = { method, headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) options.body = encoded(body);
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
