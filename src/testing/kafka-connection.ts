import type { Socket } from 'node:net';
import type { NetworkConditions } from './faulty-pipe.js';
import {
  correlationIdOf,
  isReadableCommit,
  KafkaFramer,
  refusedCommit,
  requestHeader,
  withCommitError,
  type RequestHeader,
} from './kafka-wire.js';
import { ProxiedConnection } from './proxied-connection.js';

export type Lost = 'request' | 'answer';

/** What the proxy wants with the requests of its connections. */
export interface RequestWatch {
  seen(header: RequestHeader): void;
  /** The error code that this commit is to be answered with; undefined leaves it alone. */
  errorForCommit(): number | undefined;
  /** Which of the two gets lost: the request itself, or the answer to it. */
  loses(header: RequestHeader): Lost | undefined;
}

/**
 * One client's connection through the proxy. Requests are told apart by their api key, responses by the correlation id of
 * their request.
 */
export class KafkaConnection extends ProxiedConnection {
  private readonly refused = new Map<number, { apiVersion: number; errorCode: number }>();
  private readonly unanswered = new Set<number>();

  constructor(
    client: Socket,
    server: Socket,
    conditions: NetworkConditions,
    private readonly watch: RequestWatch,
  ) {
    super(client, server, conditions);
    this.readClient(new KafkaFramer(), (request) => this.fromClient(request));
    this.readServer(new KafkaFramer(), (response) => this.fromServer(response));
  }

  private fromClient(request: Buffer): void {
    const header = requestHeader(request);
    this.watch.seen(header);
    const lost = this.watch.loses(header);
    if (lost === 'request') return;
    if (lost === 'answer') this.unanswered.add(header.correlationId);
    const errorCode = isReadableCommit(header) ? this.watch.errorForCommit() : undefined;
    if (errorCode === undefined) return this.toServer.send(request);
    this.refused.set(header.correlationId, { apiVersion: header.apiVersion, errorCode });
    this.toServer.send(refusedCommit(request));
  }

  private fromServer(response: Buffer): void {
    if (this.unanswered.delete(correlationIdOf(response))) return;
    const refused = this.refused.get(correlationIdOf(response));
    if (refused === undefined) return this.toClient.send(response);
    this.refused.delete(correlationIdOf(response));
    this.toClient.send(withCommitError(response, refused.apiVersion, refused.errorCode));
  }
}
