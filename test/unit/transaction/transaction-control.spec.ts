import { describe, expect, it } from 'vitest';
import { isControlTag, kindOf, readsFromClient, verbOf } from '#src/transaction/transaction-control.js';

describe('what a statement does to its transaction', () => {
  it.each([
    'COMMIT',
    'commit work',
    ' \n COMMIT;',
    'END',
    'END TRANSACTION',
    'ABORT',
    'ROLLBACK',
    'rollback and chain',
    'COMMIT AND CHAIN',
    'BEGIN',
    'begin isolation level serializable',
    'START TRANSACTION',
    `PREPARE TRANSACTION 'x'`,
    `COMMIT PREPARED 'x'`,
    '-- a note\nCOMMIT',
    '/* a * note */ COMMIT',
    ';;COMMIT',
    'ROLLBACK TO a; COMMIT',
    'ROLLBACK TO SAVEPOINT a; ROLLBACK',
  ])('%j ends it or begins one', (text) => expect(kindOf(text)).toBe('control'));

  it.each([
    'ROLLBACK TO a',
    'rollback to savepoint a;',
    'ROLLBACK WORK TO SAVEPOINT "a b"',
    ' /* x */ ROLLBACK TRANSACTION TO a ; ',
  ])('%j undoes a savepoint', (text) => expect(kindOf(text)).toBe('rollback to'));

  it.each([
    'SELECT 1',
    'SAVEPOINT a',
    'RELEASE SAVEPOINT a',
    'INSERT INTO commits VALUES (1)',
    'SELECT commit FROM t',
    'PREPARE a AS SELECT 1',
    '',
    'committed',
    'endpoints',
    '-- COMMIT\nSELECT 1',
    '/* COMMIT */ SELECT 1',
    'WITH begin AS (SELECT 1) SELECT 1',
  ])('%j does nothing to it', (text) => expect(kindOf(text)).toBe('plain'));

  it('looks at a long comment in linear time', () => {
    const text = `/*${'*'.repeat(100_000)} ${'-- '.repeat(50_000)}`;
    expect(kindOf(text)).toBe('plain');
  });

  it.each([
    ['BEGIN', true],
    ['START TRANSACTION', true],
    ['COMMIT', true],
    ['ROLLBACK', true],
    ['PREPARE TRANSACTION', true],
    ['SAVEPOINT', false],
    ['RELEASE', false],
    ['INSERT 0 1', false],
    ['SELECT 3', false],
  ])('the command tag %s tells of a transaction begun or ended: %s', (tag, expected) =>
    expect(isControlTag(tag)).toBe(expected),
  );

  it('names a statement by its verb alone, never by what may hold values', () => {
    expect([verbOf(`insert into t values ('secret')`), verbOf(''), verbOf('42')]).toEqual([
      'INSERT',
      'statement',
      'statement',
    ]);
  });
});

describe('COPY that waits for data from here', () => {
  it.each(['COPY a FROM STDIN', '-- note\ncopy a (b, c) from\n stdin WITH (FORMAT csv)'])('%j', (text) =>
    expect(readsFromClient(text)).toBe(true),
  );
  it.each(['COPY a TO STDOUT', `COPY a FROM '/tmp/a'`, `SELECT 'COPY a FROM STDIN'`])('not %j', (text) =>
    expect(readsFromClient(text)).toBe(false),
  );
});
