import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../services/package-root.js';
import { violations, type Package } from './rules.js';
import { importsIn, importsOf } from './source-imports.js';

const root = packageRoot();
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Package;
const imports = importsOf(join(root, 'src'));

it('src/ keeps to the arrows of ARCHITECTURE.md', () => {
  expect(imports.length).toBeGreaterThan(100);
  expect(violations(imports, manifest)).toEqual([]);
});

/** Each of these lines, added to src/, has to be found. */
describe('is broken by', () => {
  it.each([
    // The arrows
    ['consumer/lane.ts', `import { Inbox } from '../inbox/inbox.js'`, 'consumer may import transaction'],
    ['consumer/lane.ts', `import type { IdSource } from '../handler/identity/id-source.js'`, 'consumer may import'],
    ['handler/idempotency.interceptor.ts', `import { Lane } from '../consumer/lane.js'`, 'handler may import inbox'],
    [
      'handler/idempotency.interceptor.ts',
      `import type { Lane } from '../consumer/lane.js'`,
      'handler may import inbox',
    ],
    ['inbox/inbox.ts', `import { header } from '../handler/identity/header.js'`, 'inbox may import'],
    ['schema/migrations.ts', `import { Inbox } from '../inbox/inbox.js'`, 'schema may import'],
    ['observability/idempotency-health.ts', `import { Lane } from '../consumer/lane.js'`, 'observability may import'],
    ['parking/parking.ts', `import { Outbox } from '../outbox/outbox.js'`, 'parking may import'],
    ['inbox/inbox.ts', `import { StartupChecks } from '../startup-checks.js'`, 'inbox may import'],
    ['inbox/inbox.ts', `import { main } from '../cli/main.js'`, 'inbox may import'],
    [
      'transaction/open-transaction.ts',
      `import { partitionKey } from '../kafka/positions.js'`,
      'transaction may import shared',
    ],
    [
      'transaction/open-transaction.ts',
      `import type { Inbox } from '../inbox/inbox.js'`,
      'transaction may import shared',
    ],
    ['kafka/positions.ts', `import { defaults } from '../options/defaults.js'`, 'kafka may import shared'],
    ['shared/errors.ts', `import { defaults } from '../options/defaults.js'`, 'shared imports nothing of ours'],
    [
      'shared/errors.ts',
      `import type { IdempotencyOptions } from '../idempotency.options.js'`,
      'shared imports nothing of ours',
    ],
    [
      'options/check.ts',
      `import { Idempotent } from '../handler/idempotent.decorator.js'`,
      'options may import shared',
    ],
    ['options/check.ts', `import { value } from '../idempotency.options.js'`, 'options may import shared'],
    ['idempotency.options.ts', `import { Lane } from './consumer/lane.js'`, 'top may import'],
    ['util/text.ts', `import { IdempotencyError } from '../shared/errors.js'`, 'util is no room of ARCHITECTURE.md'],
    ['testing/kit.ts', `import { page } from '../dashboard/page.js'`, 'testing may import'],
    // However it is written
    ['consumer/lane.ts', `export { Inbox } from '../inbox/inbox.js'`, 'consumer may import'],
    ['consumer/lane.ts', `const inbox = await import('../inbox/inbox.js')`, 'consumer may import'],
    ['consumer/lane.ts', `const inbox = require('../inbox/inbox.js')`, 'consumer may import'],
    ['consumer/lane.ts', `let inbox: import('../inbox/inbox.js').Inbox`, 'consumer may import'],
    ['consumer/lane.ts', `import '../inbox/inbox.js'`, 'consumer may import'],
    // Tests
    ['shared/duration.ts', `import { until } from '../../test/services/until.js'`, 'stands outside src/'],
    ['shared/duration.ts', `import { expect } from 'vitest'`, 'neither a dependency nor a peer'],
    ['shared/duration.ts', `import { header } from 'nestjs-kafka-idempotency'`, 'neither a dependency nor a peer'],
    // The seams
    ['consumer/lane.ts', `import { logLevel } from 'kafkajs'`, 'only kafka/ may'],
    ['consumer/lane.ts', `import { type Kafka, logLevel } from 'kafkajs'`, 'only kafka/ may'],
    ['transaction/own-runner.ts', `import { DataSource } from 'typeorm'`, 'imports values of typeorm'],
    // Package roots
    [
      'handler/handler-catalogue.ts',
      `import { x } from '@nestjs/core/injector/module.js'`,
      'only @nestjs/core itself is public',
    ],
    ['handler/handler-catalogue.ts', `import type { x } from 'rxjs/internal/types'`, 'only rxjs itself is public'],
    ['shared/duration.ts', `import { join } from 'path'`, 'write node:path'],
    // What an entry point may not load
    ['consumer/lane.ts', `import { trace } from '@opentelemetry/api'`, 'src/index.ts reaches it'],
    ['observability/idempotency-health.ts', `import type { x } from '@nestjs/terminus'`, 'src/index.ts reaches it'],
    ['idempotency.module.ts', `import { kit } from './testing/kit.js'`, 'src/index.ts reaches it'],
    ['schema/migrations.ts', `import { Logger } from '@nestjs/common'`, './schema loads no Nest'],
  ])('%s: %s', (file, line, expected) => {
    const found = violations([...imports, ...importsIn(file, line)], manifest);
    expect(found).toContainEqual(expect.stringContaining(`src/${file}:1 `));
    expect(found.join('\n')).toContain(expected);
  });
});

/** And these must not be. */
describe('is kept by', () => {
  it.each([
    ['consumer/lane.ts', `import type { Kafka } from 'kafkajs'`],
    ['consumer/lane.ts', `import { type Kafka } from 'kafkajs'`],
    ['transaction/own-runner.ts', `import type { DataSource } from 'typeorm'`],
    ['handler/idempotency.interceptor.ts', `import { Inbox } from '../inbox/inbox.js'`],
    ['handler/idempotency.interceptor.ts', `import type { HandlerOptions } from '../idempotency.options.js'`],
    ['handler/idempotency.interceptor.ts', `import { readOptions } from '../options/read.js'`],
    ['cli/main.ts', `import { Inbox } from '../inbox/inbox.js'`],
    ['shared/duration.ts', `import { join } from 'node:path'`],
    ['observability/otel/tracing.ts', `import { Logger } from '@nestjs/common'`],
  ])('%s: %s', (file, line) => {
    expect(violations([...imports, ...importsIn(file, line)], manifest)).toEqual([]);
  });
});
