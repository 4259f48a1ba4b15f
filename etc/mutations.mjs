// The mutation check: takes one guard out at a time, in a copy of the tree, and runs the tests that must go red.
//   node etc/mutations.mjs             all of them
//   node etc/mutations.mjs --only claim --only "commit check"
//   node etc/mutations.mjs --list      what there is
// A guard whose tests stay green is not tested: exit status 1. The tree itself is never changed.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { MUTATIONS } from './mutation-table.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const { values } = parseArgs({
  options: { only: { type: 'string', multiple: true, default: [] }, list: { type: 'boolean', default: false } },
});
const unknown = values.only.filter((name) => MUTATIONS.every((mutation) => mutation.name !== name));
if (unknown.length > 0) {
  console.error(`--only ${unknown.join(', ')} is no mutation; see --list.`);
  process.exit(2);
}
const chosen = MUTATIONS.filter(({ name }) => values.only.length === 0 || values.only.includes(name));
if (values.list) {
  for (const { name, file, without } of chosen) console.log(`${name.padEnd(22)} ${file}: ${without}`);
  process.exit(0);
}

const scratch = mkdtempSync(join(realpathSync(tmpdir()), 'mutations-'));
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));
copyTree();
build();

const verdicts = chosen.map((mutation) => ({ ...mutation, verdict: tried(mutation) }));
console.log();
for (const { name, without, verdict } of verdicts)
  console.log(`  ${verdict.padEnd(8)} ${name.padEnd(22)} without: ${without}`);
process.exitCode = verdicts.every(({ verdict }) => verdict === 'red') ? 0 : 1;

/** red: the tests noticed. green: they did not. broken: they fail without the mutation, or it cannot be made. */
function tried({ name, file, find, replace, project, tests }) {
  const path = join(scratch, file);
  const original = existsSync(path) ? readFileSync(path, 'utf8') : '';
  if (original.split(find).length !== 2) {
    console.error(`${name}: ${file} does not hold this text exactly once:\n${find}`);
    return 'broken';
  }
  console.log(`${name}: without the mutation …`);
  if (run('npx', ['vitest', 'run', '--project', project, ...tests]) !== 0) return 'broken';
  writeFileSync(
    path,
    original.replace(find, () => replace),
  );
  try {
    if (run('npx', ['tsc', '-p', 'tsconfig.json']) !== 0) return 'broken';
    console.log(`${name}: with it …`);
    return run('npx', ['vitest', 'run', '--project', project, ...tests]) === 0 ? 'green' : 'red';
  } finally {
    writeFileSync(path, original);
    run('npx', ['tsc', '-p', 'tsconfig.json']);
  }
}

/** What git knows of, as it stands in the working tree. */
function copyTree() {
  const { stdout } = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  for (const file of stdout.split('\0').filter((name) => name !== '' && existsSync(join(root, name))))
    cpSync(join(root, file), join(scratch, file), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(scratch, 'node_modules'));
}

function build() {
  for (const project of ['tsconfig.json', 'tsconfig.test.json'])
    if (run('npx', ['tsc', '-p', project]) !== 0) process.exit(1);
}

function run(command, args) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: scratch, encoding: 'utf8', maxBuffer: 2 ** 28 });
  const told = `${stdout}${stderr}`.split('\n').filter((line) => /✗|×|FAIL|error TS|passed, \d+ failed/.test(line));
  for (const line of told.slice(-12)) console.log(`  ${line.trim()}`);
  return status;
}
