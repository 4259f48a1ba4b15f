import { setTimeout as sleep } from 'node:timers/promises';
import { EventPublisher, TransactionScope } from 'nestjs-kafka-idempotency';
import { onRelayed, startRelay, type RelaySetup } from './relay.js';
import { eventOf, KEYS, VALUE_BYTES } from './workload.js';

export type OutboxSetup = RelaySetup & {
  readonly topic: string;
} & (
    | { readonly measures: 'latency'; readonly events: number }
    /** Into so many equal parts the drain of the backlog is divided. */
    | { readonly measures: 'drain'; readonly backlog: number; readonly parts: number }
  );

/** Milliseconds from each event's commit to Kafka's acknowledgement. */
export type Latencies = readonly number[];

/** From the first message to the end of each part: milliseconds, the processor's too, and the largest resident set within the part. */
export interface Drain {
  readonly rssBeforeBytes: number;
  readonly parts: readonly { readonly ms: number; readonly cpuMs: number; readonly peakRssBytes: number }[];
}

const SETTLED_MS = 3000;
const WARM_UP = 100;

// The process that publishes and relays, started by outbox.ts over IPC.
process.once('message', (setup: OutboxSetup) => {
  void run(setup);
});

async function run(setup: OutboxSetup): Promise<void> {
  const result = await (setup.measures === 'latency' ? latencies(setup) : drain(setup));
  process.send!(result, () => process.disconnect());
}

async function latencies(setup: OutboxSetup & { measures: 'latency' }): Promise<Latencies> {
  let relayed: () => void = () => {};
  onRelayed(() => relayed());
  const app = await startRelay(setup);
  const [scope, publisher] = [app.get(TransactionScope), app.get(EventPublisher)];
  await sleep(SETTLED_MS); // what starting has left to do is not measured
  const found: number[] = [];
  for (let event = 0; event < setup.events + WARM_UP; event += 1) {
    const isSent = new Promise<void>((resolve) => (relayed = resolve));
    const value = eventOf(`event-${event}`, VALUE_BYTES);
    await scope.run(() => publisher.publish(setup.topic, value, { key: `key-${event % KEYS}` }));
    const committedAt = performance.now();
    await isSent;
    if (event >= WARM_UP) found.push(performance.now() - committedAt);
    await sleep(20 + Math.random() * 40); // idle again, and in step with nothing
  }
  await app.close();
  return found;
}

async function drain(setup: OutboxSetup & { measures: 'drain' }): Promise<Drain> {
  const { backlog, parts } = setup;
  const rssBeforeBytes = process.memoryUsage.rss();
  const ended: { ms: number; cpuMs: number; peakRssBytes: number }[] = [];
  let [sent, peakRssBytes, startedAt] = [0, 0, 0];
  let cpu: NodeJS.CpuUsage | undefined;
  const isDrained = new Promise<void>((resolve) => {
    onRelayed((messages) => {
      if (cpu === undefined) [startedAt, cpu] = [performance.now(), process.cpuUsage()]; // what came with the first send is not timed
      sent += messages;
      peakRssBytes = Math.max(peakRssBytes, process.memoryUsage.rss());
      if (sent < (backlog / parts) * (ended.length + 1)) return;
      const { user, system } = process.cpuUsage(cpu);
      ended.push({ ms: performance.now() - startedAt, cpuMs: (user + system) / 1000, peakRssBytes });
      peakRssBytes = 0;
      if (sent >= backlog) resolve();
    });
  });
  const app = await startRelay(setup);
  await isDrained;
  await app.close();
  return { rssBeforeBytes, parts: ended };
}
