// The reference of the API, read from the OpenAPI document of this server. An operation is drawn when it is opened.
import { html, render, useEffect, useMemo, useState } from '../core/html.js';
import { CopyButton } from '../parts/copy.js';
import { bodiesOf, curlOf, fieldsOf, groupsOf, resolved, typeOf } from './model.js';

const DOCUMENTS = [
  ['users', 'For users and automation', '/openapi.json'],
  ['agents', 'For agents of nodes', '/openapi-agent.json'],
];

/** Levels of fields that one can open. */
const LEVELS_MAX = 8;

function Reference() {
  const [which, setWhich] = useState('users');
  const [document_, setDocument] = useState(undefined);
  const [error, setError] = useState(undefined);
  const [filter, setFilter] = useState('');
  const [chosen, setChosen] = useState(decodeURIComponent(location.hash.slice(1)));
  useEffect(() => {
    let isWanted = true;
    setDocument(undefined);
    fetch(DOCUMENTS.find(([key]) => key === which)[2])
      .then((answer) => answer.json())
      .then((read) => isWanted && setDocument(read), (failed) => isWanted && setError(failed));
    return () => {
      isWanted = false;
    };
  }, [which]);
  useEffect(() => {
    const follow = () => setChosen(decodeURIComponent(location.hash.slice(1)));
    addEventListener('hashchange', follow);
    return () => removeEventListener('hashchange', follow);
  }, []);
  const groups = useMemo(() => (document_ ? groupsOf(document_) : []), [document_]);
  const shown = useMemo(() => matching(groups, filter), [groups, filter]);
  useEffect(() => {
    if (document_ && chosen) document.getElementById(chosen)?.scrollIntoView();
  }, [document_]);
  return html`<div class="docs">
    <a class="skip" href="#docs-main" onClick=${(event) => { event.preventDefault(); document.querySelector('main').focus(); }}>Skip to content</a>
    <header class="docs-top"><a class="brand" href="/" aria-label="Tidegate, status page"><img src="/web/style/mark.svg" alt="" width="26" height="26" /><span>Tidegate</span></a><b>API reference</b>
      <span class="docs-end"><label><span class="unseen">Which API</span><select value=${which} onChange=${(event) => setWhich(event.target.value)}>${DOCUMENTS.map(([key, label]) => html`<option key=${key} value=${key}>${label}</option>`)}</select></label><a href=${DOCUMENTS.find(([key]) => key === which)[2]}>OpenAPI document</a></span></header>
    <nav class="docs-nav" aria-label="Operations">
      <input type="search" placeholder="Filter" aria-label="Filter operations" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
      ${shown.map(({ name, operations }) => html`<a key=${name} href=${`#${name}`}><span>${name}</span><span class="muted">${operations.length}</span></a>`)}
    </nav>
    <main id="docs-main" tabindex="-1">
      ${error && html`<p class="failed" role="alert">The OpenAPI document cannot be read: ${error.message}</p>`}
      <h1>${document_?.info.title ?? 'API'} <span class="muted">${document_?.info.version ?? ''}</span></h1>
      <p class="docs-lead">${document_ ? html`<${Text} of=${firstOf(document_.info.description)} />` : 'Reading the document of this server…'}</p>
      ${shown.map((group) => html`<section key=${group.name} id=${group.name} aria-label=${group.name}><h2>${group.name}</h2>${group.description && html`<p class="muted">${group.description}</p>`}
        ${group.operations.map((operation) => html`<${Operation} key=${operation.id} ...${{ document_, operation, isOpen: chosen === operation.id }} />`)}</section>`)}
      ${document_ && shown.length === 0 && html`<p class="muted">No operation matches “${filter}”.</p>`}
    </main>
  </div>`;
}

/** A text of the document, with its names of fields and values as such. */
function Text({ of = '' }) {
  return of.split('`').map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

const firstOf = (text = '') => text.split('\n\n')[0];

function matching(groups, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return groups;
  const has = ({ method, path, summary, id }) => words.every((word) => `${method} ${path} ${summary} ${id}`.toLowerCase().includes(word));
  return groups.map((group) => ({ ...group, operations: group.operations.filter(has) })).filter(({ operations }) => operations.length);
}

function Operation({ document_, operation, isOpen }) {
  const [wasOpened, setOpened] = useState(isOpen);
  useEffect(() => isOpen && setOpened(true), [isOpen]);
  const { method, path, summary, id } = operation;
  return html`<details class="operation" id=${id} open=${isOpen || undefined} onToggle=${(event) => event.target.open && setOpened(true)}>
    <summary><span class=${`method method-${method}`}>${method.toUpperCase()}</span><code>${path}</code><span class="operation-summary">${summary}</span></summary>
    ${wasOpened && html`<${Body} ...${{ document_, operation }} />`}
  </details>`;
}

function Body({ document_, operation }) {
  const body = bodiesOf(document_, operation);
  const [at, setAt] = useState(0);
  const example = body?.examples[at];
  const curl = curlOf(document_, operation, location.origin, body && { type: body.type, value: example.value });
  return html`<div class="operation-body">
    ${(operation.description ?? '').split('\n\n').map((text) => html`<p key=${text}><${Text} of=${text} /></p>`)}
    <div class="docs-example"><div class="docs-example-head"><h3>Request</h3>
      ${body?.examples.length > 1 && html`<label><span class="unseen">Example</span><select value=${at} onChange=${(event) => setAt(Number(event.target.value))}>${body.examples.map(({ name }, index) => html`<option key=${name} value=${index}>${name}</option>`)}</select></label>`}
      <${CopyButton} text=${curl} label="Copy" /></div><pre tabindex="0"><code>${curl}</code></pre>
      ${body && html`<p class="muted">${example.isMade && 'The body has the required fields only. '}Accepted: ${body.types.join(', ')}.</p>`}</div>
    ${operation.parameters.length > 0 && html`<h3>Parameters</h3><${Fields} document_=${document_} fields=${operation.parameters.map((one) => ({ name: one.name, field: { ...one.schema, description: one.description ?? one.schema?.description }, isRequired: one.required, where: one.in }))} level=${1} />`}
    ${body && html`<h3>Body</h3><${Fields} document_=${document_} fields=${fieldsOf(document_, body.schema)} level=${1} />`}
    <h3>Responses</h3>
    <ul class="docs-fields">${Object.entries(operation.responses ?? {}).map(([status, response]) => html`<${Response} key=${status} ...${{ document_, status, response }} />`)}</ul>
  </div>`;
}

function Response({ document_, status, response }) {
  const real = response.$ref ? (document_.components?.responses?.[response.$ref.split('/').at(-1)] ?? {}) : response;
  const schema = Object.values(real.content ?? {})[0]?.schema;
  return html`<li><p class="docs-field"><code>${status}</code>${schema && html`<span class="muted">${typeOf(document_, schema)}</span>`}</p><p><${Text} of=${real.description} /></p>${schema && html`<${Nested} ...${{ document_, schema, level: 1 }} />`}</li>`;
}

function Fields({ document_, fields, level }) {
  if (fields.length === 0) return html`<p class="muted">No fields.</p>`;
  return html`<ul class="docs-fields">${fields.map(({ name, field, isRequired, where }) => html`<li key=${`${where ?? ''}${name}`}>
    <p class="docs-field"><code>${name}</code><span class="muted">${typeOf(document_, field)}${where ? `, in ${where}` : ''}</span>${isRequired && html`<span class="docs-required">required</span>`}</p>
    <p><${Text} of=${resolved(document_, field).description} /></p><${Nested} ...${{ document_, schema: field, level }} /></li>`)}</ul>`;
}

/** The fields of an object, or of what a list has, when one asks for them. */
function Nested({ document_, schema, level }) {
  const [isOpen, setOpen] = useState(false);
  const one = resolved(document_, schema);
  const inner = one.items ?? (one.additionalProperties?.$ref ? one.additionalProperties : schema);
  const fields = level < LEVELS_MAX ? fieldsOf(document_, inner) : [];
  if (fields.length === 0) return null;
  return html`<details class="docs-nested" onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>${fields.length} fields of ${resolved(document_, inner).title ?? 'it'}</summary>${isOpen && html`<${Fields} document_=${document_} fields=${fields} level=${level + 1} />`}</details>`;
}

render(html`<${Reference} />`, document.getElementById('docs'));
