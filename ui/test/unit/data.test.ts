// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { readProfile } from '../../src/profile/data.js';
import { hostile, small } from '../profiles.mjs';

const read = (change: (page: any) => void) => () => {
  const page = small();
  change(page);
  readProfile(JSON.stringify(page));
};

test('what does not fit the schema is refused with its place', () => {
  assert.throws(() => readProfile('/*LIGHTFOOT_PROFILE*/'), /not JSON/);
  assert.throws(() => readProfile('null'), /lightfoot.page\/1/);
  assert.throws(read((p) => (p.schema = 'lightfoot.page/2')), /lightfoot.page\/2/);
  assert.throws(read((p) => delete p.strings), /strings/);
  assert.throws(read((p) => p.frames.name.pop()), /frames\.file has another length/);
  assert.throws(read((p) => (p.frames.name[1] = 1e9)), /frames\.name\[1\]/);
  assert.throws(read((p) => (p.frames.kind[0] = 7)), /frames\.kind\[0\]/);
  assert.throws(read((p) => (p.stacks.parent[2] = 2)), /stacks\.parent\[2\]/);
  assert.throws(read((p) => (p.stacks.parent[2] = -2)), /stacks\.parent\[2\]/);
  assert.throws(read((p) => (p.samples.stack[0] = 1.5)), /samples\.stack\[0\]/);
  assert.throws(read((p) => (p.samples.weight_ns[0] = -1)), /samples\.weight_ns\[0\]/);
  assert.throws(read((p) => (p.samples.thread[0] = 'x')), /samples\.thread\[0\]/);
  assert.throws(read((p) => (p.samples.outcome[0] = 11)), /samples\.outcome\[0\]/);
  assert.throws(read((p) => delete p.outcomes), /outcomes is not a list/);
  assert.throws(read((p) => (p.debt = {})), /debt is not a list/);
  assert.throws(read((p) => (p.cost = null)), /cost/);
});

test('what fits is read whole', () => {
  const profile = readProfile(JSON.stringify(small()));
  assert.equal(profile.threads.length, 3);
  assert.equal(profile.samples.count.reduce((a, b) => a + b, 0), 1000);
  assert.equal(profile.meta.notes.length, 1);
  readProfile(JSON.stringify(hostile()));
});
