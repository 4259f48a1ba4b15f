import { Controller, Inject } from '@nestjs/common';
import { Payload } from '@nestjs/microservices';
import { DataSource } from 'typeorm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Idempotent } from 'nestjs-kafka-idempotency';
import { OnTopic, startService } from './kit/service.js';
import { World } from './kit/world.js';

let world: World;
beforeEach(async () => {
  world = await World.create();
});
afterEach(() => world.close());

test('an event sent twice under one id changes the database once', async () => {
  const topic = await world.topic();

  @Controller()
  class Handlers {
    constructor(@Inject(DataSource) private readonly dataSource: DataSource) {}

    @OnTopic(topic)
    @Idempotent({ consumer: 'test' })
    async handle(@Payload() event: { id: string }) {
      await this.dataSource.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
    }
  }

  await world.send(topic, { id: 'a' }, { id: 'a' }, { id: 'b' });
  const service = await startService(world, { controllers: [Handlers] });
  await world.untilCommitted(topic, 3);
  expect(await world.effects()).toEqual(['a', 'b']);
  expect(await world.processed()).toEqual(['test/a', 'test/b']);
  expect(service.named('duplicate')).toHaveLength(1);
  await service.close();
});
