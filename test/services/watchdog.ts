// Started by run-folder.ts, beside the run, as `node watchdog.js FOLDER` once the run has ended, however it ended.
import { clearAway } from './clear-away.js';

const folder = process.argv[2];
if (!folder) throw new Error('watchdog.js wants the run folder as its only argument.');
await clearAway(folder);
