import { describe, expect, test } from 'vitest';
import { Conversation } from '#src/testing/postgres-conversation.js';
import { message } from './postgres-messages.js';

describe('the statement a message runs', () => {
  test('is the text of a simple query', () => {
    expect(new Conversation().statementOf(message('Q', 'COMMIT\0'))).toBe('COMMIT');
  });

  test('is found for a named statement parsed long before', () => {
    const conversation = new Conversation();
    conversation.statementOf(message('P', 'c\0COMMIT\0\0\0'));
    conversation.statementOf(message('P', '\0SELECT 1\0\0\0'));
    conversation.statementOf(message('B', '\0c\0\0\0\0\0\0\0'));
    expect(conversation.statementOf(message('E', '\0\0\0\0\0'))).toBe('COMMIT');
  });

  test('is the one bound to the portal, not the one bound last', () => {
    const conversation = new Conversation();
    conversation.statementOf(message('P', 'a\0SELECT 1\0\0\0'));
    conversation.statementOf(message('P', 'b\0COMMIT\0\0\0'));
    conversation.statementOf(message('B', 'first\0a\0\0\0\0\0\0\0'));
    conversation.statementOf(message('B', 'second\0b\0\0\0\0\0\0\0'));
    expect(conversation.statementOf(message('E', 'first\0\0\0\0\0'))).toBe('SELECT 1');
  });

  test('is forgotten with a closed portal', () => {
    const conversation = new Conversation();
    conversation.statementOf(message('P', '\0COMMIT\0\0\0'));
    conversation.statementOf(message('B', 'p\0\0\0\0\0\0\0\0'));
    conversation.statementOf(message('C', 'Pp\0'));
    expect(conversation.statementOf(message('E', 'p\0\0\0\0\0'))).toBeUndefined();
  });
});

describe('the request that an answer belongs to', () => {
  test('is found by order when the client sends ahead', () => {
    const conversation = new Conversation<string>();
    for (const type of ['P', 'B', 'E']) conversation.sent(type, `insert ${type}`);
    for (const type of ['P', 'B', 'E']) conversation.sent(type, `commit ${type}`);
    conversation.sent('S');
    const answers = ['1', '2', 'C', '1', '2', 'C'].map((type) => conversation.received(message(type)).plan);
    expect(answers).toEqual(['insert P', 'insert B', 'insert E', 'commit P', 'commit B', 'commit E']);
  });

  test('is not moved by a notice', () => {
    const conversation = new Conversation<string>();
    conversation.sent('Q', 'query');
    expect(conversation.received(message('N')).plan).toBeUndefined();
    expect(conversation.received(message('C')).plan).toBe('query');
  });

  test('of a simple query is the same up to ReadyForQuery, also after an error', () => {
    const conversation = new Conversation<string>();
    conversation.sent('Q', 'first');
    conversation.sent('Q', 'second');
    const answers = ['T', 'E', 'Z', 'C', 'Z'].map((type) => conversation.received(message(type)).plan);
    expect(answers).toEqual(['first', 'first', 'first', 'second', 'second']);
  });

  test('never comes for what the server skips after an error', () => {
    const conversation = new Conversation<string>();
    conversation.sent('E', 'insert');
    conversation.sent('E', 'commit');
    conversation.sent('S');
    conversation.sent('Q', 'next');
    expect(conversation.received(message('E'))).toEqual({ plan: 'insert', skipped: ['commit'] });
    expect(conversation.received(message('Z')).plan).toBeUndefined();
    expect(conversation.received(message('C')).plan).toBe('next');
  });

  test('never comes for what is sent after the error and before the Sync', () => {
    const conversation = new Conversation<string>();
    conversation.sent('E', 'insert');
    conversation.received(message('E'));
    expect(conversation.sent('E', 'commit')).toEqual(['commit']);
    conversation.sent('S');
    conversation.sent('E', 'next');
    conversation.received(message('Z'));
    expect(conversation.received(message('C')).plan).toBe('next');
  });
});
