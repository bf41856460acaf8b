// SPDX-License-Identifier: Apache-2.0 OR MIT
import assert from 'node:assert/strict';
import test from 'node:test';
import { kinds } from '../../src/profile/data.js';
import { kindHelp, kindMarks, palette, shades } from '../../src/view/palette.js';

/** Relative luminance of `#rrggbb` or `hsl(h s% l%)`. Source: WCAG 2.2, "relative luminance"; CSS Color 4, 7.1. */
function luminance(colour: string): number {
  let channels: number[];
  if (colour.startsWith('#')) {
    channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  } else {
    const [hue, saturation, lightness] = colour.match(/[\d.]+/g)!.map(Number) as [number, number, number];
    const amplitude = (saturation / 100) * Math.min(lightness / 100, 1 - lightness / 100);
    channels = [0, 8, 4].map((n) => {
      const k = (n + hue / 30) % 12;
      return lightness / 100 - amplitude * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    });
  }
  const [r, g, b] = channels.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

test('every kind has a letter, a meaning, and colours on which text is legible, light and dark', () => {
  assert.equal(kindMarks.length, kinds.length);
  assert.equal(kindHelp.length, kinds.length);
  assert.equal(new Set(kindMarks).size, kinds.length, 'no letter twice');
  for (const isDark of [false, true]) {
    const { fills, text } = palette(isDark);
    assert.equal(fills.length, kinds.length * shades);
    for (const [at, fill] of fills.entries()) {
      const [high, low] = [luminance(fill), luminance(text)].sort((a, b) => b - a) as [number, number];
      const contrast = (high + 0.05) / (low + 0.05);
      assert.ok(contrast >= 4.5, `${kinds[Math.floor(at / shades)]} ${isDark ? 'dark' : 'light'} ${fill}: ${contrast.toFixed(2)}`);
    }
  }
});
