// SPDX-License-Identifier: Apache-2.0 OR MIT
// npm run build [-- FILE]: writes the page to FILE, by default to where the export crate embeds it.
import { writeFile } from 'node:fs/promises';
import { page, uiRoot } from './bundle.mjs';

const file = process.argv[2] ?? `${uiRoot}/../crates/export/assets/page.html`;
const html = await page();
await writeFile(file, html);
process.stderr.write(`${(Buffer.byteLength(html) / 1024).toFixed(1)} KiB\n`);
