// The page: who one is, what is live, and the view that the address names.
import { learnSession, session } from './core/api.js';
import { html, render, useEffect, useRef, useState } from './core/html.js';
import { follow } from './core/live.js';
import { useRoute } from './core/route.js';
import { useStore } from './core/store.js';
import { Failed, Waiting } from './parts/view.js';
import { useRowKeys } from './parts/table.js';
import { Shell } from './shell.js';

/** The module of each view, by the first step of the address and by how many steps there are. */
const VIEWS = {
  '': () => import('./views/overview.js'),
  services: (path) => (path.length > 2 ? import('./views/service.js') : import('./views/services.js')),
  nodes: (path) => (path.length > 1 ? import('./views/node.js') : import('./views/nodes.js')),
  addresses: () => import('./views/addresses.js'),
  bgp: () => import('./views/bgp.js'),
  dns: () => import('./views/dns.js'),
  history: (path) => (path.length > 1 ? import('./views/change.js') : import('./views/history.js')),
  plan: () => import('./views/plan.js'),
  explain: () => import('./views/explain.js'),
  login: () => import('./views/login.js'),
};

/** Which module a path has: its first step, and how many there are. */
const keyOf = (path) => `${path[0] ?? ''}/${path.length}`;

function useModule(path) {
  const [loaded, setLoaded] = useState({});
  const load = VIEWS[path[0] ?? ''] ?? (() => import('./views/missing.js'));
  const key = keyOf(path);
  useEffect(() => {
    let isWanted = true;
    load(path).then(
      (module) => isWanted && setLoaded({ key, View: module.default }),
      (error) => isWanted && setLoaded({ key, error }),
    );
    return () => {
      isWanted = false;
    };
  }, [key]);
  // The view before stays until the next is there: nothing flashes.
  return loaded;
}

function Page() {
  const route = useRoute();
  const known = useStore(session);
  const mustLogIn = known.isKnown && known.securityEnabled && !known.authenticated;
  const path = mustLogIn ? ['login'] : route.path;
  const { View, error, key } = useModule(path);
  // A view that stays until the next one is there is not drawn with the address of the next.
  const shown = useRef(route);
  if (key === keyOf(path)) shown.current = route;
  useRowKeys();
  useEffect(() => {
    if (!known.isKnown || mustLogIn) return undefined;
    let controller;
    const begin = () => {
      controller = new AbortController();
      follow(controller.signal);
    };
    const end = () => controller.abort();
    // A page that the browser keeps for the way back would keep its connection as well, of the six that it has for a server.
    const comeBack = (event) => event.persisted && begin();
    begin();
    addEventListener('pagehide', end);
    addEventListener('pageshow', comeBack);
    return () => {
      end();
      removeEventListener('pagehide', end);
      removeEventListener('pageshow', comeBack);
    };
  }, [known.isKnown, mustLogIn, known.who]);
  useEffect(() => {
    // A new view begins at its top, and its title has the keyboard; not at the start, when nobody has moved.
    if (document.querySelector('main')?.dataset.moved) {
      scrollTo(0, 0);
      document.querySelector('main h1')?.focus({ preventScroll: true });
    }
    if (View) document.querySelector('main').dataset.moved = 'true';
  }, [View, route.path.join('/')]);
  const isThere = View && (!mustLogIn || key === keyOf(path));
  return html`<${Shell} route=${route} isLocked=${mustLogIn}>
    ${error ? html`<${Failed} error=${error} retry=${() => location.reload()} />` : isThere ? html`<${View} route=${shown.current} />` : html`<${Waiting} rows=${6} />`}
  <//>`;
}

async function begin() {
  for (;;) {
    try {
      await learnSession();
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }
}

render(html`<${Page} />`, document.getElementById('page'));
begin();
