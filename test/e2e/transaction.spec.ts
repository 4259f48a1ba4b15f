import { EMPTY, concatMap, delay, from, mergeMap, of, throwError, type Observable } from 'rxjs';
import { EntitySchema } from 'typeorm';
import { expect, test } from 'vitest';
import { until } from 'nestjs-kafka-idempotency/testing';
import { eventHandler, writeEffect, type TestEvent, type Tools } from './kit/handlers.js';
import { testService, testWorld } from './kit/in-test.js';
import type { RunningService } from './kit/service.js';
import type { World } from './kit/world.js';

const Effect = new EntitySchema<{ id?: string; eventId: string }>({
  name: 'effects',
  columns: {
    id: { type: 'bigint', primary: true, generated: 'increment' },
    eventId: { type: 'text', name: 'event_id' },
  },
});

interface Scene {
  readonly world: World;
  readonly service: RunningService;
  /** What others could see of `effects` and `processed_events` when the second attempt began. */
  readonly seenBySecond: { effects: string[]; processed: string[] } | undefined;
}

/** One event whose first attempt runs `work`; later ones just write the effect. */
async function firstAttempt(work: (event: TestEvent, tools: Tools) => unknown): Promise<Scene> {
  const world = await testWorld();
  const topic = await world.topic();
  let calls = 0;
  let seenBySecond: Scene['seenBySecond'];
  const service = await testService(world, {
    entities: [Effect],
    controllers: [
      eventHandler(topic, (event, tools) => {
        calls += 1;
        if (calls === 1) return work(event, tools);
        return (async () => {
          seenBySecond ??= { effects: await world.effects(), processed: await world.processed() };
          await writeEffect(tools, event.id);
        })();
      }),
    ],
  });
  await world.send(topic, { id: 'a' });
  await world.untilCommitted(topic, 1);
  return { world, service, seenBySecond };
}

async function expectFirstUndone({ world, service, seenBySecond }: Scene, error: object): Promise<void> {
  expect(service.named('failed')).toMatchObject([{ attempt: 1, error }]);
  expect(seenBySecond).toEqual({ effects: [], processed: [] });
  expect(await world.effects()).toEqual(['a']);
  expect(await world.processed()).toEqual(['test/a']);
}

const NOTHING_FAILED = { effects: ['a'], processed: ['test/a'] };
async function outcomeOf({ world, service }: Scene) {
  expect(service.failures).toEqual([]);
  return { effects: await world.effects(), processed: await world.processed() };
}

test.each(['COMMIT', 'ROLLBACK', 'COMMIT; BEGIN'])(
  'F31 a handler that sends %s by hand fails its attempt loudly, and nothing of it is committed',
  async (sql) => {
    const scene = await firstAttempt(async ({ id }, tools) => {
      await writeEffect(tools, id);
      await tools.dataSource.query(sql).catch(() => undefined);
    });
    await expectFirstUndone(scene, { code: 'HAND_MADE_COMMIT' });
  },
);

test('F31 a COMMIT behind another command reaches PostgreSQL: claim and effect are both in, and the attempt still fails loudly', async () => {
  const { world, service } = await firstAttempt(async ({ id }, tools) => {
    await writeEffect(tools, id);
    await tools.dataSource.query('SELECT 1; COMMIT').catch(() => undefined);
  });
  expect(service.named('failed')).toMatchObject([{ attempt: 1, error: { code: 'HAND_MADE_COMMIT' } }]);
  expect(service.named('duplicate')).toHaveLength(1);
  expect(await world.effects()).toEqual(['a']);
  expect(await world.processed()).toEqual(['test/a']);
});

const returning: Record<string, (write: () => Promise<void>) => Observable<unknown>> = {
  'an Observable that writes later': (write) => of(1).pipe(delay(50), mergeMap(write)),
  'an Observable of nothing': (write) => from(write()).pipe(mergeMap(() => EMPTY)),
  'an Observable whose last value writes': (write) => from([1, 2, 3]).pipe(concatMap((n) => (n < 3 ? of(n) : write()))),
};

test.each(Object.keys(returning))(
  'B09 claim and effect of a handler that returns %s share one transaction',
  async (what) => {
    const scene = await firstAttempt(({ id }, tools) => returning[what]?.(() => writeEffect(tools, id)));
    expect(await outcomeOf(scene)).toEqual(NOTHING_FAILED);
    expect(
      await scene.world.db.query('SELECT e.xmin::text = p.xmin::text AS same FROM effects e, processed_events p'),
    ).toEqual([{ same: true }]);
  },
);

test('B09 an Observable that fails after a write takes the write and the claim with it', async () => {
  const scene = await firstAttempt(({ id }, tools) =>
    from(writeEffect(tools, id)).pipe(mergeMap(() => throwError(() => new Error('no')))),
  );
  await expectFirstUndone(scene, { message: 'no' });
});

const violateUnique = async ({ dataSource }: Tools) => {
  await dataSource.query('CREATE TEMP TABLE twice (id integer PRIMARY KEY) ON COMMIT DROP');
  await dataSource.query('INSERT INTO twice VALUES (1)');
  await dataSource.query('INSERT INTO twice VALUES (1)');
};

test('B19 an error caught inside the handler still fails the attempt, and its cause is the first one', async () => {
  const scene = await firstAttempt(async (_, tools) => {
    await violateUnique(tools).catch(() => undefined);
  });
  await expectFirstUndone(scene, { code: 'TRANSACTION_ABORTED', cause: { code: '23505' } });
});

test('B19 a statement after a caught error fails the attempt, and the first error is told, not the one that followed from it', async () => {
  const scene = await firstAttempt(async ({ id }, tools) => {
    await violateUnique(tools).catch(() => undefined);
    await writeEffect(tools, id); // 25P02: the transaction is aborted
  });
  await expectFirstUndone(scene, { code: 'TRANSACTION_ABORTED', cause: { code: '23505' } });
});

test('B19 an error caught around a nested transaction leaves the rest of the work intact', async () => {
  const scene = await firstAttempt(async ({ id }, tools) => {
    await tools.dataSource.transaction(() => violateUnique(tools)).catch(() => undefined);
    await writeEffect(tools, id);
  });
  expect(await outcomeOf(scene)).toEqual(NOTHING_FAILED);
});

test('B44 after a failed attempt there is neither effect nor claim', async () => {
  const scene = await firstAttempt(async ({ id }, tools) => {
    await writeEffect(tools, id);
    throw new Error('after the write');
  });
  await expectFirstUndone(scene, { message: 'after the write' });
});

test("B44 what the handler's own dataSource.transaction() wrote goes with the attempt", async () => {
  const scene = await firstAttempt(async ({ id }, { dataSource }) => {
    await dataSource.transaction(async (manager) => {
      await manager.query('INSERT INTO effects (event_id) VALUES ($1)', [id]);
    });
    throw new Error('after the inner transaction');
  });
  await expectFirstUndone(scene, { message: 'after the inner transaction' });
});

test('B45 F30 a query that nobody awaits fails the attempt if it runs when the handler has ended', async () => {
  const scene = await firstAttempt(({ id }, tools) => {
    // save() has not sent anything yet when the handler returns.
    ['x', 'y'].forEach((suffix) => {
      tools.dataSource
        .getRepository(Effect)
        .save({ eventId: `${id}${suffix}` })
        .catch(() => undefined);
    });
  });
  await expectFirstUndone(scene, { code: 'QUERY_IN_FLIGHT' });
});

test('B45 a query that comes after the end is refused, names the handler, and writes nothing', async () => {
  let refused: Error | undefined;
  const scene = await firstAttempt(async ({ id }, tools) => {
    await writeEffect(tools, id);
    setTimeout(() => {
      writeEffect(tools, `${id}, late`).catch((error: Error) => (refused = error));
    }, 50);
  });
  await until(() => refused, { what: 'the refusal' });
  expect(refused).toMatchObject({ code: 'TRANSACTION_ENDED' });
  expect(refused?.message).toContain("consumer 'test'");
  expect(await outcomeOf(scene)).toEqual(NOTHING_FAILED);
});

const fiveAtOnce = (tools: Tools, each: (work: Promise<unknown>) => Promise<unknown>) =>
  Promise.all(
    [1, 2, 3, 4, 5].map((at) =>
      each(
        tools.dataSource.transaction(async (manager) => {
          await manager.query('INSERT INTO effects (event_id) VALUES ($1)', [`n${at}`]);
          if (at === 3) throw new Error('the third');
        }),
      ),
    ),
  );

test('B46 of five nested transactions at once one fails and is caught: the other four and the claim are committed', async () => {
  const scene = await firstAttempt((_, tools) => fiveAtOnce(tools, (work) => work.catch(() => undefined)));
  const { effects, processed } = await outcomeOf(scene);
  expect(effects.sort()).toEqual(['n1', 'n2', 'n4', 'n5']);
  expect(processed).toEqual(['test/a']);
});

test('B46 of five nested transactions at once one fails and is not caught: nothing of the attempt is committed', async () => {
  const scene = await firstAttempt((_, tools) => fiveAtOnce(tools, (work) => work));
  await expectFirstUndone(scene, { message: 'the third' });
});
