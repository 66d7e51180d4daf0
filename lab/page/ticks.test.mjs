// Scales and ranges of charts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rangesOf, ticksOf, windowOf } from '../../web/parts/ticks.js';

test('a scale has two or three round ticks, and the largest value fits', () => {
  for (const max of [0.0004, 0.3, 1, 1.7, 7, 13, 99, 100, 101, 4_096, 1e9]) {
    const ticks = ticksOf(max);
    assert.ok(ticks.length >= 2 && ticks.length <= 3, `${max}: ${ticks}`);
    assert.equal(ticks[0], 0);
    assert.ok(ticks.at(-1) >= max && ticks.at(-1) <= max * 2.5, `${max}: ${ticks}`);
  }
  assert.deepEqual(ticksOf(0.7), [0, 0.5, 1]);
  assert.deepEqual(ticksOf(350), [0, 200, 400]);
});

test('a count has whole ticks', () => {
  assert.deepEqual(ticksOf(1, { isCount: true }), [0, 1]);
  for (const max of [2, 3, 5, 9, 24, 46, 1_003]) {
    for (const tick of ticksOf(max, { isCount: true })) assert.ok(Number.isInteger(tick), `${max}: ${tick}`);
    assert.ok(ticksOf(max, { isCount: true }).at(-1) >= max);
  }
});

test('nothing is scaled to nothing', () => {
  assert.deepEqual(ticksOf(0), [0, 1]);
  assert.deepEqual(ticksOf(Number.NaN), [0, 1]);
});

const answer = (length) => ({ start: '2026-11-29T05:00:00Z', stepSeconds: 10, series: [{ name: 'connections', unit: '1/s', points: Array.from({ length }, (_, at) => at) }] });

test('a range is the newest of a series, and a gap where the server has nothing', () => {
  const newest = windowOf(answer(60), 300);
  assert.equal(newest.series[0].points.length, 30);
  assert.deepEqual([newest.series[0].points[0], newest.series[0].points.at(-1)], [30, 59]);
  assert.equal(newest.start, '2026-11-29T05:05:00.000Z');
  const padded = windowOf(answer(10), 300);
  assert.deepEqual([padded.series[0].points.length, padded.series[0].points[19], padded.series[0].points[20]], [30, null, 0]);
  assert.equal(padded.start, '2026-11-29T04:56:40.000Z');
});

test('a range that shows no more than a shorter one is not offered', () => {
  const labels = (length) => rangesOf(answer(length)).map(([, label]) => label);
  assert.deepEqual(labels(5), ['5 min']);
  assert.deepEqual(labels(31), ['5 min', '15 min']);
  assert.deepEqual(labels(360), ['5 min', '15 min', '1 h']);
});
