// The report of what this package exports, one file per entry point, committed: a change of the API is a line in a diff.
//   node etc/api.mjs           writes etc/*.api.md
//   node etc/api.mjs --check   fails if they are not what the sources export
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Extractor, ExtractorConfig } from '@microsoft/api-extractor';

const root = fileURLToPath(new URL('..', import.meta.url));
const settings = join(root, 'etc/api-extractor.json');
const isCheck = process.argv.includes('--check');
const REPORTS = [
  { entry: 'dist/esm/index.d.ts', name: 'nestjs-kafka-idempotency.api.md' },
  { entry: 'dist/esm/schema/index.d.ts', name: 'nestjs-kafka-idempotency.schema.api.md' },
  { entry: 'dist/esm/testing/index.d.ts', name: 'nestjs-kafka-idempotency.testing.api.md' },
];

for (const { entry, name } of REPORTS) {
  const { apiReportChanged, errorCount } = extract(entry, name);
  if (errorCount > 0) {
    process.exitCode = 1;
  } else if (!apiReportChanged) {
    console.log(`etc/${name} is what the sources export.`);
  } else if (isCheck) {
    console.error(
      `etc/${name} is not what the sources export. If the change is meant, run \`npm run api\` and commit it:`,
    );
    showDifference(name);
    process.exitCode = 1;
  } else {
    console.log(`etc/${name} is written.`);
  }
}

function extract(entry, name) {
  const config = ExtractorConfig.loadFile(settings);
  config.mainEntryPointFilePath = join(root, entry);
  config.apiReport.reportFileName = basename(name, '.api.md');
  return Extractor.invoke(
    ExtractorConfig.prepare({
      configObject: config,
      configObjectFullPath: settings,
      packageJsonFullPath: join(root, 'package.json'),
    }),
    {
      localBuild: !isCheck,
      messageCallback: (message) => {
        if (message.category === 'console') message.handled = true; // said above, with the remedy of this repository
      },
    },
  );
}

function showDifference(name) {
  if (!existsSync(join(root, 'etc', name))) return console.error('(it is missing)');
  const { error } = spawnSync('git', ['--no-pager', 'diff', '--no-index', '--', `etc/${name}`, `build/api/${name}`], {
    cwd: root,
    stdio: 'inherit',
  });
  if (error) console.error(`Compare etc/${name} with build/api/${name}.`);
}
