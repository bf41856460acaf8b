// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { Camera } from '../../src/profile/camera.js';
import { collectVisible, narrowest, VisibleBoxes } from '../../src/profile/visible.js';
import { hostile, large, small } from '../profiles.mjs';
import { find, nameOf, opened } from './support.js';

const everything = { left: 0, right: 1e10, firstRow: 0, lastRow: 50, pixels: 1000 };

test('a small profile is drawn whole, to scale', () => {
  const page = opened(small());
  const seen = new VisibleBoxes();
  collectVisible(page.layout, everything, seen);
  assert.equal(seen.size, page.layout.size);
  const at = seen.box.indexOf(find(page, '_start', 'main', 'parse'));
  assert.equal(Math.round(seen.x[at]!), 700);
  assert.equal(Math.round(seen.width[at]!), 200);
});

test('a window shows what lies in it, clipped', () => {
  const page = opened(small());
  const seen = new VisibleBoxes();
  collectVisible(page.layout, { ...everything, left: 7e9, right: 9e9, firstRow: 2, lastRow: 4 }, seen);
  const names = [...seen.box.subarray(0, seen.size)].map((box) => nameOf(page, box));
  assert.deepEqual(names, ['main', 'parse']);
  assert.deepEqual([...seen.x.subarray(0, 2)], [0, 0]);
  assert.deepEqual([...seen.width.subarray(0, 2)], [1000, 1000]);
});

test('the work is bounded by the pixels, not by the profile', () => {
  const page = opened(large(20_000));
  const seen = new VisibleBoxes();
  collectVisible(page.layout, { ...everything, right: page.layout.total[0]! }, seen);
  const perRow = new Map<number, number>();
  for (let at = 0; at < seen.size; at++) {
    const depth = page.layout.depth[seen.box[at]!]!;
    perRow.set(depth, (perRow.get(depth) ?? 0) + 1);
    assert.ok(seen.width[at]! >= narrowest * 0.99);
    assert.ok(seen.x[at]! >= 0 && seen.x[at]! + seen.width[at]! <= 1000.01);
  }
  for (const count of perRow.values()) assert.ok(count <= 2000);
  // Almost all weight of the first row is drawn, alone or merged.
  let drawn = 0;
  for (let at = 0; at < seen.size; at++) if (page.layout.depth[seen.box[at]!] === 1) drawn += seen.width[at]!;
  assert.ok(drawn > 990, `${drawn} of 1000 pixels`);
});

test('an empty window draws nothing', () => {
  const page = opened(hostile());
  const seen = new VisibleBoxes();
  collectVisible(page.layout, { ...everything, right: 0 }, seen);
  assert.equal(seen.size, 0);
});

test('a move starts where the camera is, ends exactly where it was told to, and shrinks evenly', () => {
  const camera = new Camera({ left: 0, right: 1000 }, 100);
  assert.ok(!camera.moving(0));
  camera.aim({ left: 500, right: 501 }, 0);
  assert.deepEqual(camera.at(0), { left: 0, right: 1000 });
  assert.deepEqual(camera.at(100), { left: 500, right: 501 });
  // Half of the way from 1000 to 1 is about 32, not 500.
  const half = camera.at(50);
  assert.ok(Math.abs(half.right - half.left - Math.sqrt(1000)) < 0.1);
  let before = 1001;
  for (let now = 0; now <= 100; now += 5) {
    const { left, right } = camera.at(now);
    assert.ok(right - left < before && left >= 0 && right <= 1000 && left <= 500 && right >= 501);
    before = right - left;
  }
  // Turning back on the way goes on from there.
  camera.aim({ left: 500, right: 501 }, 0);
  const turned = camera.at(50);
  camera.aim({ left: 0, right: 1000 }, 50);
  assert.deepEqual(camera.at(50), turned);
  // A move of equal width is a plain shift.
  camera.jump({ left: 0, right: 10 });
  camera.aim({ left: 10, right: 20 }, 0);
  assert.equal(camera.at(50).right - camera.at(50).left, 10);
});
