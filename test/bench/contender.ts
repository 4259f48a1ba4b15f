import { CONTENDERS, timedEvents } from './contenders.js';
import { Stopwatch } from './stopwatch.js';
import type { ContenderSetup } from './workload.js';

// One run of one contender, in a process of its own so that no run warms up another. Started by run.ts over IPC.
process.once('message', (setup: ContenderSetup) => {
  void run(setup);
});

async function run(setup: ContenderSetup): Promise<void> {
  const contender = CONTENDERS[setup.id];
  if (contender === undefined) throw new Error(`There is no contender '${setup.id}'`);
  const watch = new Stopwatch(timedEvents(setup));
  const stop = await contender(setup, watch);
  const result = await watch.finished;
  await stop();
  process.send!(result, () => process.disconnect());
}
