// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { baseName, legible, legibleName, middleCut, shorterForms } from '../../src/profile/names.js';
import { hostileNames } from '../profiles.mjs';

test('what cannot be seen is made visible', () => {
  assert.equal(legible('a\nb\tc'), 'a\\nb\\tc');
  assert.equal(legible('evil\u202egnp.exe'), 'evil‹U+202E›gnp.exe');
  assert.equal(legible('日本語 🦀 שלום'), '日本語 🦀 שלום');
  assert.equal(legibleName('  '), '[empty name]');
});

test('names get shorter from the arguments inwards', () => {
  const cases: [string, string[]][] = [
    ['main', ['main']],
    ['std::map<int, a::b>::at(int)', ['std::map<int, a::b>::at(int)', 'std::map::at', 'map::at', 'at']],
    ['<T as core::Trait>::method', ['<T as core::Trait>::method', 'method']],
    ['a::b::{closure#0}', ['a::b::{closure#0}', 'b::{closure#0}']],
    ['operator<', ['operator<']],
    ['x::operator()(int)', ['x::operator()(int)', 'x::operator()', 'operator()']],
    ['example.org/net/http.(*conn).serve', ['example.org/net/http.(*conn).serve', 'http.(*conn).serve']],
    ['[libc.so.6+0x29d90]', ['[libc.so.6+0x29d90]']],
  ];
  for (const [name, forms] of cases) assert.deepEqual(shorterForms(name), forms);
});

test('no name is too strange to shorten', () => {
  for (const name of [...hostileNames, '<<<<', '>>>>', '((((', '::::', 'operator', 'operator<<<int>', '->', '']) {
    const forms = shorterForms(name);
    assert.equal(forms[0], name);
    for (let at = 1; at < forms.length; at++) assert.ok(forms[at]!.length < forms[at - 1]!.length && forms[at] !== '');
  }
});

test('a cut keeps both ends and no half characters', () => {
  assert.equal(middleCut('abcdefghij', 10), 'abcdefghij');
  assert.equal(middleCut('abcdefghijklmno', 10), 'abcdef…mno');
  for (let longest = 4; longest < 40; longest++) {
    assert.ok(!/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(middleCut('🦀'.repeat(50), longest)));
  }
  assert.equal(baseName('/usr/lib/libc.so.6'), 'libc.so.6');
  assert.equal(baseName('[kernel]'), '[kernel]');
  assert.equal(baseName('/'), '/');
});
