import type { Socket } from 'node:net';
import type { NetworkConditions } from './faulty-pipe.js';
import { NetworkProxy } from './network-proxy.js';
import { onFreePort } from './on-free-port.js';
import { StatementFault, isCommit, type ArmedFault, type FaultAction, type Matcher } from './postgres-faults.js';
import { PostgresConnection } from './postgres-connection.js';
import type { ErrorFields } from './postgres-wire.js';
import type { ProxiedConnection } from './proxied-connection.js';

export interface PostgresProxyOptions {
  /** The `postgres://` URL of the real server. Without a port, 5432. */
  target: string;
}

/**
 * A proxy in front of a PostgreSQL server, on a free loopback port: give its `url` to the application under test.
 * Close it at the end of the test, or its port stays open.
 */
export function startPostgresProxy({ target }: PostgresProxyOptions): Promise<PostgresProxy> {
  return onFreePort(async (port) => {
    const proxy = new PostgresProxy(new URL(target), port);
    await proxy.accept();
    return proxy;
  });
}

/**
 * A network between a PostgreSQL client and its server that can be made bad.
 *
 * - Faults of the network (`delay`, `throttle`, `blackhole`, `refuse`) last until `heal()` and hold for all connections.
 * - Faults at a statement strike once, at the first connection that sends it, and tell when they have.
 * - Plain TCP only: a client that asks for TLS is told no.
 */
export class PostgresProxy extends NetworkProxy {
  private readonly faults: StatementFault[] = [];

  /** Use `startPostgresProxy`. */
  constructor(
    private readonly targetUrl: URL,
    port: number,
  ) {
    super({ host: targetUrl.hostname, port: Number(targetUrl.port) || 5432 }, port);
  }

  /** The target's URL, by way of the proxy. Stays the same over `refuse()` and `accept()`. */
  get url(): string {
    const url = new URL(this.targetUrl);
    url.hostname = '127.0.0.1';
    url.port = String(this.port);
    return url.href;
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
   * `times`: so many statements, one after another. Default 1.
   */
  answerWithError(matcher: Matcher, error: ErrorFields, { times = 1 }: { times?: number } = {}): ArmedFault {
    return this.arm(matcher, { kind: 'answerWithError', error }, times);
  }

  protected override join(client: Socket, server: Socket, conditions: NetworkConditions): ProxiedConnection {
    return new PostgresConnection(client, server, conditions, (statement) =>
      this.faults.find((fault) => fault.take(statement)),
    );
  }

  private arm(matcher: Matcher, action: FaultAction, times = 1): ArmedFault {
    const fault = new StatementFault(matcher, action, times);
    this.faults.push(fault);
    return fault;
  }
}
