import { queryClassOf, type PgCallback, type PgClient, type PgConnection, type PgQuery } from './pg-client.js';

/** pg's own Query, sent in one write with what goes in front of it. */
type OneWriteClass = new (text: string, values: unknown, callback: PgCallback, before?: readonly Buffer[]) => PgQuery;

/** A memo, no state: one derived class per Query class of a pg copy. */
const derived = new WeakMap<object, OneWriteClass>();

/**
 * pg's own Query class, so that values, rows and pipeline mode are treated as pg does it, but with one write for each query: its half dozen small ones, corked
 * or not, cost more than all the rest of a statement in this process.
 */
export function oneWriteQueryOf(client: PgClient): OneWriteClass {
  const Query = queryClassOf(client);
  let found = derived.get(Query);
  if (found === undefined) {
    found = class extends Query {
      readonly #before: readonly Buffer[];

      constructor(text: string, values: unknown, callback: PgCallback, before: readonly Buffer[] = []) {
        super(text, values, callback);
        this.#before = before;
      }

      override submit(connection: PgConnection): unknown {
        const recorder = recorderOf(connection);
        const refusal = super.submit(recorder.connection); // an error of its own, and then it has sent nothing
        const bytes = recorder.take();
        if (bytes.length > 0 && connection.stream.writable)
          connection.stream.write(Buffer.concat([...this.#before, ...bytes]));
        return refusal;
      }
    };
    derived.set(Query, found);
  }
  return found;
}

/** A statement without values or rows, as bytes to go in front of a query and under its Sync; the same few texts come with every transaction. */
export function stepOf({ connection }: PgClient, text: string): Buffer {
  let bytes = steps.get(text);
  if (bytes === undefined) {
    const recorder = recorderOf(connection);
    recorder.connection.parse({ text, name: '' });
    recorder.connection.bind({ portal: '', statement: '' });
    recorder.connection.execute({ portal: '' });
    steps.set(text, (bytes = Buffer.concat(recorder.take())));
  }
  return bytes;
}

const steps = new Map<string, Buffer>();
const recorders = new WeakMap<PgConnection, Recorder>();

function recorderOf(connection: PgConnection): Recorder {
  let found = recorders.get(connection);
  if (found === undefined) recorders.set(connection, (found = new Recorder(connection)));
  return found;
}

/** Gets what pg would send over a connection, instead of its socket. */
class Recorder {
  readonly connection: PgConnection;
  #chunks: Buffer[] = [];

  constructor(real: PgConnection) {
    const Connection = real.constructor as new (config: object) => PgConnection;
    const stream = {
      writable: true,
      write: (chunk: Buffer) => this.#chunks.push(chunk),
      cork: () => undefined,
      uncork: () => undefined,
    };
    // The very same tables of names: pg looks there for what the server knows already.
    const { parsedStatements, submittedNamedStatements } = real;
    this.connection = Object.assign(new Connection({ stream }), { parsedStatements, submittedNamedStatements });
  }

  take(): readonly Buffer[] {
    const chunks = this.#chunks;
    this.#chunks = [];
    return chunks;
  }
}
