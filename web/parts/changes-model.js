// Writes as they are told on the page: those of people, each with what the cluster wrote because of it. Pure.
import { to } from '../core/route.js';

/** What the server or an agent writes within this time after a write of somebody is taken to be because of it. */
const FOLLOWS_MS = 30_000;

const isBySomebody = ({ maker }) => maker !== 'server' && maker !== 'agent';

/**
 * @param {any[]} items of `GET /v1/history`, newest first
 * @returns {{people: {change: any, followed: any[]}[], own: any[]}} writes of people and automation, newest first, with the writes of the
 *   cluster that followed each; and the writes of the cluster that followed none
 */
export function folded(items) {
  const people = [];
  const own = [];
  let last;
  for (const change of [...items].reverse()) {
    if (isBySomebody(change)) {
      last = { change, followed: [] };
      people.push(last);
    } else if (last && Date.parse(change.at) - Date.parse(last.change.at) <= FOLLOWS_MS) last.followed.unshift(change);
    else own.unshift(change);
  }
  return { people: people.reverse(), own };
}

const VERBS = { ADDED: 'created', MODIFIED: 'changed', DELETED: 'deleted' };

/** What a write did to which object: the first, and how many more. */
export function did({ changes = [], changesTotal }) {
  const first = changes[0];
  if (!first) return '';
  const more = (changesTotal ?? changes.length) - 1;
  const { kind, namespace, name } = first.object;
  return `${VERBS[first.kind] ?? first.kind} ${kind} ${namespace ? `${namespace}/` : ''}${name}${more > 0 ? ` and ${more} more` : ''}`;
}

/** The writes of people and automation, as moments in charts. */
export const marksOf = (history) =>
  (history?.items ?? []).filter(isBySomebody).map(({ revision, at, author, message }) => ({ at, label: `r${revision}${author ? ` by ${author}` : ''}${message ? `: ${message}` : ''}`, href: to(['history', String(revision)]) }));
