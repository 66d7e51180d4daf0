// What is seen here can be had in a terminal as well.
import { html, useEffect, useRef, useState } from '../core/html.js';

/** How long it says that it has copied, in ms. */
const SAID_MS = 1_500;

/** Copies a text, or the text that a function returns when it is pressed. */
export function CopyButton({ text, label, class: name = '' }) {
  const [said, setSaid] = useState('');
  const copy = async () => {
    setSaid((await put(typeof text === 'function' ? text() : text)) ? 'Copied' : 'Cannot copy');
    setTimeout(() => setSaid(''), SAID_MS);
  };
  return html`<button type="button" class=${`quiet ${name}`} title=${typeof text === 'function' ? label : text} onClick=${copy}>${said || label}</button>`;
}

async function put(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS browsers have no clipboard but this.
    const area = document.createElement('textarea');
    area.value = text;
    area.setAttribute('readonly', '');
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/**
 * The menu of a view: the same as a request, as a command, and as a link.
 * @param {{api?: string, cli?: string}} props `api` the path of the request, `cli` the command without prompt
 */
export function CopyMenu({ api, cli }) {
  const [isOpen, setOpen] = useState(false);
  const menu = useRef();
  useEffect(() => {
    if (!isOpen) return undefined;
    const away = (event) => (event.key === 'Escape' || (event.type === 'pointerdown' && !menu.current?.contains(event.target))) && setOpen(false);
    addEventListener('keydown', away);
    addEventListener('pointerdown', away);
    return () => {
      removeEventListener('keydown', away);
      removeEventListener('pointerdown', away);
    };
  }, [isOpen]);
  const entries = [
    api && ['curl', `curl -s '${location.origin}${api}'`],
    cli && ['CLI', cli],
    ['link', location.href],
  ].filter(Boolean);
  return html`<div class="menu" ref=${menu}>
    <button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Copy as…</button>
    ${isOpen &&
    html`<div class="menu-list">
      ${entries.map(([what, text]) => html`<div class="menu-entry" key=${what}><${CopyButton} text=${text} label=${what} /><code>${text}</code></div>`)}
    </div>`}
  </div>`;
}
