// SPDX-License-Identifier: Apache-2.0 OR MIT
// Names as people read them: harmless, and shortened where there is little room.

/** Characters that draw nothing, break the line or turn the direction of the text around them. */
const invisible = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** The text with such characters made visible: `\\n` for a newline, `‹U+202E›` for a right-to-left override. */
export function legible(text: string): string {
  return text.replace(invisible, (c) => {
    if (c === '\n') return '\\n';
    if (c === '\t') return '\\t';
    return `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}›`;
  });
}

/** A function's name, legible; a name that draws nothing says so. */
export function legibleName(name: string): string {
  return name.trim() === '' ? '[empty name]' : legible(name);
}

/** At most `longest` characters; the middle gives way, because both ends tell names apart. */
export function middleCut(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const tail = Math.floor((longest - 1) / 3);
  return `${whole(text.slice(0, longest - 1 - tail))}…${whole(text.slice(text.length - tail))}`;
}

/** Drops half of a character that a cut went through. */
function whole(text: string): string {
  return text.replace(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '');
}

/**
 * The name in ever shorter forms, longest first: as it is, without generic arguments and parameters, then only its last
 * two parts and its last part. `std::map<int, a::b>::at(int)` gives `std::map::at`, `map::at`, `at`.
 */
export function shorterForms(name: string): string[] {
  const forms = [name];
  const add = (form: string) => {
    if (form !== '' && form.length < forms[forms.length - 1]!.length) forms.push(form);
  };
  // `[libc.so.6+0x29d90]` and other names in brackets have no parts.
  if (name.startsWith('[')) return forms;
  const bare = withoutArguments(name);
  add(bare);
  const parts = bare.split('::').filter((part) => part !== '');
  if (parts.length > 2) add(parts.slice(-2).join('::'));
  // `{closure#0}` alone says nothing.
  if (parts.length > 1 && !parts[parts.length - 1]!.startsWith('{')) add(parts[parts.length - 1]!);
  // Go: `example.org/net/http.(*conn).serve` gives `http.(*conn).serve`.
  if (parts.length === 1 && bare.includes('/') && !bare.includes(' ')) add(baseName(bare));
  return forms;
}

/** Takes away `<...>` and `(...)`, nested as they may be, but keeps `operator<`, `operator()` and `{closure#0}`. */
function withoutArguments(name: string): string {
  let result = '';
  let depth = 0;
  for (let at = 0; at < name.length; at++) {
    const c = name[at]!;
    if (depth === 0 && (c === '<' || c === '(' || c === '>' || c === '-') && result.endsWith('operator')) {
      const symbol = /^(\(\)|<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|--|-=|<|>|-)/.exec(name.slice(at, at + 3))?.[0];
      if (symbol !== undefined) {
        result += symbol;
        at += symbol.length - 1;
        continue;
      }
    }
    if (depth === 0 && c === '(' && name[at + 1] === '*' && name[at - 1] === '.') {
      // Go's pointer receiver is part of the name.
      const close = name.indexOf(')', at);
      if (close > 0) {
        result += name.slice(at, close + 1);
        at = close;
        continue;
      }
    }
    if (c === '<' || c === '(') depth += 1;
    else if ((c === '>' && name[at - 1] !== '-') || c === ')') depth = Math.max(0, depth - 1);
    else if (depth === 0) result += c;
  }
  // What stands before a blank is a return type (`void f`); what follows is `const` or `[clone .part.0]`.
  return result.replace(/\s*\[clone.*$/, '').replace(/\s+const$/, '').replace(/:{3,}/g, '::').trim().replace(/^::/, '');
}

/** The last part of a path: `libc.so.6` of `/usr/lib/libc.so.6`. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1) || path;
}
