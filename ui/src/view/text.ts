// SPDX-License-Identifier: Apache-2.0 OR MIT
// Fitting names into boxes. Measuring on a canvas costs microseconds per call and a picture has thousands of labels,
// so the widths of ASCII characters are measured once and added up; other scripts are measured for real.

import { legibleName, shorterForms } from '../profile/names.js';

/** A label with its width at full length, in CSS pixels. */
interface Form {
  text: string;
  width: number;
}

export class Labels {
  private readonly advance = new Float32Array(128);
  private readonly ellipsis: number;
  private readonly forms = new Map<string, Form[]>();

  constructor(
    private readonly context: CanvasRenderingContext2D,
    readonly font: string,
  ) {
    context.font = font;
    for (let code = 32; code < 127; code++) {
      this.advance[code] = context.measureText(String.fromCharCode(code)).width;
    }
    this.ellipsis = context.measureText('…').width;
  }

  /** The longest form of `name` that fits into `room` pixels; cut short if none does; '' if not even that. */
  fit(name: string, room: number): string {
    let forms = this.forms.get(name);
    if (!forms) {
      // What is longer than any screen is wide is not measured.
      forms = shorterForms(legibleName(name)).map((text) => ({
        text,
        width: text.length > 3000 ? Infinity : this.measure(text),
      }));
      this.forms.set(name, forms);
    }
    for (const { text, width } of forms) if (width <= room) return isolated(text);
    const shortest = forms[forms.length - 1]!.text;
    const cut = this.cut(shortest, room - this.ellipsis);
    return cut.length < 2 ? '' : isolated(`${cut}…`);
  }

  private measure(text: string): number {
    let width = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code > 126) return this.real(text);
      width += this.advance[code]!;
    }
    return width;
  }

  private cut(text: string, room: number): string {
    let width = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code > 126) return this.cutReal(text, room);
      width += this.advance[code]!;
      if (width > room) return text.slice(0, at);
    }
    return text;
  }

  private cutReal(text: string, room: number): string {
    const characters = [...text.slice(0, 400)];
    let low = 0;
    let high = characters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.real(characters.slice(0, middle).join('')) <= room) low = middle;
      else high = middle - 1;
    }
    return characters.slice(0, low).join('');
  }

  private real(text: string): number {
    this.context.font = this.font;
    return this.context.measureText(text).width;
  }
}

/** Keeps right-to-left names from turning the ellipsis or their neighbours around (first strong isolate). */
function isolated(text: string): string {
  return /[^\u0000-\u007f]/.test(text) ? `\u2068${text}\u2069` : text;
}
