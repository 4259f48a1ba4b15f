import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { builtinModules } from 'node:module';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { idempotencyMigrations } from '#src/schema/index.js';
import { createOutbox, OUTBOX_MESSAGES_SHAPE } from '#src/schema/outbox.js';
import { createParkedEvents, PARKED_EVENTS_SHAPE } from '#src/schema/parked-events.js';
import { createProcessedEvents, PROCESSED_EVENTS_SHAPE } from '#src/schema/processed-events.js';
import { createRunningRecords } from '#src/schema/running-records.js';
import { IdempotencyError } from '#src/shared/errors.js';
import { packageRoot } from '../../services/package-root.js';

const root = packageRoot();

describe('the SQL file', () => {
  it.each([
    [PROCESSED_EVENTS_SHAPE.sqlFile, createProcessedEvents('processed_events')],
    [PARKED_EVENTS_SHAPE.sqlFile, [...createParkedEvents('parked_events'), ...createRunningRecords('running_records')]],
    [
      OUTBOX_MESSAGES_SHAPE.sqlFile,
      createOutbox({
        messages: 'outbox_messages',
        events: 'outbox_events',
        shards: 'outbox_shards',
        dedupe: 'outbox_dedupe',
      }),
    ],
  ])('%s holds the statements of its migration, word for word', async (file, migration) => {
    const text = await readFile(join(root, file), 'utf8');
    const statements = text.replace(/^--.*\n/gm, '').trim();
    expect(statements).toBe(`${migration.join(';\n\n')};`);
  });
});

describe('idempotencyMigrations()', () => {
  it('gives classes with names that never change: they are what TypeORM knows them by', () => {
    expect(idempotencyMigrations().map((Migration) => new Migration().name)).toEqual([
      'NestjsKafkaIdempotency1764288000000',
      'NestjsKafkaIdempotency1764374400000',
      'NestjsKafkaIdempotency1764460800000',
    ]);
    expect(idempotencyMigrations({ schema: 'app' }).map((Migration) => Migration.name)).toEqual([
      'NestjsKafkaIdempotency1764288000000',
      'NestjsKafkaIdempotency1764374400000',
      'NestjsKafkaIdempotency1764460800000',
    ]);
  });

  it.each(['a"b', 'with-hyphen', '', '1a', 'x'.repeat(64), 5])('refuses the schema %j where it is called', (schema) => {
    const call = () => idempotencyMigrations({ schema: schema as string });
    expect(call).toThrow(IdempotencyError);
    expect(call).toThrow(/OPTIONS_INVALID/);
  });
});

describe('the sub-path ./schema', () => {
  it('loads nothing but typeorm and Node', async () => {
    const seen = new Set<string>();
    const packages = new Set<string>();
    await follow(join(root, 'dist/esm/schema/index.js'), seen, packages);
    expect(seen.size).toBeGreaterThan(3);
    expect([...packages].filter((name) => !name.startsWith('node:') && !builtinModules.includes(name))).toEqual([
      'typeorm',
    ]);
  });
});

async function follow(file: string, seen: Set<string>, packages: Set<string>): Promise<void> {
  if (seen.has(file)) return;
  seen.add(file);
  expect(existsSync(file)).toBe(true);
  for (const [, specifier] of (await readFile(file, 'utf8')).matchAll(/(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g)) {
    if (specifier!.startsWith('.')) await follow(join(dirname(file), specifier!), seen, packages);
    else packages.add(specifier!);
  }
}
