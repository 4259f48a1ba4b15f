import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Type } from '@nestjs/common';
import { eventHandler, type TestEvent } from './handlers.js';
import type { RunningService } from './service.js';
import type { World } from './world.js';

/** An event that knows its place: the `seq`th of its partition. */
export interface Numbered extends TestEvent {
  readonly partition: number;
  readonly seq: number;
}

/** Events `partition-seq`, ascending in each partition. */
export function numbered(partition: number, each: number, from = 0) {
  return Array.from({ length: each }, (_, at) => ({
    id: `${partition}-${from + at}`,
    partition,
    payload: { partition, seq: from + at },
  }));
}

export async function sendNumbered(world: World, topic: string, partitions: number, each: number): Promise<void> {
  for (let partition = 0; partition < partitions; partition += 1) await world.send(topic, ...numbered(partition, each));
}

/** A handler that writes where its event stands. `ms`: how long it lives on then. */
export function numberedHandler(topic: string, ms: number | (() => number)): Type {
  return eventHandler<Numbered>(topic, async ({ id, partition, seq }, { dataSource }) => {
    await dataSource.query('INSERT INTO effects (event_id, key, seq) VALUES ($1, $2, $3)', [id, partition, seq]);
    await sleep(typeof ms === 'number' ? ms : ms());
  });
}

/** `each`: how many in every partition, or in each of them. */
export async function expectOnceInOrder(
  world: World,
  partitions: number,
  each: number | readonly number[],
): Promise<void> {
  const rows = await world.db.query<{ key: string; seq: number }[]>('SELECT key, seq FROM effects ORDER BY id');
  for (let partition = 0; partition < partitions; partition += 1) {
    const seqs = rows.filter(({ key }) => key === String(partition)).map(({ seq }) => seq);
    const length = typeof each === 'number' ? each : each[partition];
    expect(seqs, `partition ${partition}`).toEqual(Array.from({ length: length ?? 0 }, (_, seq) => seq));
  }
}

/** Records that a service began on a partition it knew it had lost. */
export function startsOnLostPartitions({ events }: Pick<RunningService, 'events'>): string[] {
  const lost = new Set<number>();
  const starts: string[] = [];
  for (const event of events) {
    if (event.name === 'revoked') event.partitions.forEach(({ partition }) => lost.add(partition));
    if (event.name === 'assigned') event.partitions.forEach(({ partition }) => lost.delete(partition));
    if (event.name === 'received' && lost.has(event.partition)) starts.push(`${event.partition}@${event.offset}`);
  }
  return starts;
}
