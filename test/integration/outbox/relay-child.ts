import { DataSource } from 'typeorm';
import { OutboxRoom } from '#src/outbox/outbox-room.js';
import { TransactionScope } from '#src/transaction/transaction-scope.js';
import { onBrokers } from './on-brokers.js';

/** A relay, or a producer, in a process of its own that can be killed. */
export interface RelayPlan {
  readonly url: string;
  readonly schema: string;
  readonly brokers: string[];
  readonly relay: boolean;
  /** It kills or stops itself when Kafka has acknowledged a batch and its rows are not deleted yet, at the nth. */
  readonly signal?: { readonly name: 'SIGKILL' | 'SIGSTOP'; readonly at: number };
  /** Publishes these, each in its own transaction under itself as dedupeKey, and tells each. */
  readonly publish?: { readonly topic: string; readonly inputs: readonly string[] };
  /** It kills itself when the last of them is committed, or so many milliseconds after it has begun to store it. */
  readonly dies?: 'stored' | { readonly storingMs: number };
  readonly batch?: number;
  readonly leaseMs?: number;
}

if (process.send !== undefined) {
  process.once('disconnect', () => process.exit(1)); // the test is gone
  await run(JSON.parse(process.argv[2] ?? '') as RelayPlan);
}

async function run(plan: RelayPlan): Promise<void> {
  const { url, schema } = plan;
  const extra = { options: `-c search_path=${schema}` };
  const dataSource = await new DataSource({ type: 'postgres', url, schema, extra }).initialize();
  const scope = new TransactionScope(dataSource, { preparedStatements: true, emit: () => {} });
  scope.install();
  await scope.watchServer({ restarted: () => {}, unreplicated: () => {} });
  let batches = 0;
  const room = new OutboxRoom({
    isNeeded: true,
    relay: plan.relay,
    batch: plan.batch ?? 500,
    pollMs: 50,
    leaseMs: plan.leaseMs ?? 1500,
    attempts: 10,
    maxBytes: 1_000_000,
    dedupeRetentionMs: 600_000,
    scope,
    query: (sql, parameters) => scope.escape(() => dataSource.query(sql, parameters)),
    ...onBrokers(plan.brokers),
    emit: ({ name }) => {
      if (name !== 'relayed') return;
      batches += 1;
      process.send!('relayed');
      if (plan.signal?.at === batches) process.kill(process.pid, plan.signal.name);
    },
    log: (message) => process.send!(message),
  });
  room.open(schema, true);
  room.start();
  const inputs = plan.publish?.inputs ?? [];
  const { dies } = plan;
  for (const [at, input] of inputs.entries()) {
    const isLast = at === inputs.length - 1;
    if (isLast && typeof dies === 'object') setTimeout(die, dies.storingMs);
    await scope.run(() => room.publisher.publish(plan.publish!.topic, input, { key: 'k', dedupeKey: input }));
    if (isLast && dies === 'stored') die();
    process.send!(input);
  }
}

function die(): void {
  process.kill(process.pid, 'SIGKILL');
}
