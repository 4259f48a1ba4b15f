import { TransactionScope } from '#src/transaction/transaction-scope.js';
import { CLAIM, effectEntity } from './fixtures.js';
import type { Orm } from './typeorm-versions.js';

const [packageName, url, schema, run] = process.argv.slice(2) as [string, string, string, string];
const orm = (await import(packageName)) as Orm;
const dataSource = await new orm.DataSource({
  type: 'postgres',
  url,
  schema,
  installExtensions: false,
  entities: [effectEntity(orm)],
  extra: { options: `-c search_path=${schema}` },
}).initialize();
const scope = new TransactionScope(dataSource, { preparedStatements: true, emit: () => undefined });
scope.install();
const effects = dataSource.getRepository<{ name: string }>('effect');

for (let n = 0; ; n += 1) {
  const id = `${run}-${n}`;
  const transaction = await scope.open({
    owner: id,
    isolation: 'READ COMMITTED',
    claim: { ...CLAIM, values: ['test', id] },
  });
  await transaction.within(() => effects.insert({ name: id }));
  if (n === 3) process.send!('about to commit');
  await transaction.commit();
}
