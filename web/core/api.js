// Everything the page knows comes from here: the same API as everybody's. Requests say that they are the page's, which is
// what the server asks of those that rest on a session.
import { createStore } from './store.js';

/** Who the server takes one for; `GET /v1/session`. */
export const session = createStore({ isKnown: false, securityEnabled: false, authenticated: false, readOnly: false });

/** A refusal in the words of the server; its fields are those of RFC 9457. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** The server cannot be reached. */
export class Unreachable extends Error {
  constructor(cause) {
    super('The control server cannot be reached', { cause });
  }
}

const HEADERS = { 'X-Tidegate-Page': '1', Accept: 'application/json' };

/**
 * Asks the API.
 * @param {string} path with its query
 * @param {{method?: string, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} options `body` is sent as
 *   JSON; a string as YAML
 * @returns {Promise<any>} the JSON of the answer; nothing where there is none
 */
export async function request(path, options = {}) {
  const response = await send(path, options);
  return response.status === 204 ? undefined : response.json();
}

async function send(path, { method = 'GET', body, headers = {}, signal } = {}) {
  const sent = { ...HEADERS, ...headers };
  if (body !== undefined) sent['Content-Type'] ??= typeof body === 'string' ? 'application/yaml' : 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: sent,
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
      cache: 'no-store',
      credentials: 'same-origin',
    });
  } catch (error) {
    throw signal?.aborted ? error : new Unreachable(error);
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    if (response.status === 401) session.set((before) => ({ ...before, isKnown: true, securityEnabled: true, authenticated: false }));
    throw new ApiError(response.status, problem);
  }
  return response;
}

/**
 * Reads a stream of the API, a JSON document a line, until it ends.
 * @param {string} path
 * @param {(line: any) => void} take
 * @param {AbortSignal} signal
 */
export async function stream(path, take, signal) {
  const response = await send(path, { headers: { Accept: 'application/x-ndjson' }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line) take(JSON.parse(line));
  }
}

/** Learns who one is. */
export async function learnSession() {
  try {
    const known = await request('/v1/session');
    session.set({ ...known, isKnown: true });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    session.set((before) => ({ ...before, isKnown: true }));
  }
}

/** Why one may not change anything, in words; nothing if one may, as far as the page knows. The server decides. */
export function whyNoWrites(known) {
  if (known.readOnly) return 'This page is read-only (--page-read-only).';
  if (known.securityEnabled && !known.authenticated) return 'Log in with a token that may do this.';
  return undefined;
}
