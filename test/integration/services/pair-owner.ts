// A process that starts a pair, says what it started, and stays until it is killed or its standard input ends.
import { RunFolder } from '../../services/run-folder.js';
import { startEmbeddedKafka, startEmbeddedPostgres } from '../../services/services.js';

const runFolder = await RunFolder.open();
const postgres = await startEmbeddedPostgres({ runFolder });
const kafka = await startEmbeddedKafka({ runFolder });
const facts = { folder: runFolder.path, pids: [postgres.pid, kafka.nodes[0]?.pid], watchdog: runFolder.watchdogPid };
process.stdout.write(`${JSON.stringify(facts)}\n`);
process.stdin.resume();
