import {
  queryClassOf,
  type PgCallback,
  type PgClient,
  type PgConnection,
  type PgQueryClass,
  type PgResult,
} from './pg-client.js';

/** A claim to be made by the first statement of a transaction: of one event, or of several. */
export interface ClaimRequest {
  /** One INSERT … ON CONFLICT DO NOTHING RETURNING … that limits its own wait, as `limitedInsert` and `limitedInserts` make it. */
  readonly text: string;
  readonly values: readonly unknown[];
  /** How long it waits for another live copy of the same claim. */
  readonly lockTimeoutMs: number;
}

interface OneSyncRequest {
  /** BEGIN and what is set for the transaction: statements without values or rows. */
  readonly begin: readonly string[];
  readonly claim: { text: string; values: readonly unknown[]; name: string | undefined };
}

/**
 * BEGIN and the claim in one round trip and under **one** Sync: PostgreSQL skips everything up to the Sync after an error, so a BEGIN that fails or
 * is cancelled takes the claim with it. Pipelined as two queries, each with its own Sync, the claim was committed alone.
 */
export function beginWithClaim(
  client: PgClient,
  begin: readonly string[],
  claim: ClaimRequest & { name: string | undefined },
): Promise<readonly Record<string, unknown>[]> {
  const OneSyncQuery = oneSyncQuery(client);
  return new Promise((resolve, reject) => {
    const callback: PgCallback = (error, results) => {
      if (error) reject(error);
      else resolve(claimedRows(results));
    };
    client.query(new OneSyncQuery({ begin, claim }, callback));
  });
}

function claimedRows(results: PgResult | PgResult[]): readonly Record<string, unknown>[] {
  const all = Array.isArray(results) ? results : [results];
  return all.find(({ command }) => command === 'INSERT' || command === 'SELECT')?.rows ?? [];
}

type OneSyncClass = new (request: OneSyncRequest, callback: PgCallback) => object;
/** A memo, no state: one derived class per Query class of a pg copy. */
const derived = new WeakMap<object, OneSyncClass>();

function oneSyncQuery(client: PgClient): OneSyncClass {
  const Query = queryClassOf(client);
  let found = derived.get(Query);
  if (found === undefined) derived.set(Query, (found = deriveFrom(Query)));
  return found;
}

/** From pg's own Query, so that rows are parsed, and pipeline mode is passed, as pg does it. */
function deriveFrom(Query: PgQueryClass): OneSyncClass {
  return class OneSyncQuery extends Query {
    readonly #request: OneSyncRequest;

    constructor(request: OneSyncRequest, callback: PgCallback) {
      super(request.claim.text, request.claim.values, callback);
      this.name = request.claim.name;
      this.#request = request;
    }

    override submit(connection: PgConnection): null {
      const claim = written(connection, (wire) => this.prepare(wire), { sync: { value: () => undefined } });
      // One write: a dozen small ones, corked or not, cost more than all the rest of a transaction in this process.
      connection.stream.write(
        Buffer.concat([
          ...this.#request.begin.map((text) => stepOf(connection, text)),
          ...claim,
          ...written(connection, (wire) => wire.sync()),
        ]),
      );
      return null;
    }
  };
}

const steps = new Map<string, Buffer>();

/** A statement without values or rows, as bytes; the same few texts come with every transaction. */
function stepOf(connection: PgConnection, text: string): Buffer {
  let bytes = steps.get(text);
  if (bytes === undefined) {
    bytes = Buffer.concat(written(connection, (wire) => step(wire, text)));
    steps.set(text, bytes);
  }
  return bytes;
}

/** What pg would send, instead of sending it. */
function written(
  connection: PgConnection,
  write: (wire: PgConnection) => void,
  overrides: PropertyDescriptorMap = {},
): Buffer[] {
  const chunks: Buffer[] = [];
  const stream = {
    writable: true,
    write: (chunk: Buffer) => chunks.push(chunk),
    cork: () => undefined,
    uncork: () => undefined,
  };
  write(Object.create(connection, { stream: { value: stream }, ...overrides }) as PgConnection);
  return chunks;
}

function step(connection: PgConnection, text: string): void {
  connection.parse({ text, name: '' });
  connection.bind({ portal: '', statement: '' });
  connection.execute({ portal: '' });
}
