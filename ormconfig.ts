import { DataSource } from 'typeorm';
import { idempotencyEntities, idempotencyMigrations } from 'nestjs-kafka-idempotency/schema';

// The one DataSource of this repository: for the TypeORM CLI (`typeorm migration:run -d build/ormconfig.js`), the sample and the tests.
// The only default export here: the CLI looks for exactly one exported DataSource.
export default new DataSource({
  type: 'postgres',
  connectTimeoutMS: 5000,
  url: databaseUrl(),
  entities: [...idempotencyEntities],
  migrations: [...idempotencyMigrations()],
});

function databaseUrl(): string {
  const url = process.env['DATABASE_URL'];
  if (url !== undefined && url !== '') return url;
  throw new Error(
    'DATABASE_URL is not set, so there is no PostgreSQL to connect to. Run `npm run services` (or `docker compose up -d --wait`) and set the line ' +
      'DATABASE_URL=postgres://user:password@host:port/database it prints (or that docker-compose.yml names) in the environment.',
  );
}
