// Where else to look: links that the server's operator gave, `--page-link`.
import { html } from '../core/html.js';
import { useApi } from '../core/use.js';

/** They are those that the server was started with. */
const EVERY_MS = 600_000;

/**
 * Links about something.
 * @param {{of: 'service' | 'node' | 'cluster', names?: Record<string, string>}} props `names` are put in the places of the template
 */
export function Links({ of, names = {} }) {
  const { data } = useApi('/v1/page', { everyMs: EVERY_MS });
  const links = (data?.links ?? []).filter((link) => link.of === of);
  const href = ({ template }) => template.replace(/\{(namespace|name|node)\}/g, (_, key) => encodeURIComponent(names[key] ?? ''));
  return links.map((link) => html`<a key=${link.title} class="button" href=${href(link)} target="_blank" rel="noreferrer">${link.title} ↗</a>`);
}
