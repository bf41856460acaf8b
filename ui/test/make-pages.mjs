// SPDX-License-Identifier: Apache-2.0 OR MIT
// node test/make-pages.mjs DIRECTORY: writes the test pages, to look at them.
import { mkdir, writeFile } from 'node:fs/promises';
import { fillPage, page } from '../scripts/bundle.mjs';
import * as profiles from './profiles.mjs';

export async function makePages(directory, names = ['small', 'languages', 'hostile', 'empty', 'large']) {
  await mkdir(directory, { recursive: true });
  const html = await page();
  const files = {};
  for (const name of names) {
    const profile = profiles[name]();
    files[name] = `${directory}/${name}.html`;
    await writeFile(files[name], fillPage(html, `${profile.meta.target}: lightfoot profile`, profile));
  }
  return files;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const files = await makePages(process.argv[2] ?? 'pages');
  process.stdout.write(`${Object.values(files).join('\n')}\n`);
}
