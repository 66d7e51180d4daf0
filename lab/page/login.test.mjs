// The login at the issuer.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faultOf, issuerHref, wantedView } from '../../web/parts/login-model.js';

const at = (path, params = {}) => ({ path, params });

test('a login leads back to the view that one was going to, and to no other site', () => {
  assert.equal(wantedView(at(['services', 'default', 'web'], { tab: 'events' }), '#/services/default/web?tab=events'), '/services/default/web?tab=events');
  assert.equal(wantedView(at(['login'], { fault: 'denied', view: '/nodes?x=1' }), '#/login?fault=denied&view=%2Fnodes%3Fx%3D1'), '/nodes?x=1');
  for (const view of [undefined, '', 'https://evil.example', '\\evil', '/a\r\nb', '/ü', '/"', `/${'x'.repeat(1_024)}`, '/login?fault=denied']) {
    assert.equal(wantedView(at(['login'], { view }), '#/login'), '/', view);
  }
  assert.equal(wantedView(at([]), ''), '/');
});

test('the link to the issuer has the view', () => {
  const href = issuerHref({ url: 'https://control.example.org:7440/v1/session/oidc' }, '/services/default/web?tab=events&x=1');
  assert.equal(href, 'https://control.example.org:7440/v1/session/oidc?view=%2Fservices%2Fdefault%2Fweb%3Ftab%3Devents%26x%3D1');
});

test('only known reasons of a failed login are shown', () => {
  assert.match(faultOf(at(['login'], { fault: 'expired' })), /ten minutes/);
  for (const fault of [undefined, 'other', 'toString', '__proto__']) assert.equal(faultOf(at(['login'], { fault })), undefined, fault);
  assert.equal(faultOf(at(['nodes'], { fault: 'expired' })), undefined);
});
