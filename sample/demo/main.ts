// npm run demo: events that are sent twice, workers that are killed, and a database that is asked afterwards.
import { readArguments, USAGE, type DemoArguments } from './arguments.js';
import { LogFile } from './log-file.js';
import { onSignal } from './on-signal.js';
import { isExact, jsonOf, tableOf, verdictOf } from './report.js';
import { runDemo, type DemoRun } from './run.js';
import { Screen } from './screen.js';

const read = readArguments(process.argv.slice(2));
switch (read.kind) {
  case 'help':
    console.log(USAGE);
    break;
  case 'wrong':
    console.error(read.message);
    process.exitCode = 2;
    break;
  case 'run':
    process.exitCode = await demo(read.options);
}

/** Gives the exit status. */
async function demo(options: DemoArguments): Promise<number> {
  const screen = new Screen(options.json ? process.stderr : process.stdout);
  const end = new AbortController();
  const interrupted = onSignal(() => {
    screen.say('Stopping …');
    end.abort();
  });
  const log = await LogFile.open();
  try {
    const run = await runDemo(options, { log, screen, end });
    return tell(run, { log, screen, options });
  } catch (error) {
    if (interrupted()) return 130;
    screen.say(`The demo failed: ${(error as Error).message}${log.keep()}`);
    return 1;
  } finally {
    await log.close();
  }
}

function tell(
  { result, faults }: DemoRun,
  { log, screen, options }: { log: LogFile; screen: Screen; options: DemoArguments },
): number {
  const isGood = isExact(result) && faults.length === 0;
  const told = [tableOf(result), '', verdictOf(result), ...faults].join('\n');
  screen.say(`\n${told}${isGood ? '' : log.keep()}`);
  if (options.json) console.log(jsonOf(result));
  return isGood ? 0 : 1;
}
