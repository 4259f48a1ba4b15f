import { IdempotencyError } from '../shared/errors.js';
import type { CatalogQuery } from './catalog.js';

/** What the module has to know of the server it runs against. */
export interface DatabaseFacts {
  /** `server_version_num`, for example 180004. */
  readonly serverVersion: number;
  /** Where unqualified names go: the first schema of the search_path that exists. */
  readonly currentSchema: string | undefined;
  readonly searchPath: string;
  readonly role: string;
  /** After this long the server ends a session whose transaction waits for its client; 0: never. A handler's timeout must be below it. */
  readonly idleInTransactionTimeoutMs: number;
}

/** The settings of one session, as the server gives them. */
export interface DatabaseSettings {
  readonly version: number;
  readonly versionText: string;
  readonly encoding: string;
  readonly synchronousCommit: string;
  readonly synchronousCommitSource: string;
  readonly identifierLength: number;
  readonly idleInTransactionTimeoutMs: number;
  readonly currentSchema: string | null;
  readonly searchPath: string;
  readonly role: string;
}

const LEAST_VERSION = 150000;
const IDENTIFIER_LENGTH = 63;

const SETTINGS = `
SELECT current_setting('server_version_num')::integer AS version, current_setting('server_version') AS "versionText",
  current_setting('server_encoding') AS encoding, current_setting('synchronous_commit') AS "synchronousCommit",
  (SELECT source FROM pg_settings WHERE name = 'synchronous_commit') AS "synchronousCommitSource",
  current_setting('max_identifier_length')::integer AS "identifierLength",
  (SELECT setting::integer FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout') AS "idleInTransactionTimeoutMs",
  current_schema()::text AS "currentSchema", current_setting('search_path') AS "searchPath", current_user::text AS role`;

/**
 * Refuses a server on which the promise cannot be kept: DATABASE_UNSUITABLE, with every reason and its remedy. A standby or a read-only server is an outage and
 * not refused here.
 */
export async function checkDatabase(query: CatalogQuery): Promise<DatabaseFacts> {
  const [settings] = (await query(SETTINGS, [])) as [DatabaseSettings];
  const faults = databaseFaults(settings);
  if (faults.length > 0) {
    throw new IdempotencyError(
      'DATABASE_UNSUITABLE',
      `This PostgreSQL cannot keep the promise of this package: ${faults.join('. ')}`,
    );
  }
  const { version, currentSchema, searchPath, role, idleInTransactionTimeoutMs } = settings;
  return {
    serverVersion: version,
    currentSchema: currentSchema ?? undefined,
    searchPath,
    role,
    idleInTransactionTimeoutMs,
  };
}

export function databaseFaults(settings: DatabaseSettings): string[] {
  const faults: string[] = [];
  if (settings.version < LEAST_VERSION) {
    faults.push(
      `The server is version ${settings.versionText}; the least version supported is ${LEAST_VERSION / 10000}. Upgrade the server`,
    );
  }
  if (settings.encoding !== 'UTF8') {
    faults.push(
      `The database's encoding is ${settings.encoding}, so event ids could be refused or changed on their way in. Create a database with ENCODING 'UTF8'`,
    );
  }
  if (settings.synchronousCommit === 'off') {
    faults.push(
      `synchronous_commit is off (set by: ${settings.synchronousCommitSource}), so a server crash could undo effects whose offsets are already committed, and ` +
        `those events would be lost. Set it to on: ${synchronousCommitRemedy(settings)}`,
    );
  }
  if (settings.identifierLength < IDENTIFIER_LENGTH) {
    faults.push(
      `The server cuts names after ${settings.identifierLength} bytes and ${IDENTIFIER_LENGTH} are needed, so a table could be mistaken for another. Use a server built with the default NAMEDATALEN`,
    );
  }
  return faults;
}

function synchronousCommitRemedy({ synchronousCommitSource, role }: DatabaseSettings): string {
  switch (synchronousCommitSource) {
    case 'user':
    case 'database user':
      return `ALTER ROLE "${role}" RESET synchronous_commit (with IN DATABASE if it was set so)`;
    case 'database':
      return 'ALTER DATABASE … RESET synchronous_commit';
    case 'client':
    case 'session':
      return 'leave it out of the DataSource (url, extra.options) and of hooks that run SET on new connections';
    default:
      return 'ALTER SYSTEM SET synchronous_commit = on, then SELECT pg_reload_conf()';
  }
}
