// What stands around every view: where one can go, the search, whether the data is live, and who one is.
import { request, session } from './core/api.js';
import { Fragment, html, useEffect, useMemo, useRef, useState } from './core/html.js';
import { live } from './core/live.js';
import { go, to, toObject } from './core/route.js';
import { useStore } from './core/store.js';
import { useNow } from './core/use.js';
import { duration } from './core/format.js';
import { CopyButton } from './parts/copy.js';
import { diagnostics } from './parts/diagnostics-model.js';
import { Dialog } from './parts/dialog.js';
import { FieldSource } from './parts/field.js';
import { Shape } from './parts/state.js';

/** The views in the menu: path, label, key after `g`, icon. */
const PLACES = [
  ['', 'Overview', 'o', 'M2.5 9.5L8 4l5.5 5.5M4 8.5V13h8V8.5'],
  ['services', 'Services', 's', 'M2.5 4h11M2.5 8h11M2.5 12h11M5 4v.1M5 8v.1M5 12v.1'],
  ['nodes', 'Nodes', 'n', 'M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5v.1M5 11v.1'],
  ['addresses', 'Addresses', 'a', 'M8 14s5-4.4 5-8A5 5 0 0 0 3 6c0 3.6 5 8 5 8zM8 6.2v.1'],
  ['bgp', 'BGP and BFD', 'b', 'M4 4h.1M12 4h.1M8 12h.1M5 4.5h6M4.6 5.2l2.9 5.9M11.4 5.2l-2.9 5.9'],
  ['dns', 'DNS', 'd', 'M2.5 3.5h11v6h-11zM5 6.5h6M8 9.5v3M5 12.5h6'],
  ['history', 'History', 'h', 'M3 8a5 5 0 1 0 1.6-3.7M3 2.5V5h2.5M8 5v3.2l2 1.3'],
  ['plan', 'Plan', 'p', 'M4 2.5h6l2.5 2.5v8.5H4zM6.5 8h4M6.5 10.5h4M6.5 5.5h2'],
  ['explain', 'Explain', 'e', 'M2.5 8h8M7.5 4.5L11 8l-3.5 3.5M13.5 3v10'],
];

/** Hits of a search that are listed. */
const HITS_MAX = 12;

export function Shell({ route, isLocked, children }) {
  const place = route.path[0] ?? '';
  const [isHelping, setHelping] = useState(false);
  const [isMenuOpen, setMenuOpen] = useState(false);
  useEffect(() => setMenuOpen(false), [route]);
  useKeys(() => setHelping(true));
  return html`<${Fragment}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('main').focus(); }}>Skip to content</a>
    <header class="top">
      <a class="brand" href="#/" aria-label="Tidegate, overview"><img src="/web/style/mark.svg" alt="" width="26" height="26" /><span>Tidegate</span></a>
      ${!isLocked && html`<${Search} />`}
      <div class="top-end"><${Live} />${!isLocked && html`<${Who} />`}<${Theme} />
        <button type="button" class="quiet menu-button" aria-expanded=${isMenuOpen} aria-controls="places" onClick=${() => setMenuOpen(!isMenuOpen)}>Menu</button></div>
    </header>
    <nav class=${`places ${isMenuOpen ? 'open' : ''}`} id="places" aria-label="Views">
      ${!isLocked && PLACES.map(([path, label, key, icon]) => html`<a key=${path} href=${to(path ? [path] : [])} aria-current=${path === place ? 'page' : undefined} title=${`g ${key}`}>
        <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true"><path d=${icon} /></svg><span>${label}</span></a>`)}
      ${!isLocked && html`<button type="button" class="quiet places-help" onClick=${() => setHelping(true)}>Keys <kbd>?</kbd></button>`}
    </nav>
    <${Banner} />
    <main id="main" tabindex="-1">${children}</main>
    <${Footer} />
    <${FieldSource} />
    ${isHelping && html`<${Help} close=${() => setHelping(false)} />`}
  <//>`;
}

function useKeys(help) {
  useEffect(() => {
    let isGoing = false;
    const press = (event) => {
      if (event.target.closest('input, textarea, select, dialog') || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isGoing) {
        const place = PLACES.find(([, , key]) => key === event.key);
        if (place) go(place[0] ? [place[0]] : []);
        isGoing = false;
      } else if (event.key === '/') {
        event.preventDefault();
        document.getElementById('search')?.focus();
      } else if (event.key === '?') help();
      else isGoing = event.key === 'g';
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

/** Whether what is shown is so now; said by word, shape and age. */
function Live() {
  const { state, heardAt, since, doc } = useStore(live);
  const now = useNow(500);
  const ms = Math.max(0, now - heardAt);
  // The server speaks every other second; fractions would only flicker.
  const age = heardAt ? (ms < 1_000 ? 'now' : duration(Math.floor(ms / 1_000) * 1_000).replace('.0', '')) : '';
  const [words, old] = { connecting: ['connecting'], live: ['live', age === 'now' ? 'now' : `${age} ago`], stale: ['stale', `${age} old`], lost: heardAt ? ['lost', `${age} old`] : ['no connection'] }[state];
  const title = doc ? `Revision ${doc.position}, ${doc.replica?.name ?? 'control server'}; ${state} since ${new Date(since).toISOString().slice(11, 19)} UTC` : '';
  const shape = { live: 'ok', connecting: 'waiting', stale: 'risk', lost: 'disconnected' }[state];
  return html`<span id="live" data-state=${state} class=${`live live-${state}`} title=${title}><${Shape} state=${shape} size=${14} /><span>${words}${old && html`<span class="live-age"> · ${old}</span>`}</span></span>`;
}

/** What cannot be overlooked: the connection is lost, or nobody asks who anybody is. */
function Banner() {
  const { state, since, doc, error } = useStore(live);
  const known = useStore(session);
  const now = useNow();
  const isLost = state === 'lost' || state === 'stale';
  const isLong = isLost && now - since > 1_500;
  return html`<div class="banners">
    <div role="status">${isLong &&
      html`<p class="banner tone-worst"><${Shape} state="disconnected" /><span><b>${state === 'lost' ? 'The control server does not answer' : 'Nothing is heard of the control server'}</b> for ${duration(now - since)}. ${doc ? 'What is shown is old. ' : ''}Traffic goes on: agents keep the last state that they had.${error?.problem?.detail ? ` (${error.problem.detail})` : ''}</span></p>`}</div>
    ${doc?.insecure && html`<${Insecure} />`}
    ${known.readOnly && html`<p class="banner tone-none"><${Shape} state="notice" /><span>This page is read-only.</span></p>`}
  </div>`;
}

/** Where it is kept that the banner was read; as long as the tab is open. */
const READ = 'tidegate-insecure-read';

/** Nobody asks who anybody is: how to change that, and out of the way once it was read. */
function Insecure() {
  const [isRead, setRead] = useState(() => kept(READ));
  const [isAsking, setAsking] = useState(false);
  if (isRead) return null;
  const read = () => {
    try {
      sessionStorage.setItem(READ, 'yes');
    } catch {
      // It lasts as long as the page.
    }
    setRead(true);
  };
  return html`<div class="banner tone-risk" data-banner="insecure"><${Shape} state="risk" /><span><b>Authentication is off</b>: anyone who reaches this port is an administrator.</span>
    <span class="banner-end"><button type="button" class="quiet" onClick=${() => setAsking(true)}>Turn it on…</button><button type="button" class="quiet" aria-label="Hide until this tab is closed" onClick=${read}>Hide</button></span>
    ${isAsking && html`<${Dialog} title="Turn authentication on" close=${() => setAsking(false)}>
      <ol class="steps"><li>Start the control server without <code>--insecure</code>, with <code>--auth=required</code>.</li><li>The first start writes an administrator's token to the file <code>bootstrap-token</code>, next to the database. Log in with it here.</li><li>Create a token for each person: <code>tidegate token create kim-page --role viewer --expires-in 30d</code>, and a join token for each agent.</li></ol>
    <//>`}</div>`;
}

function kept(key) {
  try {
    return sessionStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** What this is, and where to read about it. */
function Footer() {
  const version = useStore(live, (state) => state.doc?.version);
  return html`<footer class="foot">
    <span>Tidegate${version && html` <span class="field" data-field="/v1/overview#/version">${version}</span>`}</span>
    <a href="/docs/">API reference</a><a href="/openapi.json">OpenAPI document</a><a href="/metrics">Metrics</a><${Diagnostics} /><span>Manual: <code>man tidegate</code>, <code>tidegate help</code></span>
  </footer>`;
}

/** Copies what a report about a problem needs. */
function Diagnostics() {
  const seen = useStore(live);
  const text = () => diagnostics(seen, { path: location.hash || '#/', agent: navigator.userAgent, now: new Date(), size: `${innerWidth}x${innerHeight}` });
  return html`<${CopyButton} text=${text} label="Copy diagnostics" />`;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? '');
  const next = { '': 'light', light: 'dark', dark: '' }[theme];
  const change = () => {
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    try {
      if (next) localStorage.setItem('tidegate-theme', next);
      else localStorage.removeItem('tidegate-theme');
    } catch {
      // It lasts as long as the page.
    }
    setTheme(next);
  };
  return html`<button type="button" class="quiet theme" onClick=${change} aria-label=${`Theme: ${theme || 'as the machine'}`} title=${`Theme: ${theme || 'as the machine'}`}>
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><circle cx="8" cy="8" r="5.5" /><path class="half" d=${theme === 'dark' ? 'M8 2.5a5.5 5.5 0 0 1 0 11 5.5 5.5 0 0 1 0-11' : theme === 'light' ? '' : 'M8 2.5a5.5 5.5 0 0 1 0 11z'} /></svg></button>`;
}

function Who() {
  const known = useStore(session);
  if (!known.securityEnabled || !known.authenticated) return null;
  const leave = async () => {
    await request('/v1/session', { method: 'DELETE' }).catch(() => undefined);
    session.set((before) => ({ ...before, authenticated: false, who: undefined }));
    live.set({ state: 'connecting', heardAt: 0, since: Date.now(), error: undefined, doc: undefined });
  };
  return html`<span class="who"><span title=${known.expires ? `until ${known.expires}` : ''}>${known.who}</span><button type="button" class="quiet" onClick=${leave}>Log out</button></span>`;
}

/** Looks for anything by name or address; what is typed is words that all have to be there. */
function Search() {
  const { doc } = useStore(live);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const input = useRef();
  // Whoever comes back at once finds it open.
  const closing = useRef();
  const index = useMemo(() => indexOf(doc), [doc?.services, doc?.nodes]);
  const hits = useMemo(() => find(index, text), [index, text]);
  const open = (hit) => {
    location.hash = hit.href;
    setText('');
    setOpen(false);
    input.current.blur();
  };
  const press = (event) => {
    if (event.key === 'ArrowDown') setAt(Math.min(at + 1, hits.length - 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(at - 1, 0));
    else if (event.key === 'Enter' && hits[at]) open(hits[at]);
    else if (event.key === 'Escape') event.target.blur();
    else return;
    event.preventDefault();
  };
  const isListed = isOpen && text.trim() !== '';
  return html`<div class="search" role="search">
    <input id="search" ref=${input} type="search" placeholder="Search Services, nodes, addresses" aria-label="Search" role="combobox" aria-expanded=${isListed} aria-controls="hits" aria-autocomplete="list"
      aria-activedescendant=${isListed && hits[at] ? `hit-${at}` : undefined} autocomplete="off" spellcheck="false" value=${text}
      onInput=${(event) => { setText(event.target.value); setAt(0); setOpen(true); }} onKeyDown=${press} onFocus=${() => { clearTimeout(closing.current); setOpen(true); }} onBlur=${() => { closing.current = setTimeout(() => setOpen(false), 150); }} />
    <kbd aria-hidden="true">/</kbd>
    ${isListed && html`<ul class="hits" id="hits" role="listbox" aria-label="Found">
      ${hits.map((hit, place) => html`<li key=${hit.href} id=${`hit-${place}`} role="option" aria-selected=${place === at} onPointerDown=${(event) => { event.preventDefault(); open(hit); }}>
        <${Shape} state=${hit.state} /><span>${hit.name}</span><span class="muted">${hit.what}</span></li>`)}
      ${hits.length === 0 && html`<li class="muted" role="option" aria-selected="false" aria-disabled="true">Nothing has “${text}” in its name or addresses.</li>`}
    </ul>`}
  </div>`;
}

function indexOf(doc) {
  if (!doc) return [];
  const services = [...doc.services.values()].map((row) => ({
    name: `${row.namespace}/${row.name}`,
    what: ['Service', ...row.addresses].join(' · '),
    state: row.state,
    href: toObject({ kind: 'Service', ...row }),
  }));
  const nodes = [...doc.nodes.values()].map((row) => ({ name: row.name, what: 'Node', state: row.state, href: to(['nodes', row.name]) }));
  const places = PLACES.map(([path, label]) => ({ name: label, what: 'View', state: 'notice', href: to(path ? [path] : []) }));
  return [...nodes, ...services, ...places].map((entry) => ({ ...entry, text: `${entry.name} ${entry.what}`.toLowerCase() }));
}

function find(index, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const hits = [];
  for (const entry of index) {
    if (words.every((word) => entry.text.includes(word))) hits.push(entry);
    if (hits.length === HITS_MAX) break;
  }
  return hits;
}

function Help({ close }) {
  const keys = [
    ['/', 'Search'],
    ['j k', 'Next and previous row'],
    ['Enter', 'Open'],
    ...PLACES.map(([, label, key]) => [`g ${key}`, label]),
    ['Alt + click', 'Where a number is from, also where it is a link'],
    ['Esc', 'Close'],
    ['?', 'This'],
  ];
  return html`<${Dialog} title="Keys" close=${close}>
    <dl class="keys">${keys.map(([key, what]) => html`<div key=${key}><dt>${key.split(' ').map((one) => html`<kbd key=${one}>${one}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <p class="muted">Click a number to see which field of the API it is.</p>
  <//>`;
}
