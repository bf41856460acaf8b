// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { boxAt, childrenOf, firstChild, neighbour, pathTo } from '../../src/profile/layout.js';
import { sortRows, timeByKind, topRows } from '../../src/profile/top.js';
import { noFramesName } from '../../src/profile/tree.js';
import { empty, hostile, large, small } from '../profiles.mjs';
import { find, nameOf, opened } from './support.js';

const second = 1e9;

test('known shares come out: 70, 20 and 10 %', () => {
  const page = opened(small());
  const { layout } = page;
  assert.equal(layout.total[0], 10 * second);
  assert.equal(layout.total[find(page, '_start', 'main', 'compute')], 7 * second);
  assert.equal(layout.total[find(page, '_start', 'main', 'parse')], 2 * second);
  assert.equal(layout.total[find(page, '_start', 'main', 'write_out')], 1 * second);
  assert.equal(layout.self[find(page, '_start', 'main', 'compute')], 4 * second);
  assert.equal(layout.totalCount[find(page, '_start', 'main', 'compute', 'compute')], 100);
});

test('lines of one function are one box, with the heaviest line', () => {
  const page = opened(small());
  const node = page.layout.node[find(page, '_start', 'main', 'compute')]!;
  assert.equal(page.tree.nodeLines[node], 2);
  assert.equal(page.profile.frames.line[page.tree.nodeFrame[node]!], 12);
});

test('children lie side by side inside their parent, heaviest first', () => {
  const { layout } = opened(large(3000));
  for (let box = 0; box < layout.size; box++) {
    let at = layout.start[box]!;
    let before = Infinity;
    for (const child of childrenOf(layout, box)) {
      assert.equal(layout.parent[child], box);
      assert.equal(layout.start[child], at);
      assert.ok(layout.total[child]! <= before);
      before = layout.total[child]!;
      at += before;
    }
    assert.ok(Math.abs(layout.start[box]! + layout.total[box]! - layout.self[box]! - at) < 1);
  }
});

test('moving and pointing', () => {
  const page = opened(small());
  const { layout } = page;
  const compute = find(page, '_start', 'main', 'compute');
  const parse = find(page, '_start', 'main', 'parse');
  assert.equal(nameOf(page, firstChild(layout, compute)), 'square');
  assert.equal(neighbour(layout, compute, 1, 0), parse);
  assert.equal(neighbour(layout, parse, -1, 0), compute);
  assert.equal(neighbour(layout, compute, -1, 0), -1);
  // From the last callee of compute to the callee of parse: cousins of the same depth.
  const inner = find(page, '_start', 'main', 'compute', 'compute');
  assert.equal(nameOf(page, neighbour(layout, inner, 1, 0)), 'jit:loop');
  assert.equal(neighbour(layout, inner, 1, compute), -1);
  assert.deepEqual(pathTo(layout, parse).map((box) => nameOf(page, box)), ['all', '_start', 'main', 'parse']);
  assert.equal(boxAt(layout, 7.5 * second, 3), parse);
  assert.equal(boxAt(layout, 9.99 * second, 40), -1);
  assert.equal(boxAt(layout, 11 * second, 0), -1);
});

test('recursion counts once in the total of a function', () => {
  const page = opened(small());
  const rows = sortRows(topRows(page.layout, page.tree, 0), page.tree, 'total', false);
  const of = (name: string) => rows.find((row) => page.tree.functions.name[row.code] === name)!;
  assert.equal(of('compute').total, 7 * second);
  assert.equal(of('compute').totalSamples, 700);
  assert.equal(of('square').self, 3 * second);
  assert.equal(rows.reduce((sum, row) => sum + row.self, 0), 10 * second);
  const inside = topRows(page.layout, page.tree, find(page, '_start', 'main', 'parse'));
  assert.deepEqual(inside.map((row) => page.tree.functions.name[row.code]).sort(), ['jit:loop', 'parse']);
});

test('the table sorts by each column both ways', () => {
  const page = opened(small());
  const names = (order: 'self' | 'total' | 'name', reverse: boolean) =>
    sortRows(topRows(page.layout, page.tree, 0), page.tree, order, reverse).map((row) => page.tree.functions.name[row.code]);
  assert.equal(names('self', false)[0], 'compute');
  assert.equal(names('name', false)[0], '[libc.so.6+0x29d90]');
  assert.deepEqual(names('name', true), names('name', false).reverse());
});

test('a filter takes only the samples of its threads', () => {
  const page = opened(small(), Uint8Array.of(0, 0, 1));
  assert.equal(page.layout.total[0], 1 * second);
  assert.deepEqual(childrenOf(page.layout, find(page, '_start', 'main')).map((box) => nameOf(page, box)), ['write_out']);
  assert.equal(opened(small(), new Uint8Array(3)).layout.size, 1);
});

test('groups stand between the root and the stacks, and change no sum', () => {
  const page = opened(small(), undefined, 'process');
  const { layout, tree } = page;
  assert.deepEqual(childrenOf(layout, 0).map((box) => [nameOf(page, box), layout.totalCount[box]]), [
    ['demo (4102)', 900],
    ['helper (4200)', 100],
  ]);
  assert.equal(layout.total[find(page, 'demo (4102)', '_start', 'main', 'compute')], 7 * second);
  assert.equal(childrenOf(layout, find(page, 'helper (4200)', '_start', 'main')).length, 1);
  const plain = opened(small());
  const totals = (p: typeof page) =>
    sortRows(topRows(p.layout, p.tree, 0), p.tree, 'name', false).map((row) => [p.tree.functions.name[row.code], row.self, row.total]);
  assert.deepEqual(totals(page), totals(plain), 'groups are no functions');
  assert.deepEqual(timeByKind(layout, tree, 0), timeByKind(plain.layout, plain.tree, 0));
  const threads = opened(hostile(), undefined, 'thread');
  assert.equal(threads.layout.totalCount[find(threads, '\u202ereverse (tid 8)', noFramesName)], 2);
  assert.equal(opened(large(2000), undefined, 'thread').layout.total[0], opened(large(2000)).layout.total[0]);
});

test('self time by kind adds up', () => {
  const { layout, tree } = opened(small());
  assert.deepEqual(timeByKind(layout, tree, 0).map((ns) => ns / second), [5.2, 0.6, 3, 0.8, 0.4, 0, 0]);
});

test('samples without a frame stay visible, 4,000 frames are no problem, nothing is nothing', () => {
  const page = opened(hostile());
  assert.equal(page.layout.totalCount[find(page, noFramesName)], 2);
  assert.equal(page.layout.maxDepth, 4001);
  assert.equal(opened(empty()).layout.size, 1);
});
