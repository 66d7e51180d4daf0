// What one may do: asked of the server, so that buttons that would only be refused say so before.
import { session, whyNoWrites } from './api.js';
import { useStore } from './store.js';
import { useApi } from './use.js';

/** Roles change seldom. */
const EVERY_MS = 120_000;

/** Verbs of the rules of roles, in words. */
const DOING = { create: 'create', update: 'change', delete: 'delete', move: 'move', fix: 'repair', rollback: 'roll back' };

/**
 * Why one may not do something, in words; nothing if one may, or while that is not known. The server decides in the end.
 * @param {string | undefined} verb of the rules of roles; nothing is asked without one
 * @param {string} kind
 * @param {string=} namespace
 */
export function useWhyNot(verb, kind, namespace) {
  const known = useStore(session);
  const general = whyNoWrites(known);
  const query = new URLSearchParams({ verb: verb ?? '', kind, ...(namespace ? { namespace } : {}) });
  const { data } = useApi(!general && known.securityEnabled && verb ? `/v1/whoami/may?${query}` : undefined, { everyMs: EVERY_MS });
  if (general) return general;
  return data?.allowed === false ? `Your token may not ${DOING[verb] ?? verb} ${kind} objects${namespace ? ` in ${namespace}` : ''}.` : undefined;
}

/** Why one may not carry out a plan: of its first object; what else is in it, the server decides. */
export function useWhyNoPlan({ objects }) {
  const [, kind, namespace] = /^(\S+) (?:([^/\s]+)\/)?/.exec(objects[0]?.object ?? '') ?? [];
  const verb = { created: 'create', deleted: 'delete', pruned: 'delete' }[objects[0]?.action] ?? 'update';
  return useWhyNot(kind && verb, kind ?? '', namespace);
}
