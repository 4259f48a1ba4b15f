import { writeFileSync } from 'node:fs';
import { findOrStartServices } from '../services/services.js';
import { readArguments, USAGE, type BenchArguments } from './arguments.js';
import { compare } from './compare.js';
import { CONTENDERS } from './contenders.js';
import { grow, GROWTH_SERVICES } from './growth.js';
import { placeOf } from './header.js';
import { weigh } from './memory.js';

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
    await run(given);
}

async function run(given: Extract<BenchArguments, { kind: 'table' | 'growth' | 'memory' }>): Promise<void> {
  const services = await findOrStartServices(given.kind === 'growth' ? GROWTH_SERVICES : {});
  try {
    console.log(await placeOf(services));
    const figures =
      given.kind === 'table'
        ? await compare(given, services)
        : given.kind === 'growth'
          ? await grow(given, services)
          : await weigh(given, services);
    if (given.json !== undefined) writeFileSync(given.json, `${JSON.stringify(figures, null, 2)}\n`);
  } finally {
    await services.stop();
  }
}
