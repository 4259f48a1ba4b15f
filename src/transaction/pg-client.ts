import type { EventEmitter } from 'node:events';

/** What this room needs of a `pg` client. Written down here because pg's types leave out the submittable protocol. */
export interface PgClient extends EventEmitter {
  /** All of pg's forms: text, text and values, config, each with or without a callback, or a submittable. */
  query(config: unknown, values?: unknown, callback?: unknown): unknown;
  readonly connection: PgConnection;
  readonly host: string;
  readonly port: number;
  readonly processID: number | null;
  readonly secretKey: number | null;
  /** False while a statement is being answered. */
  readonly readyForQuery: boolean;
  /** Statements are sent without waiting for the answers to those before. May be changed while none is on its way. */
  pipeline: boolean;
}

export interface PgConnection extends EventEmitter {
  readonly stream: {
    readonly writable: boolean;
    write(bytes: Buffer): void;
    cork(): void;
    uncork(): void;
    destroy(): void;
  };
  /** Texts by their names: those the server is known to have, and those on their way to it. */
  readonly parsedStatements: object;
  readonly submittedNamedStatements: object;
  parse(statement: { text: string; name: string }): void;
  bind(portal: { portal: string; statement: string }): void;
  execute(portal: { portal: string }): void;
  sync(): void;
}

export interface PgResult {
  /** The first word of the command tag: INSERT, COMMIT, ROLLBACK. */
  readonly command: string | null;
  readonly rows: Record<string, unknown>[];
}

export type PgCallback = (error: Error | null | undefined, result: PgResult | PgResult[]) => void;

/** A query object that speaks the wire protocol itself: cursors, streams, COPY, and pg's own Query. */
export interface Submittable {
  readonly text?: string;
  submit(connection: PgConnection): unknown;
  handleReadyForQuery(connection: PgConnection): void;
  handleError(error: Error, connection: PgConnection): void;
}

/** The part of pg's own Query class that is used here: with a name it is a prepared statement. */
export interface PgQuery extends Submittable {
  name: string | undefined;
  /** `extended`: of one command alone, which PostgreSQL sees to. */
  queryMode: 'extended' | undefined;
}
export type PgQueryClass = new (text: string, values: unknown, callback: PgCallback) => PgQuery;

/** From the client, so that it is of the very copy of pg that the DataSource uses. */
export function queryClassOf(client: PgClient): PgQueryClass {
  return (client.constructor as unknown as { Query: PgQueryClass }).Query;
}

export function isSubmittable(config: unknown): config is Submittable {
  return typeof config === 'object' && config !== null && typeof (config as Submittable).submit === 'function';
}

/** One statement of our own, past every gate. */
export function send(client: PgClient, text: string): Promise<PgResult> {
  // With a callback, since pg makes three promises where none is given.
  return new Promise((resolve, reject) => {
    const answered: PgCallback = (error, result) => (error ? reject(error) : resolve(result as PgResult));
    client.query(text, answered);
  });
}

/**
 * Asks the server to stop what this client runs. A backend that waits for a lock, or computes, does not notice that its client has gone, and keeps its
 * locks, the claim among them, until it is done. Nothing is owed if the request does not arrive: the backend ends when it next writes.
 */
export function requestCancel(client: PgClient): void {
  const Connection = client.connection.constructor as new (config: object) => PgConnection & {
    readonly stream: { unref(): void };
    connect(portOrPath: number | string, host?: string): void;
    cancel(processId: number | null, secretKey: number | null): void;
    end(): void;
  };
  const wire = new Connection({});
  wire.on('error', () => undefined);
  wire.on('connect', () => {
    wire.cancel(client.processID, client.secretKey);
    wire.end();
  });
  if (client.host.startsWith('/')) wire.connect(`${client.host}/.s.PGSQL.${client.port}`);
  else wire.connect(client.port, client.host);
  wire.stream.unref();
}
