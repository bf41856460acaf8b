// SPDX-License-Identifier: Apache-2.0 OR MIT
// npm test: bundles the unit tests (Node 20 reads no TypeScript) and runs them with Node's own test runner.
import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import * as esbuild from 'esbuild';
import { uiRoot } from './bundle.mjs';

const directory = await mkdtemp(`${tmpdir()}/lightfoot-unit-`);
try {
  const tests = (await readdir(`${uiRoot}/test/unit`)).filter((name) => name.endsWith('.test.ts'));
  await esbuild.build({
    absWorkingDir: uiRoot,
    entryPoints: tests.map((name) => `test/unit/${name}`),
    outdir: directory,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    sourcemap: 'inline',
    logLevel: 'warning',
  });
  const files = tests.map((name) => `${directory}/${name.replace(/\.ts$/, '.mjs')}`);
  const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-reporter=spec', ...files], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
} finally {
  await rm(directory, { recursive: true, force: true });
}
