// SPDX-License-Identifier: Apache-2.0 OR MIT
// Colours of frames: the hue says the kind, the shade only tells neighbours apart. Each kind also has a letter, so
// that colour is never the only carrier of meaning.

import { kinds, type Kind } from '../profile/data.js';

export const kindMarks = ['N', 'K', 'I', 'J', '?', 'P', 'R'] as const;
export const kindWords = kinds;
export const kindHelp = [
  'machine code of an executable or library',
  'kernel code',
  'compiled into its caller: no stack frame of its own',
  'code made at run time, named by a perf map',
  'no name was found',
  'a Python function',
  'a Ruby method or block',
] as const;

export const shades = 6;

export interface Palette {
  /** `fills[kind * shades + shade]` */
  fills: string[];
  text: string;
  root: string;
  /** Many frames too narrow to draw one by one. */
  merged: string;
  mergedText: string;
  /** Such frames with a match among them. */
  mergedMatch: string;
  match: string;
  matchText: string;
  background: string;
  outline: string;
}

/** hue, saturation %, lightness % of the first shade; steps to the last. The order is that of the kinds. */
const light: readonly (readonly number[])[] = [
  [30, 88, 76, -12, -8],
  [212, 62, 82, 10, -7],
  [50, 82, 79, -7, -7],
  [150, 42, 78, 14, -7],
  [240, 6, 85, 0, -8],
  [182, 52, 76, 12, -8],
  [334, 62, 84, 14, -8],
];
const dark: readonly (readonly number[])[] = [
  [26, 52, 38, -11, -7],
  [213, 40, 42, 10, -8],
  [46, 50, 31, -6, -6],
  [155, 34, 31, 14, -6],
  [230, 7, 37, 0, -7],
  [186, 46, 31, 10, -6],
  [336, 34, 42, 12, -8],
];

export function palette(isDark: boolean): Palette {
  const fills: string[] = [];
  for (const [hue, saturation, lightness, turn, darker] of isDark ? dark : light) {
    for (let shade = 0; shade < shades; shade++) {
      const part = shade / (shades - 1);
      fills.push(`hsl(${hue! + turn! * part} ${saturation}% ${lightness! + darker! * part}%)`);
    }
  }
  return isDark
    ? {
        fills,
        text: '#f4f1ea',
        root: '#3b3f48',
        merged: '#30333a',
        mergedText: '#a09c94',
        mergedMatch: '#58497a',
        match: '#b98cf0',
        matchText: '#1c1226',
        background: '#1c1e22',
        outline: '#ffffff',
      }
    : {
        fills,
        text: '#221d16',
        root: '#d9d4ca',
        merged: '#e3dfd7',
        mergedText: '#6d675e',
        mergedMatch: '#d8c5ef',
        match: '#7a3fc4',
        matchText: '#ffffff',
        background: '#ffffff',
        outline: '#16130f',
      };
}

/** The same name has the same shade in every profile. */
export function shadeOf(name: string): number {
  let hash = 7;
  const length = Math.min(name.length, 64);
  for (let at = 0; at < length; at++) hash = (Math.imul(hash, 31) + name.charCodeAt(at)) | 0;
  return (hash >>> 4) % shades;
}

/** Index into {@link Palette.fills}. */
export function fillOf(kind: Kind, name: string): number {
  return kind * shades + shadeOf(name);
}
