// The state of the cluster as it is, by one stream: the whole once, then what differs. What is drawn is at most four states
// a second, and how old it is can always be seen.
//
//   connecting ──first line──▶ live ──nothing heard for STALE_AFTER──▶ stale ──the stream ended or cannot be had──▶ lost
//                                ▲──────────────────────────any line────────────────────────────────┘
import { ApiError, stream } from './api.js';
import { createStore } from './store.js';

/** The server speaks every 2 s; beyond this the data on the page is old. */
const STALE_AFTER_MS = 5_000;
/** Between two drawings. */
const FRAME_MS = 250;
/** Waits between attempts, in ms; the last goes on. */
const BACKOFF_MS = [250, 500, 1_000, 2_000, 5_000];

/** Keys of the rows of a list of the overview. */
const keys = { services: (row) => `${row.namespace}/${row.name}`, nodes: (row) => row.name };

/**
 * What is known.
 *   `state` connecting, live, stale or lost; `heardAt` by this machine's clock, in ms; `since` when it became so
 *   `doc` the newest overview, with `services`, `nodes` as Maps by key, and `problems` in order
 */
export const live = createStore({ state: 'connecting', heardAt: 0, since: Date.now(), error: undefined, doc: undefined });

/** The newest document; drawn from `live` at most every FRAME_MS. */
let pending;
let timer;

/** Follows the server until `signal` is aborted. */
export async function follow(signal) {
  watchAge(signal);
  let attempt = 0;
  while (!signal.aborted) {
    try {
      await stream('/v1/overview/watch', (line) => {
        attempt = 0;
        hear(line);
      }, signal);
      note('lost', undefined);
    } catch (error) {
      if (signal.aborted) return;
      note('lost', error);
      // Nobody may read without saying who they are: the page asks for that, and begins again.
      if (error instanceof ApiError && error.status === 401) return;
    }
    const wait = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length - 1)];
    attempt += 1;
    await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
  }
}

function note(state, error) {
  live.set((before) => (before.state === state && before.error === error ? before : { ...before, state, error, since: Date.now() }));
}

function watchAge(signal) {
  const timer = setInterval(() => {
    const { state, heardAt } = live.get();
    if (state === 'live' && Date.now() - heardAt > STALE_AFTER_MS) note('stale', undefined);
  }, 500);
  signal.addEventListener('abort', () => clearInterval(timer));
}

function hear(line) {
  const before = pending ?? live.get().doc;
  if (line.type === 'overview') pending = whole(line);
  else if (line.type === 'change' && before) pending = changed(before, line);
  else if (line.type === 'heartbeat' && before) pending = { ...before, at: line.at, position: line.position };
  else return;
  if (live.get().doc === undefined) show();
  else timer ??= setTimeout(show, FRAME_MS);
}

function show() {
  clearTimeout(timer);
  timer = undefined;
  const doc = pending;
  pending = undefined;
  if (doc) live.set((before) => ({ ...before, doc, heardAt: Date.now(), state: 'live', error: undefined, since: before.state === 'live' ? before.since : Date.now() }));
}

const byKey = (rows, key) => new Map(rows.map((row) => [key(row), row]));

function whole({ type, ...doc }) {
  return { ...doc, services: byKey(doc.services, keys.services), nodes: byKey(doc.nodes, keys.nodes) };
}

/** A change has rows that are new or others (`changed`) and names of those that are gone (`removed`); of problems it has all
 * ids in their order; everything else replaces what was. */
function changed(before, { type, services, nodes, problems, ...rest }) {
  const doc = { ...before, ...rest };
  if (services) doc.services = merged(before.services, services, keys.services);
  if (nodes) doc.nodes = merged(before.nodes, nodes, keys.nodes);
  if (problems) doc.problems = ordered(before.problems, problems);
  return doc;
}

function merged(before, { changed: rows = [], removed = [] }, key) {
  const after = new Map(before);
  for (const gone of removed) after.delete(typeof gone === 'string' ? gone : key(gone));
  for (const row of rows) after.set(key(row), row);
  return after;
}

function ordered(before, { changed: problems = [], order }) {
  const known = new Map([...before, ...problems].map((problem) => [problem.id, problem]));
  return order.map((id) => known.get(id)).filter(Boolean);
}
