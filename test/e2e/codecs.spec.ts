import { CompressionCodecs, CompressionTypes } from 'kafkajs';
import { currentDelivery, IdempotencyHealth, type ErrorCode } from 'nestjs-kafka-idempotency';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import { KeptLog } from './kit/log.js';
import type { RunningService, ServiceOptions } from './kit/service.js';
import { sendZstd, storedZstd } from './kit/stored-zstd.js';

/** Values are no JSON here; the event id is the header's. */
const effectHandler = (topic: string) =>
  eventHandler<string>(topic, (_, tools) => writeEffect(tools, currentDelivery()!.eventId!), { decode: 'text' });

const message = (id: string, partition: number, value = id) => ({ value, partition, headers: { 'event-id': id } });

async function untilNotReady(service: RunningService, code: ErrorCode): Promise<string> {
  let detail: string | undefined;
  const health = service.app.get(IdempotencyHealth);
  await until(
    async () => {
      const { ready, reasons } = await health.check();
      detail = reasons.find((reason) => reason.code === code)?.detail;
      return !ready && detail !== undefined;
    },
    { what: `not ready because of ${code}`, timeoutMs: 5000 },
  );
  return detail!;
}

test('B69 a batch of a codec nobody gave stops its partition in front of it, and goes on once the codec is given', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.sendRaw(topic, message('a0', 0));
  await sendZstd(world, topic, [message('a1', 0), message('a2', 0)]);
  await world.sendRaw(topic, message('a3', 0), message('b0', 1));
  const logger = new KeptLog();
  const without = await testService(world, { controllers: [effectHandler(topic)], logger });
  expect((await world.untilEffects(2)).toSorted()).toEqual(['a0', 'b0']);
  const detail = await untilNotReady(without, 'CODEC_MISSING');
  expect(detail).toContain(`The batch at offset 1 of ${topic}[0] cannot be read`);
  expect(detail).toContain('kafka.codecs.zstd');
  expect(logger.with(detail)).toMatchObject([{ level: 'error' }]);
  await world.sendRaw(topic, message('b1', 1));
  await world.untilCommitted(topic, 2, 1);
  expect((await without.app.get(IdempotencyHealth).check()).live).toBe(true);
  await without.close();
  expect(await world.committed(topic, 0)).toBe(1n);

  const given = { kafka: { codecs: { zstd: storedZstd } } };
  await testService(world, { controllers: [effectHandler(topic)], options: given });
  await world.untilCommitted(topic, 4, 0);
  expect(await world.effects()).toHaveLength(6);
  expect((await world.effects()).filter((id) => id.startsWith('a'))).toEqual(['a0', 'a1', 'a2', 'a3']);
});

test('F44 a small batch of 50 MB of zeros takes no such memory, and stops its partition by the name of the limit', async () => {
  const world = await testWorld();
  const topic = await world.topic(2);
  await world.producer.send({
    topic,
    acks: -1,
    compression: CompressionTypes.GZIP,
    messages: [message('zeros', 0, '0'.repeat(50_000_000))],
  });
  await world.sendRaw(topic, message('a1', 0), message('b0', 1));
  const service: ServiceOptions = { controllers: [effectHandler(topic)] };
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const sampling = setInterval(() => (most = Math.max(most, process.memoryUsage().arrayBuffers - before)), 1);
  const limited = await testService(world, { ...service, options: { limits: { batchBytes: 5_000_000 } } });
  const detail = await untilNotReady(limited, 'BATCH_TOO_LARGE');
  clearInterval(sampling);
  expect(detail).toContain(`The batch at offset 0 of ${topic}[0] cannot be read`);
  expect(detail).toContain('limits.batchBytes (5000000)');
  expect(most).toBeLessThan(20_000_000);
  expect(await world.untilEffects(1)).toEqual(['b0']);
  await limited.close();
  expect(await world.committed(topic, 0)).toBe(0n);

  await testService(world, { ...service, options: { limits: { batchBytes: 60_000_000 } } });
  expect(await world.untilEffects(3)).toEqual(['b0', 'zeros', 'a1']);
});

test('a Kafka client that a handler makes decodes as kafkajs does: nobody there would know our markers', async () => {
  const world = await testWorld();
  const topic = await world.topic();
  const seen: string[] = [];
  const handler = eventHandler(topic, () => {
    try {
      CompressionCodecs[CompressionTypes.ZSTD]();
    } catch (error) {
      seen.push((error as Error).message);
    }
  });
  await testService(world, { controllers: [handler] });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  expect(seen).toEqual(['ZSTD compression not implemented']);
});
