// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { countMatches, exactly, matched, search } from '../../src/profile/search.js';
import { hostileNames, small } from '../profiles.mjs';
import { find, opened } from './support.js';

const page = opened(small());
const { tree, layout } = page;
const samples = (query: string, within = 0) => matched(layout, tree, search(tree.functions, query)!, within).samples;

test('matches that overlap are counted once', () => {
  assert.equal(samples('compute'), 700);
  assert.equal(samples('compute|square'), 700);
  assert.equal(samples('square'), 300);
  assert.equal(samples('main'), 1000);
  assert.equal(samples('main', find(page, '_start', 'main', 'parse')), 200);
  assert.equal(samples('nothing of the kind'), 0);
});

test('objects match too, case matters only with an upper-case letter', () => {
  assert.equal(samples('kernel'), 60);
  assert.equal(samples('COMPUTE'), 0);
  assert.equal(samples('^ksys_'), 60);
  assert.equal(samples('\\S+rite_out'), 100);
});

test('an invalid expression is searched as text, and says so', () => {
  const found = search(tree.functions, '[libc.so.6+')!;
  assert.ok(found.invalid);
  assert.equal(found.functions, 1);
  assert.equal(search(tree.functions, 'compute')!.invalid, undefined);
  assert.equal(search(tree.functions, ''), undefined);
});

test('a click on any name finds that name', () => {
  for (const name of hostileNames.filter((n) => n !== '')) {
    const found = search({ name: [name, `other ${name}`], object: ['', ''], kind: [0, 0], firstGroup: 2 }, exactly(name))!;
    assert.equal(found.invalid, undefined, name);
    assert.deepEqual([...found.matches], [1, 0], name.slice(0, 50));
  }
});

test('matches in any range of boxes are one subtraction', () => {
  const before = countMatches(layout, tree, search(tree.functions, 'square')!);
  const compute = find(page, '_start', 'main', 'compute');
  assert.equal(before[layout.end[compute]!]! - before[compute]!, 2);
  assert.equal(before[layout.size], 2);
});
