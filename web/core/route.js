// Where one is: the part of the address after `#`, so that every view has a link that can be sent to somebody.
//
//   #/services/default/web?tab=events        path ['services', 'default', 'web'], params {tab: 'events'}
import { createStore, useStore } from './store.js';

/** @typedef {{path: string[], params: Record<string, string>}} Route */

/** @returns {Route} */
function parse(hash) {
  const [path, query = ''] = hash.replace(/^#?\/?/, '').split('?', 2);
  return {
    path: path.split('/').filter(Boolean).map(decode),
    params: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const store = createStore(parse(location.hash));
addEventListener('hashchange', () => store.set(parse(location.hash)));

/** Where one is; drawn again when that changes. */
export const useRoute = () => useStore(store);

export const route = () => store.get();

/**
 * A link to a view.
 * @param {string[]} path
 * @param {Record<string, string | undefined>} params
 */
export function to(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${query ? `?${query}` : ''}`;
}

/** Goes to a view. */
export function go(path, params) {
  location.hash = to(path, params);
}

/** Changes parameters of where one is, without a step in the browser's history. */
export function remark(params) {
  const { path, params: before } = store.get();
  history.replaceState(null, '', to(path, { ...before, ...params }));
  store.set(parse(location.hash));
}

/** A link to the view of an object of the API, or nothing where it has none. */
export function toObject({ kind, namespace, name }) {
  switch (kind) {
    case 'Service':
      return to(['services', namespace, name]);
    case 'Node':
      return to(['nodes', name]);
    case 'AddressPool':
      return to(['addresses'], { pool: name });
    case 'Address':
      return to(['addresses', name]);
    case 'BgpPeer':
      return to(['bgp'], { peer: name });
    case 'DnsServer':
      return to(['dns'], { server: name });
    default:
      return to(['history'], { kind, namespace, name });
  }
}
