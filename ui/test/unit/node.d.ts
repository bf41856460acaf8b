// SPDX-License-Identifier: Apache-2.0 OR MIT
// The little of Node that the unit tests use; the whole of its types would be two more packages.
declare module 'node:test' {
  export default function test(name: string, body: () => void): void;
}
declare module 'node:assert/strict' {
  interface Assert {
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    ok(value: unknown, message?: string): void;
    throws(body: () => void, expected: RegExp): void;
  }
  const assert: Assert;
  export default assert;
}
declare module '*/profiles.mjs' {
  export function small(): any;
  export function languages(): any;
  export function hostile(): any;
  export function empty(): any;
  export function large(stacks?: number, tail?: number): any;
  export const hostileNames: string[];
}
