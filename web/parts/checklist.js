// The first steps on an empty cluster: which are done, and the command of the next.
import { html } from '../core/html.js';
import { to } from '../core/route.js';
import { useApi } from '../core/use.js';
import { CopyButton } from './copy.js';
import { Shape } from './state.js';

const POOL = `tidegate apply -f - <<'EOF'
apiVersion: tidegate/v1
kind: AddressPool
metadata: {name: default}
spec: {addresses: [192.0.2.10-192.0.2.99]}
EOF`;
const ADVERTISEMENT = `tidegate apply -f - <<'EOF'
apiVersion: tidegate/v1
kind: Advertisement
metadata: {name: default}
spec: {type: L2, addressPools: [default]}
EOF`;
const SERVICE = `tidegate apply -f - <<'EOF'
apiVersion: tidegate/v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: tidegate/v1
kind: EndpointSet
metadata: {name: web}
spec:
  service: web
  endpoints: [{address: 10.1.1.11}, {address: 10.1.2.13}]
EOF`;
const CURL = 'curl http://$(tidegate get service web -o jsonpath={.status.loadBalancer.ingress[0].ip})/';

/** @param {{doc: any}} props the overview */
export function Checklist({ doc: { totals } }) {
  const { data } = useApi(totals.pools ? '/v1/advertisements?limit=1' : undefined, { when: JSON.stringify(totals) });
  const steps = [
    [totals.nodes?.total > 0, 'A node has joined', 'An agent on each machine programs its kernel and registers itself.', 'tidegate-agent --api https://CONTROL:7440 --node NAME'],
    [totals.pools?.total > 0, 'A pool has addresses', 'Addresses of your network that nothing else uses.', POOL],
    [data?.items?.length > 0, 'An Advertisement announces them', 'By ARP and NDP here; BGP is described in the manual.', ADVERTISEMENT],
    [totals.services.total > 0, 'A Service has an address', 'Replace the endpoints by your backends.', SERVICE],
    [false, 'Send a request', 'From another machine in the same network.', CURL],
  ];
  const next = steps.findIndex(([isDone]) => !isDone);
  return html`<ol class="checklist">${steps.map(([isDone, title, text, command], at) => html`<li key=${title} data-step=${at} data-done=${isDone} class=${isDone ? 'tone-ok' : 'tone-none'} aria-current=${at === next ? 'step' : undefined}>
    <span class="rank">${isDone ? html`<${Shape} state="ok" size=${14} />` : at + 1}</span>
    <div><b>${title}</b>${isDone && html`<span class="unseen">: done</span>`}${!isDone && html`<p class="muted">${text}</p>`}${at === next && html`<pre tabindex="0"><code>${command}</code></pre><${CopyButton} text=${command} label="Copy" />${command !== CURL && at > 0 && html` <a class="button quiet" href=${to(['plan'])}>Paste it here instead</a>`}`}</div></li>`)}</ol>`;
}
