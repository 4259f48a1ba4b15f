import { describe, expect, it } from 'vitest';
import { isStalePlan, StatementNames } from '#src/transaction/statement-names.js';

describe('names of prepared statements', () => {
  it('one text has one name on a connection, two texts have two', () => {
    const names = new StatementNames(true);
    const connection = {};
    const name = names.nameOf(connection, 'SELECT 1');
    expect(names.nameOf(connection, 'SELECT 1')).toBe(name);
    expect(names.nameOf(connection, 'SELECT 2')).not.toBe(name);
    expect(name!.length).toBeLessThan(63);
  });

  it('the 201st text on a connection has none; another connection starts afresh', () => {
    const names = new StatementNames(true);
    const connection = {};
    for (let n = 0; n < 200; n += 1) expect(names.nameOf(connection, `SELECT ${n}`)).toBeDefined();
    expect(names.nameOf(connection, 'SELECT 200')).toBeUndefined();
    expect(names.nameOf(connection, 'SELECT 0')).toBeDefined();
    expect(names.nameOf({}, 'SELECT 200')).toBeDefined();
  });

  it('two instances never give one name', () => {
    const connection = {};
    expect(new StatementNames(true).nameOf(connection, 'SELECT 1')).not.toBe(
      new StatementNames(true).nameOf(connection, 'SELECT 2'),
    );
  });

  it('after forget() a text has a name it never had', () => {
    const names = new StatementNames(true);
    const connection = {};
    const before = names.nameOf(connection, 'SELECT 1');
    names.forget();
    expect(names.nameOf(connection, 'SELECT 1')).not.toBe(before);
  });

  it('switched off, nothing has a name', () =>
    expect(new StatementNames(false).nameOf({}, 'SELECT 1')).toBeUndefined());
});

describe('a stale plan', () => {
  it('is 26000, and 0A000 where PostgreSQL checks a cached plan', () => {
    expect(isStalePlan({ code: '26000' })).toBe(true);
    expect(isStalePlan({ code: '0A000', routine: 'RevalidateCachedQuery' })).toBe(true);
  });

  it('is no other 0A000, no other error, and nothing that is no error', () => {
    for (const other of [
      { code: '0A000', routine: 'transformInsertStmt' },
      { code: '23505' },
      new Error('x'),
      undefined,
      null,
      'text',
    ])
      expect(isStalePlan(other)).toBe(false);
  });
});
