// Requests to the console's server. Every failure is an ApiError with a sentence for the person.
import { signal } from "./dom.js";

export class ApiError extends Error {
  constructor(status, message, more = {}) {
    super(message);
    this.status = status;
    this.field = more.field ?? "";
    this.login = more.login;
  }
}

/** null: not known yet. `needsLogin` is set when there is no session. */
export const session = signal(null);
export const needsLogin = signal(null);

async function answered(promise) {
  let response;
  try {
    response = await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The console's server does not answer. Is `forebay console` still running?");
  }
  let body = null;
  const text = await response.text();
  try {
    body = text ? JSON.parse(text) : {};
  } catch {
    throw new ApiError(response.status, text.slice(0, 300) || `The server answered ${response.status}.`);
  }
  if (response.ok) return body;
  if (response.status === 401) needsLogin.value = body.login ?? "token";
  throw new ApiError(response.status, body.error ?? `The server answered ${response.status}.`, body);
}

export function queryText(params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== undefined && value !== null && value !== "" && value !== false) {
      query.set(name, value === true ? "1" : String(value));
    }
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

export function get(path, params, options = {}) {
  return answered(fetch(`/api/${path}${queryText(params)}`, { signal: options.signal }));
}

export function post(path, body) {
  return answered(
    fetch(`/api/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-forebay-console": "1" },
      body: JSON.stringify(body ?? {}),
    }),
  );
}

/** The session, or a wish for a login. */
export async function loadSession() {
  try {
    session.value = await get("session");
    needsLogin.value = null;
  } catch (error) {
    if (error.status !== 401) throw error;
  }
}
