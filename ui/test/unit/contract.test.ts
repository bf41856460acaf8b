// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the exporter writes is what the page reads: the exporter's own golden file, opened here.
import assert from 'node:assert/strict';
import test from 'node:test';
import golden from '../../../crates/export/tests/golden/html-data-every-column.json';
import { kinds, readProfile } from '../../src/profile/data.js';
import { buildLayout } from '../../src/profile/layout.js';
import { accounts, debts, price } from '../../src/profile/ledger.js';
import { timeByKind } from '../../src/profile/top.js';
import { buildTree } from '../../src/profile/tree.js';

test("the exporter's golden data are read whole", () => {
  const profile = readProfile(JSON.stringify(golden));
  assert.deepEqual([...new Set(profile.frames.kind)].sort(), kinds.map((_, kind) => kind), 'every kind occurs');
  const sum = (numbers: Float64Array) => numbers.reduce((all, n) => all + n, 0);
  const tree = buildTree(profile);
  const layout = buildLayout(profile, tree);
  assert.equal(layout.total[0], sum(profile.samples.weight));
  assert.equal(layout.totalCount[0], sum(profile.samples.count));
  const byKind = timeByKind(layout, tree, 0);
  assert.ok(byKind[5]! > 0 && byKind[6]! > 0, 'Python and Ruby have time of their own');
  assert.equal(byKind.reduce((all, ns) => all + ns, 0), layout.total[0], 'the legend adds up');
});

test('every outcome has a name and a sentence, and the debt names outcomes that there are', () => {
  const profile = readProfile(JSON.stringify(golden));
  assert.deepEqual([...new Set(profile.samples.outcome)].sort((a, b) => a - b), profile.outcomes.map((_, at) => at), 'every outcome occurs');
  for (const { name, sentence } of profile.outcomes) assert.ok(/^[a-z_]+$/.test(name) && sentence.length > 10, name);
  const rows = debts(profile);
  assert.equal(rows.length, profile.debt.length);
  assert.equal(rows.reduce((all, row) => all + row.count, 0), profile.debt.reduce((all, debt) => all + debt.count, 0));
  for (const row of rows) assert.ok(row.why.includes(' ') && row.remedy.length > 10, row.object);
});

test('every field that the ledger shows is there', () => {
  const profile = readProfile(JSON.stringify(golden));
  const book = accounts(profile);
  for (const { name, count } of [...book.parts, ...book.reasons, ...book.endings]) assert.ok(Number.isFinite(count), name);
  assert.ok(book.balanced);
  const cost = price(profile);
  for (const part of [...cost.parts, cost.total]) {
    assert.ok(part.time === undefined || Number.isFinite(part.time), part.name);
    assert.ok(part.percent === undefined || Number.isFinite(part.percent), part.name);
  }
  assert.ok(Number.isFinite(cost.whileRunning));
  for (const { size, origin } of cost.memory) assert.ok(Number.isFinite(size), origin);
});
