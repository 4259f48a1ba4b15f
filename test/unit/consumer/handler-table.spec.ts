import { expect, test } from 'vitest';
import { HandlerTable, statelessRegExp, type RegisteredHandler } from '#src/consumer/handler-table.js';

const handler = (pattern: string | RegExp) => ({ pattern }) as RegisteredHandler;

test('B23 every handler that matches the topic is found, exact names and regular expressions alike', () => {
  const table = new HandlerTable([handler('orders.a'), handler(/^orders\./), handler('orders.b')]);
  expect(table.handlersOf('orders.a').map(({ pattern }) => String(pattern))).toEqual(['orders.a', '/^orders\\./']);
  expect(table.handlersOf('other')).toEqual([]);
});

test('B23 a regular expression with g or y matches every time', () => {
  const table = new HandlerTable([handler(statelessRegExp(/^orders/gy))]);
  expect([table.matches('orders.1'), table.matches('orders.2'), table.matches('orders.3')]).toEqual([true, true, true]);
});
