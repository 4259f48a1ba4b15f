import { CONTENDERS } from './contenders.js';
import { Stopwatch } from './stopwatch.js';
import { timedEvents, type ContenderResult, type ContenderSetup } from './workload.js';

// One run of one contender, in a process of its own so that no run warms up another. Started by run.ts over IPC.
process.once('message', (setup: ContenderSetup) => {
  void run(setup);
});

async function run(setup: ContenderSetup): Promise<void> {
  const contender = CONTENDERS[setup.id];
  if (contender === undefined) throw new Error(`There is no contender '${setup.id}'`);
  const rssAtStartBytes = peakRssBytes();
  const watch = new Stopwatch(timedEvents(setup), setup.warmUp);
  const stop = await contender(setup, watch);
  const timing = await watch.finished;
  await stop();
  const result: ContenderResult = { ...timing, rssAtStartBytes, peakRssBytes: peakRssBytes() };
  process.send!(result, () => process.disconnect());
}

function peakRssBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}
