// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  bytes,
  formatBytes,
  formatCount,
  formatPercent,
  formatShare,
  formatTime,
  interval,
  nanoseconds,
  sampleCount,
  share,
} from '../../src/profile/units.js';

test('mixing units does not compile', () => {
  // @ts-expect-error a number of samples is not a time
  formatTime(sampleCount(3));
  // @ts-expect-error a bare number has no unit
  formatCount(3);
  // @ts-expect-error a share needs two numbers of one unit
  share(nanoseconds(1), sampleCount(2));
  // @ts-expect-error a time is not a share
  formatShare(nanoseconds(1));
});

test('times have three digits and the unit that fits', () => {
  const cases: [number, string][] = [
    [0, '0'],
    [7, '7 ns'],
    [412.4, '412 ns'],
    [3.14159, '3.14 ns'],
    [999, '999 ns'],
    [3_414, '3.41 µs'],
    [999_600, '1.00 ms'],
    [12_345_678, '12.3 ms'],
    [999_949_000, '1.00 s'],
    [10_000_000_000, '10.0 s'],
    [1_234_000_000_000, '1,234 s'],
  ];
  for (const [ns, text] of cases) assert.equal(formatTime(nanoseconds(ns)), text);
});

test('percentages never round something to nothing', () => {
  const cases: [number, string][] = [
    [0, '0 %'],
    [0.0001, '< 0.001 %'],
    [0.0131, '0.013 %'],
    [0.34, '0.34 %'],
    [0.996, '1.0 %'],
    [41.52, '41.5 %'],
    [99.96, '100 %'],
    [1234.5, '1,235 %'],
  ];
  for (const [percent, text] of cases) assert.equal(formatPercent(percent), text);
});

test('counts and bytes', () => {
  assert.equal(formatCount(sampleCount(1234567)), '1,234,567');
  assert.equal(formatCount(sampleCount(12)), '12');
  assert.equal(formatBytes(bytes(512)), '512 B');
  assert.equal(formatBytes(bytes(4096)), '4.00 KiB');
  assert.equal(formatBytes(bytes(1048575)), '1.00 MiB');
});

test('the interval of a share holds it, stays within 0 and 1, and narrows with more samples', () => {
  for (const [hits, all] of [[0, 10], [5, 10], [10, 10], [1, 100000], [0, 0]] as const) {
    const [low, high] = interval(sampleCount(hits), sampleCount(all));
    assert.ok(low >= 0 && high <= 1 && low < high);
    if (all > 0) assert.ok(low <= hits / all && hits / all <= high);
  }
  const width = (all: number) => {
    const [low, high] = interval(sampleCount(all / 2), sampleCount(all));
    return high - low;
  };
  assert.ok(width(10000) < width(100) / 5);
  // 50 of 100: 40.4 % to 59.6 % (Wilson).
  const [low, high] = interval(sampleCount(50), sampleCount(100));
  assert.equal(low.toFixed(3), '0.404');
  assert.equal(high.toFixed(3), '0.596');
});
