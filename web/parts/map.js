// The live map of the overview: asks for what the drawing needs of the few Services in it.
import { request } from '../core/api.js';
import { html, useEffect, useMemo, useState } from '../core/html.js';
import { useApi } from '../core/use.js';
import { chosen, COLUMNS, keyOf, mapOf } from './map-model.js';
import { PathGraph } from './path.js';
import { Empty, Panel, Waiting } from './view.js';

/** Between two looks at the Services that are drawn, in ms. */
const EVERY_MS = 10_000;
/** Addresses that are looked at. */
const ADDRESSES_MAX = 1_000;
/** Widths of the columns in CSS pixels, and the room that they need at least; causes stand below the drawing only. */
const ROOM = { roomy: [152, 108, 184, 140], tight: [152, 108, 184, 140], roomyMin: 0, min: 680, hasWords: false };

/** The map, with the panel around it. */
export function LiveMap({ doc, traffic }) {
  const { services, nodes } = doc;
  const { shown, rest } = useMemo(() => chosen([...services.values()], traffic), [services, traffic]);
  const details = useDetails(shown);
  const totals = JSON.stringify(doc.totals.addresses ?? {});
  const addresses = useApi(doc.isWhole === false ? undefined : `/v1/addresses?limit=${ADDRESSES_MAX}`, { everyMs: EVERY_MS, when: totals }).data?.items;
  const isKnown = details !== undefined && (addresses !== undefined || doc.isWhole === false);
  const graph = useMemo(() => (isKnown ? mapOf({ services: shown, rest, nodes, traffic, addresses, details }) : undefined), [isKnown, shown, rest, nodes, traffic, addresses, details]);
  return html`<${Panel} id="map" title="Live map" aside="the widest edges are the busiest">
    ${shown.length === 0
      ? html`<${Empty} title="Nothing to draw yet">Services appear here with their addresses, nodes and endpoints.<//>`
      : graph
        ? html`<${PathGraph} graph=${graph} headings=${COLUMNS} label="Live map of the cluster" paths=${{}} room=${ROOM} leadsTo="Open" hint="An edge leads to its address or to the path of its Service." />`
        : html`<${Waiting} rows=${8} />`}
  <//>`;
}

/** Traffic and endpoints of these Services, one request after the other; what was known stays until something newer is. */
function useDetails(rows) {
  const [details, setDetails] = useState(undefined);
  const when = rows.map((row) => `${keyOf(row)} ${row.state} ${row.revision} ${row.endpointsReady}/${row.endpointsTotal}`).join('\n');
  useEffect(() => {
    const controller = new AbortController();
    let timer;
    const round = async () => {
      if (!document.hidden) {
        const known = new Map();
        for (const { namespace, name } of rows) {
          const base = `/v1/namespaces/${namespace}`;
          const ask = (path) => request(path, { signal: controller.signal }).catch(() => undefined);
          const [traffic, compiled] = await Promise.all([ask(`${base}/services/${name}/traffic`), ask(`${base}/endpoints/${name}`)]);
          if (controller.signal.aborted) return;
          known.set(keyOf({ namespace, name }), { traffic, compiled });
        }
        setDetails(known);
      }
      timer = setTimeout(round, EVERY_MS);
    };
    round();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [when]);
  return details;
}
