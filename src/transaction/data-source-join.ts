import type { EventEmitter } from 'node:events';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { nestedRequest, ownerOf } from './own-runner.js';
import { current, outside } from './transaction-context.js';

/** TypeORM's methods are overloaded; their arguments are passed on as they come. */
type Method = (...args: unknown[]) => unknown;

interface Joined {
  readonly users: Set<object>;
  readonly undo: () => void;
}

const JOINED = Symbol.for('nestjs-kafka-idempotency:joined-data-source');
type Marked = DataSource & { [JOINED]?: Joined };

/**
 * Makes everything that works on this DataSource join the transaction of the async context, with no prototype patched:
 * - a getter on `manager.queryRunner` does it for repositories, custom and tree repositories, BaseEntity, relations and the manager itself;
 * - `query` (and `sql` through it) and `createQueryBuilder` of the DataSource are given the same runner;
 * - `manager.transaction` becomes a savepoint;
 * - `getRepository` and `getTreeRepository` are answered outside the context: TypeORM keeps the repository for ever, and with it the runner it was made with;
 * - `createQueryRunner` stays independent, and is reported;
 * - new connections of the pool have a listener for errors from their first moment.
 * Several users may install it on one DataSource; the last one to leave takes it away.
 */
export function joinDataSource(dataSource: DataSource, user: object): void {
  const marked = dataSource as Marked;
  marked[JOINED] ??= { users: new Set(), undo: wrap(dataSource) };
  marked[JOINED].users.add(user);
}

export function leaveDataSource(dataSource: DataSource, user: object): void {
  const marked = dataSource as Marked;
  const joined = marked[JOINED];
  if (joined === undefined || !joined.users.delete(user) || joined.users.size > 0) return;
  joined.undo();
  delete marked[JOINED];
}

function wrap(dataSource: DataSource): () => void {
  const { manager } = dataSource;
  const runner = (): QueryRunner | undefined => current(dataSource)?.queryRunner;
  Object.defineProperty(manager, 'queryRunner', { get: runner, configurable: true });
  const undos = [
    () => delete (manager as { queryRunner?: QueryRunner }).queryRunner,
    override(dataSource, 'query', (original) => (text, values, given) => {
      const used = (given as QueryRunner | undefined) ?? runner();
      // Not by way of TypeORM, which would call the runner of an ended transaction released and not say whose it was.
      return used !== undefined && ownerOf(used) !== undefined
        ? used.query(text as string, values as unknown[])
        : original(text, values, used);
    }),
    override(dataSource, 'createQueryBuilder', (original) => {
      return (...args) => original(...withRunner(args, runner()));
    }),
    override(dataSource, 'createQueryRunner', (original) => (mode) => {
      const joinable = current(dataSource);
      joinable?.emit({
        name: 'escaped',
        owner: joinable.owner,
        detail: 'a query runner of its own, outside the transaction',
      });
      return original(mode);
    }),
    override(manager, 'transaction', (original) => (...args) => {
      const joinable = current(dataSource);
      return joinable === undefined ? original(...args) : joinable.nested(nestedRequest(args));
    }),
    override(manager, 'getRepository', (original) => (target) => outside(dataSource, () => original(target))),
    override(manager, 'getTreeRepository', (original) => (target) => outside(dataSource, () => original(target))),
    listenFromTheStart(dataSource),
  ];
  return () => undos.forEach((undo) => undo());
}

/**
 * The pool takes its own listener off a new client while it still reads the packet that made it ready, and TypeORM's comes a moment later. A session
 * that ends in that packet would be an 'error' event nobody listens to, and end the process. Whoever uses the client hears of it by its next statement.
 */
function listenFromTheStart(dataSource: DataSource): () => void {
  const { master } = dataSource.driver as unknown as { master?: EventEmitter }; // the pg pool of TypeORM's PostgresDriver
  const listen = (client: EventEmitter): void => void client.on('error', () => undefined);
  master?.on('connect', listen);
  return () => void master?.removeListener('connect', listen);
}

/** createQueryBuilder(entity, alias, runner?) or createQueryBuilder(runner?). */
function withRunner(args: unknown[], runner: QueryRunner | undefined): unknown[] {
  const [first, alias, given] = args;
  return alias === undefined ? [first ?? runner] : [first, alias, given ?? runner];
}

function override(target: DataSource | EntityManager, name: string, wrapper: (original: Method) => Method): () => void {
  const object = target as unknown as Record<string, Method>;
  const own = Object.getOwnPropertyDescriptor(object, name);
  const before = object[name] as Method;
  const after = wrapper((...args) => before.apply(target, args));
  Object.defineProperty(object, name, { value: after, configurable: true, writable: true });
  return () => {
    if (object[name] !== after) return; // Somebody wrapped it again: theirs is not ours to remove. Without a context ours changes nothing.
    delete object[name];
    if (own !== undefined) Object.defineProperty(object, name, own);
  };
}
