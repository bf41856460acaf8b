// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processes and threads, and which of them are shown.

import type { Profile } from './data.js';
import { nanoseconds, type Nanoseconds } from './units.js';

export interface ThreadEntry {
  /** Index into `Profile.threads`. */
  thread: number;
  tid: number;
  comm: string;
  time: Nanoseconds;
}

export interface ProcessEntry {
  pid: number;
  /** Name of the main thread, or of the heaviest if the main thread was not seen. */
  comm: string;
  time: Nanoseconds;
  /** Heaviest first. */
  threads: ThreadEntry[];
}

/** Processes by CPU time, heaviest first. */
export function listProcesses(profile: Profile): ProcessEntry[] {
  const time = new Float64Array(profile.threads.length);
  const { thread, weight } = profile.samples;
  for (let at = 0; at < thread.length; at++) time[thread[at]!]! += weight[at]!;
  const byPid = new Map<number, ProcessEntry>();
  profile.threads.forEach(({ pid, tid, comm }, at) => {
    let process = byPid.get(pid);
    if (!process) byPid.set(pid, (process = { pid, comm: '', time: nanoseconds(0), threads: [] }));
    process.threads.push({ thread: at, tid, comm, time: nanoseconds(time[at]!) });
    process.time = nanoseconds(process.time + time[at]!);
  });
  const processes = [...byPid.values()];
  for (const process of processes) {
    process.threads.sort((a, b) => b.time - a.time || a.tid - b.tid);
    // A thread appears once per name it had: the main thread's heaviest name stands for the process.
    process.comm = (process.threads.find((t) => t.tid === process.pid) ?? process.threads[0]!).comm;
  }
  return processes.sort((a, b) => b.time - a.time || a.pid - b.pid);
}

/** `all 12 threads`, `xz (4102)`, `2 of 12 threads`: what is shown, in words. */
export function describeShown(processes: ProcessEntry[], shown: Uint8Array): string {
  const count = shown.reduce((sum, one) => sum + one, 0);
  if (count === shown.length) return count === 1 ? '1 thread' : `all ${count} threads`;
  if (count === 0) return 'no thread';
  const touched = processes.filter((p) => p.threads.some((t) => shown[t.thread]));
  if (touched.length === 1) {
    const process = touched[0]!;
    if (process.threads.every((t) => shown[t.thread])) return `${process.comm} (${process.pid})`;
    if (count === 1) {
      const only = process.threads.find((t) => shown[t.thread])!;
      return `${only.comm} (tid ${only.tid})`;
    }
  }
  return `${count} of ${shown.length} threads`;
}
