import type { Socket } from 'node:net';
import type { NetworkConditions } from './faulty-pipe.js';
import { KafkaConnection, type Lost } from './kafka-connection.js';
import { NetworkProxy } from './network-proxy.js';
import { onFreePort } from './on-free-port.js';
import type { ProxiedConnection } from './proxied-connection.js';

export interface KafkaProxyOptions {
  /** `host:port` of the broker's listener for clients that come by this proxy. */
  target: string;
  /** Where to listen, on 127.0.0.1. Default a free port. */
  port?: number;
}

/**
 * A proxy in front of one listener of one broker; a cluster needs one for each broker. Clients follow the addresses that
 * brokers advertise, so the broker needs a listener of its own for the proxy whose advertised address is the proxy's:
 * choose `port` first, start the broker with it, then the proxy. Close it at the end of the test, or its port stays open.
 */
export async function startKafkaProxy({ target, port }: KafkaProxyOptions): Promise<KafkaProxy> {
  const start = async (ownPort: number): Promise<KafkaProxy> => {
    const proxy = new KafkaProxy(addressOf(target), ownPort);
    await proxy.accept();
    return proxy;
  };
  return port === undefined ? onFreePort(start) : start(port);
}

/**
 * A network between Kafka clients and one broker that can be made bad.
 *
 * - Faults of the network (`delay`, `throttle`, `blackhole`, `refuse`) last until `heal()` and hold for all connections.
 * - Requests are counted by kind, so that a test can show that a client has stopped sending them.
 * - Plain TCP only.
 */
export class KafkaProxy extends NetworkProxy {
  private readonly counts = new Map<number, number>();
  private readonly commitErrors: CommitError[] = [];
  private readonly losses: Loss[] = [];

  /** Use `startKafkaProxy`. */
  constructor(target: { host: string; port: number }, port: number) {
    super(target, port);
  }

  /** `host:port` of the proxy, for `brokers`. Stays the same over `refuse()` and `accept()`. */
  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** How many requests with this api key (Kafka's protocol guide: 0 Produce, 1 Fetch, 8 OffsetCommit, 12 Heartbeat, …) clients have sent so far. */
  requests(apiKey: number): number {
    return this.counts.get(apiKey) ?? 0;
  }

  /**
   * The broker refuses the next commits of offsets, and the client hears this error code of Kafka's protocol for each
   * partition: 22 ILLEGAL_GENERATION, 25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS, … Nothing is stored.
   * Commits in version 8 of the request and above are let through; kafkajs sends 5 at most.
   * `times`: so many commits, one after another. Default 1.
   */
  answerCommitWith(errorCode: number, { times = 1 }: { times?: number } = {}): ArmedKafkaFault {
    const error = new CommitError(errorCode, times);
    this.commitErrors.push(error);
    return error;
  }

  /** The next request with this api key, or the answer to it, gets lost on the way, and nothing else does. */
  lose(what: Lost, apiKey: number): ArmedKafkaFault {
    const loss = new Loss(what, apiKey);
    this.losses.push(loss);
    return loss;
  }

  protected override join(client: Socket, server: Socket, conditions: NetworkConditions): ProxiedConnection {
    return new KafkaConnection(client, server, conditions, {
      seen: ({ apiKey }) => void this.counts.set(apiKey, this.requests(apiKey) + 1),
      errorForCommit: () => this.commitErrors.find((error) => error.take())?.errorCode,
      loses: ({ apiKey }) => this.losses.find((loss) => loss.take(apiKey))?.what,
    });
  }
}

/** A fault that waits for a request. */
export interface ArmedKafkaFault {
  /** How many requests it has struck. */
  readonly hits: number;
  /** It strikes no more from now on. */
  disarm(): void;
}

class CommitError implements ArmedKafkaFault {
  hits = 0;

  constructor(
    readonly errorCode: number,
    private times: number,
  ) {}

  take(): boolean {
    if (this.hits >= this.times) return false;
    this.hits += 1;
    return true;
  }

  disarm(): void {
    this.times = 0;
  }
}

class Loss implements ArmedKafkaFault {
  hits = 0;
  #isArmed = true;

  constructor(
    readonly what: Lost,
    private readonly apiKey: number,
  ) {}

  take(apiKey: number): boolean {
    if (!this.#isArmed || apiKey !== this.apiKey) return false;
    this.#isArmed = false;
    this.hits += 1;
    return true;
  }

  disarm(): void {
    this.#isArmed = false;
  }
}

function addressOf(target: string): { host: string; port: number } {
  const { hostname, port } = new URL(`kafka://${target}`);
  return { host: hostname, port: Number(port) || 9092 };
}
