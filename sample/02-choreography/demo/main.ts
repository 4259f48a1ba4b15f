// npm run demo:choreography: orders, payments and shipments over three topics and two services that are killed all the time.
import { LogFile } from '../../demo/log-file.js';
import { onSignal } from '../../demo/on-signal.js';
import { readArguments, USAGE, type ReadArguments } from './arguments.js';
import { isExact, jsonOf, tableOf, verdictOf } from './report.js';
import { runChoreography } from './run.js';

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
    process.exitCode = await demo(read);
}

/** Gives the exit status. */
async function demo({ orders, json }: Extract<ReadArguments, { kind: 'run' }>): Promise<number> {
  const say = (text: string) => (json ? console.error(text) : console.log(text));
  const end = new AbortController();
  const interrupted = onSignal(() => {
    say('Stopping …');
    end.abort();
  });
  const log = await LogFile.open();
  try {
    const { result, faults } = await runChoreography(orders, { log, say, end });
    const isGood = isExact(result) && faults.length === 0;
    say(`\n${[tableOf(result), '', verdictOf(result), ...faults].join('\n')}${isGood ? '' : log.keep()}`);
    if (json) console.log(jsonOf(result));
    return isGood ? 0 : 1;
  } catch (error) {
    if (interrupted()) return 130;
    say(`The demo failed: ${(error as Error).message}${log.keep()}`);
    return 1;
  } finally {
    await log.close();
  }
}
