// Loads a profile with the Firefox Profiler's own code and prints, as JSON, what it understood: each thread with its samples and its
// functions. node check-firefox.mjs FILE
//
// The profiler's command line asks a process of its own that holds the profile. It is started here and not by `load`, which gives it
// half a second to start; and it is ended in any case.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const START_SECONDS = 120;
const cli = fileURLToPath(new URL("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js", import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "lightfoot-firefox-"));
const env = {
  ...process.env,
  HOME: directory,
  PROFILER_CLI_SESSION_DIR: directory,
  PROFILER_CLI_NO_SYMBOLICATE: "1",
};
const session = ["--session", "lightfoot"];

function ask(...words) {
  const result = spawnSync(process.execPath, [cli, ...words, ...session], { env, encoding: "utf8", maxBuffer: 1 << 28 });
  return { good: result.status === 0, output: result.stdout, errors: result.stderr };
}

function answer(...words) {
  const { good, output, errors } = ask(...words);
  if (!good) throw new Error(`${words.join(" ")}: ${output}${errors}`);
  return output;
}

function readLog() {
  try {
    return readFileSync(join(directory, "lightfoot.log"), "utf8");
  } catch {
    return "";
  }
}

const holder = spawn(process.execPath, [cli, "--daemon", resolve(process.argv[2]), ...session], { env, stdio: "inherit" });
let ended = false;
holder.once("exit", () => (ended = true));
try {
  // Asking too early makes the asker tidy the session away, so its log says when.
  const giveUp = Date.now() + START_SECONDS * 1000;
  for (let log = ""; !log.includes("Profile loaded successfully"); log = readLog()) {
    if (ended || Date.now() > giveUp || /error|fail/i.test(log)) throw new Error(`the profile was not loaded: ${log}`);
    await setTimeout(100);
  }
  const list = JSON.parse(answer("thread", "list", "--json"));
  const threads = list.threads.map((thread) => {
    answer("thread", "select", thread.threadHandle);
    const tree = JSON.parse(answer("thread", "samples-top-down", "--include-idle", "--json"));
    const functions = JSON.parse(answer("thread", "functions", "--include-idle", "--json"));
    return {
      name: thread.name,
      pid: thread.pid,
      tid: thread.tid,
      cpu_ms: thread.cpuMs,
      samples: tree.regularCallTree.totalSamples,
      functions: functions.functions.map((f) => ({ name: f.nameWithLibrary, self: f.selfSamples, total: f.totalSamples })),
    };
  });
  console.log(JSON.stringify(threads));
} catch (error) {
  console.error(String(error));
  process.exitCode = 1;
} finally {
  holder.kill();
  if (!ended) await new Promise((done) => holder.once("exit", done));
  rmSync(directory, { recursive: true, force: true });
}
