// Preloaded into a process: it kills itself when the package tells the nth event of a name, at that very point. DIE_AT: `name@nth`.
import { channel } from 'node:diagnostics_channel';

const [name, nth] = (process.env['DIE_AT'] ?? '').split('@');
let told = 0;
if (name !== '')
  channel(`nestjs-kafka-idempotency:${name}`).subscribe(() => {
    if (++told === Number(nth)) process.kill(process.pid, 'SIGKILL');
  });
