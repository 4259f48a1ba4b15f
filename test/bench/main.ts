import { writeFileSync } from 'node:fs';
import { findOrStartServices, type Services } from '../services/services.js';
import { readArguments, USAGE, type BenchArguments } from './arguments.js';
import { compare } from './compare.js';
import { CONTENDERS } from './contenders.js';
import { grow, GROWTH_SERVICES } from './growth.js';
import { placeOf } from './header.js';
import { weigh } from './memory.js';
import { measureOutbox } from './outbox.js';

type Measured = Exclude<BenchArguments, { kind: 'help' | 'wrong' }>;

const given = readArguments(process.argv.slice(2), Object.keys(CONTENDERS));
switch (given.kind) {
  case 'help':
    console.log(USAGE);
    break;
  case 'wrong':
    console.error(given.message);
    process.exitCode = 2;
    break;
  case 'table':
  case 'growth':
  case 'memory':
  case 'outbox':
    await run(given);
}

async function run(given: Measured): Promise<void> {
  const services = await findOrStartServices(given.kind === 'growth' ? GROWTH_SERVICES : {});
  try {
    console.log(await placeOf(services));
    const figures = await measure(given, services);
    if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify(figures, null, 2)}\n`);
  } finally {
    await services.stop();
  }
}

function measure(given: Measured, services: Services): Promise<object> {
  switch (given.kind) {
    case 'table':
      return compare(given, services);
    case 'growth':
      return grow(given, services);
    case 'memory':
      return weigh(given, services);
    case 'outbox':
      return measureOutbox(given, services);
  }
}
