import { describe, expect, it } from 'vitest';
import { databaseFaults, type DatabaseSettings } from '#src/schema/database-check.js';

const fitting: DatabaseSettings = {
  version: 180004,
  versionText: '18.4',
  encoding: 'UTF8',
  synchronousCommit: 'on',
  synchronousCommitSource: 'default',
  identifierLength: 63,
  idleInTransactionTimeoutMs: 0,
  currentSchema: 'public',
  searchPath: '"$user", public',
  role: 'app',
};
const faults = (change: Partial<DatabaseSettings>) => databaseFaults({ ...fitting, ...change });

describe('a database', () => {
  it.each([
    ['the least version', { version: 150000 }],
    ['synchronous_commit local, which flushes at commit', { synchronousCommit: 'local' }],
    ['synchronous_commit remote_apply', { synchronousCommit: 'remote_apply' }],
  ])('is taken with %s', (_, change) => {
    expect(faults(change)).toEqual([]);
  });

  it('is refused below version 15, with the version it has and the least supported', () => {
    expect(faults({ version: 140022, versionText: '14.22' })).toEqual([
      expect.stringMatching(/version 14\.22.*least version supported is 15/),
    ]);
  });

  it('is refused in another encoding', () => {
    expect(faults({ encoding: 'SQL_ASCII' })).toEqual([expect.stringContaining('SQL_ASCII')]);
  });

  it('is refused when it cuts names', () => {
    expect(faults({ identifierLength: 31 })).toEqual([expect.stringContaining('31 bytes')]);
  });

  it.each([
    ['configuration file', 'ALTER SYSTEM'],
    ['user', 'ALTER ROLE "app" RESET'],
    ['database user', 'ALTER ROLE "app" RESET'],
    ['database', 'ALTER DATABASE'],
    ['client', 'DataSource'],
    ['session', 'DataSource'],
  ])('is refused with synchronous_commit off from the %s, and told where to set it', (source, remedy) => {
    const [fault, ...rest] = faults({ synchronousCommit: 'off', synchronousCommitSource: source });
    expect(rest).toEqual([]);
    expect(fault).toContain(`set by: ${source}`);
    expect(fault).toContain(remedy);
  });

  it('is told all its faults at once', () => {
    expect(
      faults({ version: 140000, encoding: 'LATIN1', synchronousCommit: 'off', identifierLength: 31 }),
    ).toHaveLength(4);
  });
});
