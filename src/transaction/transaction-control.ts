const LEADING_BLANKS = String.raw`^(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/|;)*`;
const ENDS_OR_BEGINS = new RegExp(
  `${LEADING_BLANKS}(?:COMMIT|END|ABORT|ROLLBACK|BEGIN|START\\s+TRANSACTION|PREPARE\\s+TRANSACTION)\\b`,
  'i',
);
const ROLLBACK_TO = new RegExp(`${LEADING_BLANKS}ROLLBACK\\s+(?:(?:WORK|TRANSACTION)\\s+)?TO\\s[^;]*;?\\s*$`, 'i');
const COPY = new RegExp(`${LEADING_BLANKS}COPY\\s`, 'i');
const FROM_STDIN = /\sFROM\s+STDIN\b/i;
const FOREIGN_TAG = /^(?:BEGIN|START TRANSACTION|COMMIT|ROLLBACK|PREPARE TRANSACTION)/;

/**
 * What a statement does to the transaction it runs in, as far as its first words tell:
 * - `rollback to`: alone in its text, it undoes a savepoint and leaves the transaction open;
 * - `control`: it would end the transaction or begin one;
 * - `plain`: anything else. Later commands of a multi-statement text are not looked at; their command tags are.
 */
export type StatementKind = 'plain' | 'control' | 'rollback to';

export function kindOf(text: string): StatementKind {
  if (!ENDS_OR_BEGINS.test(text)) return 'plain';
  return ROLLBACK_TO.test(text) ? 'rollback to' : 'control';
}

/** COPY FROM STDIN: what is on the wire behind it would be taken for its data. */
export function readsFromClient(text: string): boolean {
  return COPY.test(text) && FROM_STDIN.test(text);
}

/** The first word, for messages: a text may hold values, its first word does not. */
export function verbOf(text: string): string {
  return /[A-Za-z]+/.exec(text)?.[0]?.toUpperCase() ?? 'statement';
}

/** Whether PostgreSQL's command tag says that a transaction began or ended. `ROLLBACK TO` answers with ROLLBACK too. */
export function isControlTag(tag: string): boolean {
  return FOREIGN_TAG.test(tag);
}
