// SPDX-License-Identifier: Apache-2.0 OR MIT
// A headless Chromium that talks to nobody.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const args = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Runs `work` with a fresh browser; afterwards nothing of it is left. */
export async function withBrowser(work, options = {}) {
  const home = await mkdtemp(`${tmpdir()}/lightfoot-ui-`);
  const context = await chromium.launchPersistentContext(home, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args,
    viewport: { width: 1280, height: 800 },
    ...options,
  });
  try {
    return await work(context);
  } finally {
    await context.close();
    await rm(home, { recursive: true, force: true });
  }
}

/**
 * Opens a file and waits for its first complete picture. `page.problems` collects what must not happen: requests to
 * anything but the file, errors, messages on the console, violations of the content security policy.
 */
export async function open(context, file, options = {}) {
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  page.problems = [];
  page.on('request', (request) => {
    if (request.url() !== url) page.problems.push(`request to ${request.url()}`);
  });
  page.on('pageerror', (error) => page.problems.push(`error: ${error.message}`));
  page.on('console', (message) => page.problems.push(`console: ${message.text()}`));
  if (options.media) await page.emulateMedia(options.media);
  if (options.viewport) await page.setViewportSize(options.viewport);
  await page.goto(url, { waitUntil: 'load' });
  if (!options.broken) await page.waitForFunction(() => window.lightfootReady === true, undefined, { timeout: 30_000 });
  return page;
}
