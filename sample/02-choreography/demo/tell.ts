// Preloaded into the services of the demo, which know nothing of it: passes on what the package tells on its channels.
import { channel } from 'node:diagnostics_channel';
import type { IdempotencyEvent } from 'nestjs-kafka-idempotency';

export type ServiceMessage =
  | { readonly kind: 'assigned'; readonly partitions: number }
  | { readonly kind: 'processed' }
  | { readonly kind: 'duplicate' };

for (const name of ['assigned', 'processed', 'duplicate'] as const)
  channel(`nestjs-kafka-idempotency:${name}`).subscribe((message) => {
    const event = message as IdempotencyEvent;
    if (event.name === 'assigned') tell({ kind: 'assigned', partitions: event.partitions.length });
    else if (event.name === name) tell({ kind: name as 'processed' | 'duplicate' });
  });

function tell(message: ServiceMessage): void {
  process.send?.(message);
}
