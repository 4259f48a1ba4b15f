import { connect, createServer, type Server, type Socket } from 'node:net';
import { ByteCut, clearConditions, type Direction, type NetworkConditions } from './faulty-pipe.js';
import type { ProxiedConnection } from './proxied-connection.js';

/** A cut at a byte that waits for its moment. */
export interface ArmedCut {
  /** Resolves when it has struck. Stays pending if it never does. */
  readonly hit: Promise<void>;
  /** Takes it back if it has not struck. */
  disarm(): void;
}

/**
 * A network between clients and one server that can be made bad, on a loopback port.
 *
 * - Until a fault is asked for, all goes as without it.
 * - Faults of the network (`delay`, `throttle`, `blackhole`, `refuse`) hold for all connections, open and new, until `heal()`.
 * - Plain TCP only.
 */
export abstract class NetworkProxy {
  private readonly conditions = clearConditions();
  private readonly connections = new Set<ProxiedConnection>();
  private byteCut: ByteCut | undefined;
  private server: Server | undefined;
  private closing: Promise<void> | undefined;

  protected constructor(
    private readonly target: { host: string; port: number },
    /** Where it listens, on 127.0.0.1. Stays the same over `refuse()` and `accept()`. */
    readonly port: number,
  ) {}

  /** How many clients are connected. */
  get connected(): number {
    return this.connections.size;
  }

  /** Everything arrives `ms` milliseconds later, and up to `jitterMs` more, at random. Order is kept. */
  delay(ms: number, jitterMs = 0): void {
    this.change({ delayMs: ms, jitterMs });
  }

  /** Each direction of each connection carries so many bytes in a second. */
  throttle(bytesPerSecond: number): void {
    this.change({ bytesPerSecond });
  }

  /**
   * Nothing arrives, and nobody is told: connections stay open, as with a half-open socket. What was sent meanwhile, the
   * end of a connection included, arrives after `heal()`. Default both directions.
   */
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

  /** Takes new connections again. Rejects with EADDRINUSE if another program has taken the port meanwhile. */
  async accept(): Promise<void> {
    if (this.server) return;
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.open(client));
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ port: this.port, host: '127.0.0.1', exclusive: true }, resolve);
    });
    this.server = server;
  }

  /** A good network again: no delay, limit or black hole, new connections accepted. Armed faults stay. */
  async heal(): Promise<void> {
    this.change(clearConditions());
    await this.accept();
  }

  /**
   * The first connection that has carried so many bytes in this direction, from now on, is cut there, be it amid a message.
   * A second call takes the first one back. Default direction `'toClient'`.
   */
  cutAfter(bytes: number, direction: Direction = 'toClient'): ArmedCut {
    this.byteCut?.disarm();
    this.byteCut = new ByteCut(bytes, direction);
    for (const connection of this.connections) connection[direction].cutAfter(this.byteCut);
    return this.byteCut;
  }

  /** Breaks every connection and stops listening. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  /** Carries a client's bytes to the server and back, by the conditions. */
  protected abstract join(client: Socket, server: Socket, conditions: NetworkConditions): ProxiedConnection;

  private async end(): Promise<void> {
    const connections = [...this.connections];
    this.refuse();
    this.reset();
    await Promise.all(connections.map(({ closed }) => closed));
  }

  private change(conditions: Partial<NetworkConditions>): void {
    Object.assign(this.conditions, conditions);
    for (const { toServer, toClient } of this.connections) {
      toServer.wake();
      toClient.wake();
    }
  }

  private open(client: Socket): void {
    const server = connect({ ...this.target, allowHalfOpen: true, noDelay: true });
    const connection = this.join(client, server, this.conditions);
    this.connections.add(connection);
    // Nothing has to wait for it.
    void connection.closed.then(() => this.connections.delete(connection));
    if (this.byteCut?.armed) connection[this.byteCut.direction].cutAfter(this.byteCut);
  }
}
