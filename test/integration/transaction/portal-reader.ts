/** The least of a cursor: a submittable that keeps a portal open and reads it batch by batch, as pg-cursor does. */
interface Wire {
  parse(statement: { text: string }): void;
  bind(portal: { portal: string; values: unknown[] }): void;
  describe(portal: { type: 'P'; name: string }): void;
  execute(portal: { portal: string; rows: number }): void;
  close(portal: { type: 'P'; name: string }): void;
  flush(): void;
  sync(): void;
}

export interface PortalClient {
  query(reader: PortalReader): unknown;
}

export class PortalReader {
  #wire: Wire | undefined;
  #rows = 0;
  #waiting: { resolve: (rows: number) => void; reject: (error: Error) => void } | undefined;
  #done = false;
  #error: Error | undefined;
  #wanted = false;

  constructor(
    readonly text: string,
    private readonly size: number,
  ) {}

  /** The number of rows of the next batch; 0 at the end. */
  batch(): Promise<number> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#done) return Promise.resolve(0);
    const next = new Promise<number>((resolve, reject) => (this.#waiting = { resolve, reject }));
    if (this.#wire === undefined) this.#wanted = true;
    else this.#fetch();
    return next;
  }

  async rest(): Promise<number> {
    let rows = 0;
    for (let more = await this.batch(); more > 0; more = await this.batch()) rows += more;
    return rows;
  }

  submit(wire: Wire): void {
    this.#wire = wire;
    wire.parse({ text: this.text });
    wire.bind({ portal: 'reader', values: [] });
    wire.describe({ type: 'P', name: 'reader' });
    if (this.#wanted) this.#fetch();
    wire.flush();
  }

  handleRowDescription(): void {}
  handleDataRow(): void {
    this.#rows += 1;
  }
  handlePortalSuspended(): void {
    this.#deliver();
  }
  handleCommandComplete(): void {
    this.#wire?.close({ type: 'P', name: 'reader' });
    this.#wire?.sync();
    this.#done = true;
  }
  handleEmptyQuery(): void {}
  handleReadyForQuery(): void {
    this.#deliver();
  }
  handleError(error: Error): void {
    this.#error = error;
    this.#wire?.sync();
    this.#waiting?.reject(error);
  }

  #fetch(): void {
    this.#rows = 0;
    this.#wire?.execute({ portal: 'reader', rows: this.size });
    this.#wire?.flush();
  }

  #deliver(): void {
    this.#waiting?.resolve(this.#rows);
    this.#waiting = undefined;
    this.#rows = 0;
  }
}
