import { builtinModules } from 'node:module';
import type { SourceImport } from './source-imports.js';

// The arrows of ARCHITECTURE.md. A room is a folder of src/; the files beside the rooms are the top, and so are cli, dashboard and testing.
const TOP_ROOMS = new Set(['cli', 'dashboard', 'testing']);
const MIDDLE = new Set(['consumer', 'handler', 'inbox', 'parking', 'outbox', 'schema', 'observability']);
const BOTTOM = new Set(['transaction', 'kafka', 'shared', 'options']);
const OPTIONS_INTERFACE = 'idempotency.options.ts';

/** Packages a user may not have: only the sub-path that is made for one may reach it. */
const OPTIONAL_PEERS = ['@opentelemetry/api', 'prom-client', '@nestjs/terminus'];

export interface Package {
  readonly dependencies?: Record<string, string>;
  readonly peerDependencies?: Record<string, string>;
}

/** What breaks the rules, one readable line each; empty if nothing does. */
export function violations(imports: readonly SourceImport[], manifest: Package): string[] {
  return [
    ...imports.flatMap((one) => [arrow(one), seam(one), packageRoot(one), declared(one, manifest)].map(at(one))),
    ...reachable(imports),
  ].filter((line) => line !== undefined);
}

function at({ from, line }: SourceImport): (rule: string | undefined) => string | undefined {
  return (rule) => (rule === undefined ? undefined : `src/${from}:${line} ${rule}`);
}

function arrow(one: SourceImport): string | undefined {
  if (one.file === undefined) return undefined;
  if (one.file.startsWith('../'))
    return `imports ${one.specifier}, which stands outside src/: nothing of ours that is shipped may`;
  const from = roomOf(one.from);
  const to = roomOf(one.file);
  return isAllowed(one, from, to) ? undefined : `imports ${one.file}: ${arrowsOf(from)}`;
}

function isAllowed({ from: importer, file, isType }: SourceImport, from: string, to: string): boolean {
  if (importer === OPTIONS_INTERFACE) return isType; // an interface, and so are the things it is made of
  if (from === to) return true;
  if (file === OPTIONS_INTERFACE && isType && from !== 'shared')
    return from === 'options' || MIDDLE.has(from) || isTop(from);
  if (isTop(from)) return !isTop(to) || to === 'top';
  if (from === 'handler' && to === 'inbox') return true;
  if (MIDDLE.has(from)) return BOTTOM.has(to);
  return BOTTOM.has(from) && from !== 'shared' && to === 'shared';
}

function arrowsOf(room: string): string {
  if (isTop(room)) return `${room} may import the rooms below it and the top files`;
  if (room === 'handler') return 'handler may import inbox, transaction, kafka, shared, options';
  if (MIDDLE.has(room)) return `${room} may import transaction, kafka, shared, options`;
  if (room === 'options') return `options may import shared, and types of ${OPTIONS_INTERFACE}`;
  if (room === 'shared') return 'shared imports nothing of ours';
  return BOTTOM.has(room) ? `${room} may import shared` : `${room} is no room of ARCHITECTURE.md`;
}

/** Another client can take the place of kafkajs while only kafka/ uses its values; TypeORM's are found on the DataSource the user made. */
function seam({ from, specifier, isType }: SourceImport): string | undefined {
  if (isType) return undefined;
  if (specifier === 'kafkajs' && roomOf(from) !== 'kafka')
    return 'imports values of kafkajs: only kafka/ may, types elsewhere';
  if (specifier === 'typeorm' && roomOf(from) === 'transaction')
    return 'imports values of typeorm: transaction/ works on the DataSource it is given, of whatever TypeORM version';
  return undefined;
}

function packageRoot({ specifier }: SourceImport): string | undefined {
  if (isOurs(specifier)) return undefined;
  if (specifier.startsWith('node:')) return undefined;
  if (builtinModules.includes(specifier)) return `imports ${specifier}: write node:${specifier}`;
  const root = nameOf(specifier);
  return specifier === root ? undefined : `imports ${specifier}: only ${root} itself is public`;
}

function declared({ specifier }: SourceImport, { dependencies, peerDependencies }: Package): string | undefined {
  if (isOurs(specifier) || specifier.startsWith('node:')) return undefined;
  const name = nameOf(specifier);
  return name in { ...dependencies, ...peerDependencies }
    ? undefined
    : `imports ${specifier}, which is neither a dependency nor a peer in package.json`;
}

/** What an entry point may not load, however far away it stands. */
function reachable(imports: readonly SourceImport[]): string[] {
  return [
    ...reachableFrom('index.ts', imports)
      .filter(
        ({ specifier, file }) => OPTIONAL_PEERS.includes(nameOf(specifier)) || (file ?? '').startsWith('testing/'),
      )
      .map(
        (one) =>
          `src/${one.from}:${one.line} imports ${one.specifier}, and src/index.ts reaches it: only a sub-path may`,
      ),
    ...reachableFrom(
      'schema/index.ts',
      imports.filter(({ isType }) => !isType),
    )
      .filter(({ specifier }) => specifier.startsWith('@nestjs/') || specifier === 'kafkajs')
      .map(
        (one) =>
          `src/${one.from}:${one.line} imports ${one.specifier}, and src/schema/index.ts reaches it: ./schema loads no Nest`,
      ),
  ];
}

function reachableFrom(entry: string, imports: readonly SourceImport[]): SourceImport[] {
  const seen = new Set([entry]);
  // A Set is walked in the order of insertion, with what is added on the way.
  for (const file of seen)
    for (const one of imports) if (one.from === file && one.file !== undefined) seen.add(one.file);
  return imports.filter(({ from }) => seen.has(from));
}

function roomOf(file: string): string {
  return file.includes('/') ? file.slice(0, file.indexOf('/')) : 'top';
}

function isTop(room: string): boolean {
  return room === 'top' || TOP_ROOMS.has(room);
}

function isOurs(specifier: string): boolean {
  return specifier.startsWith('.');
}

function nameOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}
