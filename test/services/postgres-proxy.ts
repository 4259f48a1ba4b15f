import { connect, createServer, type Server, type Socket } from 'node:net';
import { ByteCut, clearConditions, type Direction } from './faulty-pipe.js';
import { freePort } from './free-port.js';
import { StatementFault, isCommit, type ArmedFault, type FaultAction, type Matcher } from './postgres-faults.js';
import { ProxyConnection } from './postgres-proxy-connection.js';
import type { ErrorFields } from './postgres-wire.js';

export type { ArmedFault, FaultHit, Matcher } from './postgres-faults.js';

export interface PostgresProxyOptions {
  /** The `postgres://` URL of the real server. */
  target: string;
}

/** A proxy on a free loopback port through which all goes as without it, until a fault is asked for. */
export async function startPostgresProxy({ target }: PostgresProxyOptions): Promise<PostgresProxy> {
  for (let tries = 1; ; tries++) {
    const proxy = new PostgresProxy(new URL(target), await freePort());
    try {
      await proxy.accept();
      return proxy;
    } catch (error) {
      if (tries === START_TRIES) throw error;
    }
  }
}

const START_TRIES = 5;

/**
 * A network between a PostgreSQL client and its server that can be made bad.
 *
 * - Faults of the network (`delay`, `throttle`, `blackhole`, `refuse`) last until `heal()` and hold for all connections.
 * - Faults at a statement strike once, at the first connection that sends it, and tell when they have.
 * - Plain TCP only: a client that asks for TLS is told no.
 */
export class PostgresProxy {
  private readonly conditions = clearConditions();
  private readonly connections = new Set<ProxyConnection>();
  private readonly faults: StatementFault[] = [];
  private byteCut: ByteCut | undefined;
  private server: Server | undefined;
  private closing: Promise<void> | undefined;

  /** Use `startPostgresProxy`. */
  constructor(
    private readonly target: URL,
    readonly port: number,
  ) {}

  /** The target's URL, by way of the proxy. Stays the same over `refuse()` and `accept()`. */
  get url(): string {
    const url = new URL(this.target);
    url.hostname = '127.0.0.1';
    url.port = String(this.port);
    return url.href;
  }

  /** How many clients are connected. */
  get connected(): number {
    return this.connections.size;
  }

  /** Everything arrives `ms` later, and up to `jitterMs` more. Order is kept. */
  delay(ms: number, jitterMs = 0): void {
    this.change({ delayMs: ms, jitterMs });
  }

  /** Each direction of each connection carries so many bytes in a second. */
  throttle(bytesPerSecond: number): void {
    this.change({ bytesPerSecond });
  }

  /** Nothing arrives, and nobody is told: connections stay open. What was sent meanwhile arrives after `heal()`. */
  blackhole(direction: Direction | 'both' = 'both'): void {
    const directions: Direction[] = direction === 'both' ? ['toServer', 'toClient'] : [direction];
    this.change({ held: new Set(directions) });
  }

  /** Breaks every connection; clients get ECONNRESET. New ones are accepted. */
  reset(): void {
    for (const connection of this.connections) connection.cut();
  }

  /** New connections get ECONNREFUSED. Open ones live on. */
  refuse(): void {
    // It stops listening at once; what would come later is only the end of its last connection.
    this.server?.close();
    this.server = undefined;
  }

  /** Takes new connections again. */
  async accept(): Promise<void> {
    if (this.server) return;
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.open(client));
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ port: this.port, host: '127.0.0.1', exclusive: true }, resolve);
    });
    this.server = server;
  }

  /** A good network again: no delay, limit or black hole, new connections accepted. Faults that wait for a statement stay. */
  async heal(): Promise<void> {
    this.change(clearConditions());
    await this.accept();
  }

  /** The first connection that has carried so many bytes in this direction, from now on, is cut there, be it amid a message. */
  cutAfter(bytes: number, direction: Direction = 'toClient'): ByteCut {
    this.byteCut?.disarm();
    this.byteCut = new ByteCut(bytes, direction);
    for (const connection of this.connections) connection[direction].cutAfter(this.byteCut);
    return this.byteCut;
  }

  /**
   * The next COMMIT reaches the server and is done, but its answer never reaches the client: the connection is cut.
   * `hit` tells what the server did.
   */
  swallowCommitReply(): ArmedFault {
    return this.arm(isCommit, { kind: 'swallowReply' });
  }

  /** The connection is cut when the next COMMIT comes; the server never sees it. */
  cutBeforeCommit(): ArmedFault {
    return this.arm(isCommit, { kind: 'cutBefore' });
  }

  /**
   * The next statement that matches (a text it contains, an expression, a function) is not run but answered with this error.
   * The server's transaction fails as it would by a real error. With severity FATAL or PANIC the connection ends, too.
   */
  answerWithError(matcher: Matcher, error: ErrorFields, { times = 1 }: { times?: number } = {}): ArmedFault {
    return this.arm(matcher, { kind: 'answerWithError', error }, times);
  }

  /** Breaks every connection and stops listening. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    const connections = [...this.connections];
    this.refuse();
    this.reset();
    await Promise.all(connections.map(({ closed }) => closed));
  }

  private arm(matcher: Matcher, action: FaultAction, times = 1): ArmedFault {
    const fault = new StatementFault(matcher, action, times);
    this.faults.push(fault);
    return fault;
  }

  private change(conditions: Partial<typeof this.conditions>): void {
    Object.assign(this.conditions, conditions);
    for (const { toServer, toClient } of this.connections) {
      toServer.wake();
      toClient.wake();
    }
  }

  private open(client: Socket): void {
    const server = connect({
      host: this.target.hostname,
      port: Number(this.target.port) || 5432,
      allowHalfOpen: true,
      noDelay: true,
    });
    const connection = new ProxyConnection(client, server, this.conditions, (statement) =>
      this.faults.find((fault) => fault.take(statement)),
    );
    this.connections.add(connection);
    // Never rejects, and nothing has to wait for it.
    void connection.closed.then(() => this.connections.delete(connection));
    if (this.byteCut?.armed) connection[this.byteCut.direction].cutAfter(this.byteCut);
  }
}
