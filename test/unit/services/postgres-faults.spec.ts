import { expect, test } from 'vitest';
import { StatementFault, isCommit } from '#src/testing/postgres-faults.js';

test.each([
  'COMMIT',
  'commit;',
  ' END ',
  'COMMIT WORK',
  'COMMIT AND CHAIN',
  'INSERT INTO t VALUES (1); COMMIT',
  'COMMIT; BEGIN',
])('%j is a commit', (statement) => expect(isCommit(statement)).toBe(true));

test.each([
  "COMMIT PREPARED 'x'",
  'ROLLBACK',
  'SELECT commit FROM t',
  'INSERT INTO commit VALUES (1)',
  'SELECT CASE WHEN a THEN b END',
])('%j is no commit', (statement) => expect(isCommit(statement)).toBe(false));

test('a fault strikes as often as it was armed for', () => {
  const fault = new StatementFault('INSERT', { kind: 'cutBefore' }, 1);
  expect(fault.take('SELECT 1')).toBe(false);
  expect(fault.take('INSERT INTO t')).toBe(true);
  expect(fault.take('INSERT INTO t')).toBe(false);
});

test('a fault whose statement was never run waits for the next', () => {
  const fault = new StatementFault(/insert/i, { kind: 'cutBefore' }, 1);
  fault.take('INSERT INTO t');
  fault.giveBack();
  expect(fault.take('INSERT INTO t')).toBe(true);
});
