import type { Socket } from 'node:net';
import { FaultyPipe, type NetworkConditions } from './faulty-pipe.js';
import { reset } from './reset.js';

/** Cuts a byte stream into whole messages, however its chunks fall. */
export interface Framer<Message> {
  push(chunk: Buffer): Message[];
}

/** One client's connection through a proxy: its two ways, and how to end it. */
export abstract class ProxiedConnection {
  readonly toServer: FaultyPipe;
  readonly toClient: FaultyPipe;
  /** Resolves when both sockets are closed. Never rejects. */
  readonly closed: Promise<void>;

  protected constructor(
    protected readonly client: Socket,
    protected readonly server: Socket,
    conditions: NetworkConditions,
  ) {
    this.toServer = new FaultyPipe('toServer', client, server, conditions);
    this.toClient = new FaultyPipe('toClient', server, client, conditions);
    this.closed = Promise.all([closed(client), closed(server)]).then(() => undefined);
  }

  /** Ends both sides without a word; the client gets a reset. */
  cut(): void {
    this.toServer.stop();
    this.toClient.stop();
    reset(this.client);
    this.server.destroy();
  }

  /** Hands on what the client says, message by message. */
  protected readClient<Message>(framer: Framer<Message>, take: (message: Message) => void): void {
    read(this.client, this.toServer, framer, take);
  }

  /** Hands on what the server says, message by message. */
  protected readServer<Message>(framer: Framer<Message>, take: (message: Message) => void): void {
    read(this.server, this.toClient, framer, take);
  }
}

function read<Message>(
  socket: Socket,
  pipe: FaultyPipe,
  framer: Framer<Message>,
  take: (message: Message) => void,
): void {
  socket.on('data', (chunk: Buffer) => {
    for (const message of framer.push(chunk)) {
      if (socket.destroyed) return;
      take(message);
    }
  });
  // By way of the pipe, as without a proxy: behind a black hole the other side does not learn that this one is gone.
  socket.on('end', () => pipe.end('fin'));
  socket.on('error', () => pipe.end('reset'));
}

function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}
