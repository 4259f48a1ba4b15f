import type { QueryRunner } from 'typeorm';
import { onTestFinished } from 'vitest';
import { startPostgresProxy, type PostgresProxy } from 'nestjs-kafka-idempotency/testing';
import { startService, type Place, type RunningService, type ServiceOptions } from './service.js';
import { Worker } from './worker.js';
import { World } from './world.js';

// What a test starts here ends with the test, the last one first, also when the test fails.

export async function testWorld(services?: { brokers?: string[]; databaseUrl?: string }): Promise<World> {
  const world = await World.create(services);
  onTestFinished(() => world.close());
  return world;
}

export async function testService(place: Place, options: ServiceOptions): Promise<RunningService> {
  const service = await startService(place, options);
  onTestFinished(() => service.close());
  return service;
}

export function testWorker(place: Place, plan: ConstructorParameters<typeof Worker>[1], execArgv?: string[]): Worker {
  const worker = new Worker(place, plan, execArgv);
  onTestFinished(() => worker.kill());
  return worker;
}

/** A database session of somebody else. What it left open is rolled back. */
export async function testSession(world: World): Promise<QueryRunner> {
  const session = world.db.createQueryRunner();
  await session.connect();
  onTestFinished(async () => {
    if (session.isReleased) return;
    if (session.isTransactionActive) await session.rollbackTransaction();
    await session.release();
  });
  return session;
}

export async function testProxy(world: World): Promise<PostgresProxy> {
  const proxy = await startPostgresProxy({ target: world.databaseUrl });
  onTestFinished(() => proxy.close());
  return proxy;
}
