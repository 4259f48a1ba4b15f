import {
  queryClassOf,
  send,
  type PgCallback,
  type PgClient,
  type PgConnection,
  type PgQueryClass,
  type PgResult,
} from './pg-client.js';

/** A claim to be made by the first statement of a transaction. */
export interface ClaimRequest {
  /** One INSERT … ON CONFLICT DO NOTHING RETURNING …. */
  readonly text: string;
  readonly values: readonly unknown[];
  /** How long to wait for another live copy of the same claim. */
  readonly lockTimeoutMs: number;
}

interface OneSyncRequest {
  readonly before: readonly string[];
  readonly claim: { text: string; values: readonly unknown[]; name: string | undefined };
  readonly after: readonly string[];
}

/**
 * BEGIN and the claim in one round trip and under **one** Sync: PostgreSQL skips everything up to the Sync after an error, so a BEGIN that fails or
 * is cancelled takes the claim with it. Pipelined as two queries, each with its own Sync, the claim was committed alone.
 */
export async function beginWithClaim(
  client: PgClient,
  begin: string,
  claim: ClaimRequest & { name: string | undefined },
): Promise<readonly Record<string, unknown>[]> {
  const usual = ownLockTimeouts.get(client) ?? (await readLockTimeout(client));
  const request: OneSyncRequest = {
    before: [begin, `SET LOCAL lock_timeout = ${Math.max(1, Math.round(claim.lockTimeoutMs))}`],
    claim,
    after: [`SET LOCAL lock_timeout = '${usual}'`],
  };
  const OneSyncQuery = oneSyncQuery(client);
  return new Promise((resolve, reject) => {
    const callback: PgCallback = (error, results) => {
      if (error) reject(error);
      else resolve(claimedRows(results));
    };
    client.query(new OneSyncQuery(request, callback));
  });
}

/**
 * What each session had before we touched it, whoever set it (server, role, pool hook): DEFAULT would put back only what it started with. A memo, read
 * once per connection: to keep it in the transaction itself costs two statements that are planned each time, a tenth of the throughput.
 */
const ownLockTimeouts = new WeakMap<PgClient, string>();

async function readLockTimeout(client: PgClient): Promise<string> {
  const { rows } = await send(client, 'SHOW lock_timeout');
  const usual = String(rows[0]?.['lock_timeout']);
  ownLockTimeouts.set(client, usual);
  return usual;
}

function claimedRows(results: PgResult | PgResult[]): readonly Record<string, unknown>[] {
  const all = Array.isArray(results) ? results : [results];
  return all.find((result) => result.command === 'INSERT')?.rows ?? [];
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
      const { before, after } = this.#request;
      const claim = written(connection, (wire) => this.prepare(wire), { sync: { value: () => undefined } });
      // One write: a dozen small ones, corked or not, cost more than all the rest of a transaction in this process.
      connection.stream.write(
        Buffer.concat([
          stepsOf(connection, before),
          ...claim,
          stepsOf(connection, after),
          ...written(connection, (wire) => wire.sync()),
        ]),
      );
      return null;
    }
  };
}

const steps = new Map<string, Buffer>();

/** Statements without values or rows, as bytes; the same few texts come with every transaction. */
function stepsOf(connection: PgConnection, texts: readonly string[]): Buffer {
  const key = texts.join(';');
  let bytes = steps.get(key);
  if (bytes === undefined) {
    bytes = Buffer.concat(texts.flatMap((text) => written(connection, (wire) => step(wire, text))));
    if (steps.size < 100) steps.set(key, bytes);
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
