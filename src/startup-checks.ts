import { Inject, Injectable, Logger } from '@nestjs/common';
import { ModuleRef, ModulesContainer } from '@nestjs/core';
import type { DataSource } from 'typeorm';
import { findDataSource, poolSizeOf } from './data-source.js';
import { whileDatabaseReturns } from './database-patience.js';
import { GroupTransactions } from './handler/group-transactions.js';
import { HandlerCatalogue, type IdempotentHandler } from './handler/handler-catalogue.js';
import { Inbox } from './inbox/inbox.js';
import { DeadLetterTopic } from './kafka/dead-letter-topic.js';
import type { ResolvedOptions } from './options/resolve.js';
import { OutboxRoom } from './outbox/outbox-room.js';
import { ParkingRoom } from './parking/parking-room.js';
import type { CatalogQuery } from './schema/catalog.js';
import { PROCESSED_EVENTS } from './schema/processed-events.js';
import { checkSchema } from './schema/schema-guard.js';
import { IdempotencyError } from './shared/errors.js';
import { qualifiedTable } from './shared/sql-identifier.js';
import { RESOLVED_OPTIONS } from './shared/tokens.js';

/** Everything that can be known to be wrong before the first record. Each fault stops the start and says what to do. */
@Injectable()
export class StartupChecks {
  readonly #logger = new Logger('IdempotencyModule');

  constructor(
    @Inject(RESOLVED_OPTIONS) private readonly options: ResolvedOptions,
    @Inject(ModuleRef) private readonly modules: ModuleRef,
    @Inject(ModulesContainer) private readonly container: ModulesContainer,
    @Inject(HandlerCatalogue) private readonly handlers: HandlerCatalogue,
    @Inject(Inbox) private readonly inbox: Inbox,
    @Inject(GroupTransactions) private readonly groups: GroupTransactions,
    @Inject(ParkingRoom) private readonly parking: ParkingRoom,
    @Inject(OutboxRoom) private readonly outbox: OutboxRoom,
    @Inject(DeadLetterTopic) private readonly deadLetters: DeadLetterTopic | undefined,
  ) {}

  /** Gives the number of deliveries that may run at once. */
  async run(): Promise<number> {
    this.#onlyOnce();
    this.handlers.build();
    const dataSource = findDataSource(this.modules, this.options.dataSource);
    if (dataSource.options.type !== 'postgres') throw unsuitable(this.options.dataSource, dataSource.options.type);
    this.#tellOtherDataSources(dataSource);
    this.#tellMissingConnectTimeout(dataSource.options);
    const transactions = this.#transactions(poolSizeOf(dataSource));
    this.#tellKeys(transactions);
    this.#groupsOrKeys();
    this.#batchesFit();
    const { schema = dataSource.options.schema } = this.options;
    const query: CatalogQuery = (sql, params) => dataSource.query(sql, params);
    const facts = await whileDatabaseReturns(() =>
      checkSchema(query, { schema, needsOutbox: this.options.outbox.isNeeded }),
    );
    this.#timeoutsFit(facts.idleInTransactionTimeoutMs);
    this.inbox.open(qualifiedTable(facts.schema, PROCESSED_EVENTS));
    this.parking.open(facts.schema);
    this.outbox.open(facts.schema, facts.hasOutbox);
    if (this.#sharing.length > 0) {
      const schemas = dataSource.entityMetadatas.flatMap((entity) => entity.schema ?? []);
      await whileDatabaseReturns(() => this.groups.open((sql, values) => dataSource.query(sql, values), schemas));
    }
    await this.deadLetters?.check();
    return transactions;
  }

  /** `handlerCount`: how many handlers Nest registered on our transport. Only a log line: a hybrid application may connect it later. */
  transport(handlerCount: number): void {
    if (this.handlers.decorated.length === 0 || handlerCount > 0) return;
    const names = this.handlers.decorated.join(', ');
    this.#logger.error(
      `No IdempotentKafkaServer is connected, so ${names} would run on a transport that commits offsets on its own, or not at all. ` +
        'Connect it: app.connectMicroservice({ strategy: app.get(IdempotentKafkaServer) }, { inheritAppConfig: true }) (TRANSPORT_MISSING)',
    );
  }

  #onlyOnce(): void {
    const configured = [...this.container.values()].filter((module) => module.providers.has(StartupChecks));
    if (configured.length <= 1) return;
    const message = `IdempotencyModule.forRoot() was imported ${configured.length} times. One application has one consumer group and one DataSource; a second service is an application of its own`;
    throw new IdempotencyError('ALREADY_CONFIGURED', message);
  }

  /** Each handler holds one connection and two stay free for the rest of the application. */
  #transactions(poolSize: number): number {
    const wanted = this.options.concurrency.transactions ?? Math.max(1, poolSize - 2);
    if (wanted <= poolSize - 1) return wanted;
    const message =
      `concurrency.transactions is ${wanted} but the pool of DataSource '${this.options.dataSource}' holds ${poolSize} connections (poolSize, or extra.max), so handlers would wait for a ` +
      `connection while holding one. Raise the pool to ${wanted + 2}${poolSize > 2 ? ` or lower concurrency.transactions to ${poolSize - 2}` : ''}`;
    throw new IdempotencyError('POOL_TOO_SMALL', message);
  }

  #tellKeys(transactions: number): void {
    const { keys, interleave } = this.options.concurrency;
    if (keys <= transactions || (interleave && this.#sharing.length === this.handlers.idempotent.length)) return;
    this.#logger.log(
      `concurrency.keys is ${keys}, but no more than ${transactions} transactions are open at once (concurrency.transactions), so no more keys than that run at the same time. Raise the pool to ${keys + 2}, or lower keys`,
    );
  }

  get #sharing() {
    return this.handlers.idempotent.filter(({ settings }) => settings.messagesPerTransaction > 1);
  }

  /** Keys that run at once would do so on one connection: that has to be said. */
  #groupsOrKeys(): void {
    const { keys, interleave } = this.options.concurrency;
    if (interleave && this.#sharing.length === 0) throw nothingShared(keys);
    if (keys === 1 || this.#sharing.length === 0) return;
    const names = (sharing: readonly IdempotentHandler[]) => sharing.map(({ consumer }) => consumer).join(', ');
    const batches = this.#sharing.filter(({ batch }) => batch !== undefined);
    if (interleave && batches.length === 0) return;
    const message =
      batches.length > 0
        ? `concurrency.keys is ${keys}, but ${names(batches)} takes batches (@IdempotentBatch), and a batch is made of consecutive records of its partition. Set concurrency.keys to 1, or let an application of its own handle those topics`
        : `concurrency.keys is ${keys}, but messagesPerTransaction of ${names(this.#sharing)} is above 1: records that share a transaction run one after another. Set one of the two to 1, or concurrency.interleave to true, which runs those of different keys at once on the transaction's one connection`;
    throw new IdempotencyError('OPTIONS_INVALID', message);
  }

  /** More than that is never there at once. */
  #batchesFit(): void {
    const { records } = this.options.buffer;
    const over = this.#sharing.find(({ batch, settings }) => batch && settings.messagesPerTransaction > records);
    if (over === undefined) return;
    const { consumer, settings } = over;
    const message = `maxSize of ${consumer} is ${settings.messagesPerTransaction}, but buffer.records is ${records}: no batch could ever be full. Lower maxSize to ${records}, or raise buffer.records to twice maxSize`;
    throw new IdempotencyError('OPTIONS_INVALID', message);
  }

  #timeoutsFit(idleInTransactionTimeoutMs: number): void {
    if (idleInTransactionTimeoutMs === 0) return; // 0: the server never ends an idle transaction
    const over = this.handlers.idempotent.filter(({ settings }) => settings.timeoutMs >= idleInTransactionTimeoutMs);
    if (over.length === 0) return;
    const names = over.map(({ consumer, settings }) => `${consumer} (${settings.timeoutMs} ms)`).join(', ');
    const message = `The database ends a transaction that is idle for ${idleInTransactionTimeoutMs} ms (idle_in_transaction_session_timeout), but these handlers may take longer: ${names}. Lower their timeout below it, or raise it for this role`;
    throw new IdempotencyError('OPTIONS_INVALID', message);
  }

  /** pg's own default is to wait for ever. */
  #tellMissingConnectTimeout({ connectTimeoutMS, extra }: { connectTimeoutMS?: number; extra?: unknown }): void {
    const { connectionTimeoutMillis } = (extra ?? {}) as { connectionTimeoutMillis?: number };
    if ((connectTimeoutMS ?? connectionTimeoutMillis ?? 0) > 0) return;
    this.#logger.log(
      `DataSource '${this.options.dataSource}' has no connectTimeoutMS: a database that does not answer holds each new connection until the system gives up, minutes later. 5000 is a good value`,
    );
  }

  #tellOtherDataSources(covered: DataSource): void {
    const others = [...this.container.values()]
      .flatMap((module) => [...module.providers.values()])
      .map(
        ({ instance }) =>
          instance as { isInitialized?: unknown; manager?: unknown; options?: { name?: string } } | undefined,
      )
      .filter(
        (instance) =>
          instance?.isInitialized !== undefined && instance.manager !== undefined && instance !== (covered as unknown),
      );
    if (others.length === 0) return;
    this.#logger.log(
      `Only DataSource '${this.options.dataSource}' is covered: what handlers write through ${new Set(others).size} other(s) commits on its own and may happen again on a redelivery`,
    );
  }
}

function nothingShared(keys: number): IdempotencyError {
  return new IdempotencyError(
    'OPTIONS_INVALID',
    `concurrency.interleave is true, but no handler shares its transaction: messagesPerTransaction is 1, and so each of ${keys} keys has a transaction of its own. Set messagesPerTransaction to how many records shall share one, such as 200, or leave concurrency.interleave out`,
  );
}

function unsuitable(name: string, type: string): IdempotencyError {
  return new IdempotencyError(
    'DATABASE_UNSUITABLE',
    `DataSource '${name}' is of type ${type}. The claim needs PostgreSQL 15 or newer: name a DataSource of type postgres with the option dataSource`,
  );
}
