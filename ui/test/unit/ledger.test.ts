// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { readProfile } from '../../src/profile/data.js';
import { accounts, debts, price } from '../../src/profile/ledger.js';
import { describeShown, listProcesses } from '../../src/profile/threads.js';
import { empty, languages, small } from '../profiles.mjs';

const read = (change: (page: any) => void = () => {}) => {
  const page = small();
  change(page);
  return readProfile(JSON.stringify(page));
};

test('the identity is checked, not assumed', () => {
  const book = accounts(read());
  assert.ok(book.balanced);
  assert.deepEqual(book.parts.map((row) => [row.name, row.count]), [
    ['recorded', 1000],
    ['filtered', 412],
    ['throttled', 0],
    ['lost', 5],
    ['failed', 3],
  ]);
  assert.ok(!accounts(read((p) => (p.accounting.fired += 1))).balanced);
  assert.ok(!accounts(read((p) => (p.accounting.reasons = {}))).balanced);
  assert.deepEqual(book.endings.map((row) => row.count), [880, 80, 40]);
});

test('every sample that is not complete stands in one row of the debt', () => {
  const rows = debts(readProfile(JSON.stringify(languages())));
  assert.deepEqual(rows.map((r) => [r.object, r.count]), [
    ['libplugin.so', 100], ['[jit]', 40], ['libother.so', 30], ['node', 25], ['b>\u202e.so', 15],
    ['[unknown]', 10], ['[unknown]', 8], ['[unknown]', 6], ['[unknown]', 3], ['[unknown]', 2], ['[unknown]', 1],
  ]);
  assert.equal(rows[0]!.why, 'meaning of no_rows');
  assert.equal(rows[0]!.detail, 'no .eh_frame, no .debug_frame');
  // More debt than samples, or a debt of an outcome that did not occur: the samples win.
  const more = debts(read((p) => (p.debt = [{ object: '/x', outcome: 'truncated', count: 999, detail: '', remedy: '' }, { object: '/y', outcome: 'no_rows', count: 5, detail: '', remedy: '' }])));
  assert.deepEqual(more.map((r) => [r.object, r.count]), [['x', 80], ['[unknown]', 40]]);
  assert.deepEqual(debts(readProfile(JSON.stringify(empty()))), []);
});

test('the price has units first, and unknown is not zero', () => {
  const cost = price(read());
  assert.equal(cost.parts[0]!.time, 14_200_000);
  assert.equal(cost.parts[0]!.perSample, 14_200);
  assert.equal(cost.parts[0]!.percent!.toFixed(3), '0.142');
  assert.equal(cost.parts.filter((part) => part.level === 1).length, 5);
  const unknown = price(read((p) => (p.cost.interrupt_calibrated = false))).parts[0]!;
  assert.equal(unknown.time, undefined);
  assert.equal(unknown.percent, undefined);
});

test('without samples nothing is divided by zero', () => {
  const cost = price(readProfile(JSON.stringify(empty())));
  assert.equal(cost.parts[1]!.perSample, undefined);
});

test('processes and threads by weight, and the filter in words', () => {
  const processes = listProcesses(read());
  assert.deepEqual(processes.map((p) => [p.pid, p.comm, p.time, p.threads.map((t) => t.tid)]), [
    [4102, 'demo', 9e9, [4102, 4103]],
    [4200, 'helper', 1e9, [4200]],
  ]);
  const words = (...shown: number[]) => describeShown(processes, Uint8Array.from(shown));
  assert.equal(words(1, 1, 1), 'all 3 threads');
  assert.equal(words(0, 0, 0), 'no thread');
  assert.equal(words(1, 1, 0), 'demo (4102)');
  assert.equal(words(0, 1, 0), 'worker (tid 4103)');
  assert.equal(words(0, 1, 1), '2 of 3 threads');
});
