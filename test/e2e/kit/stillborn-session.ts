import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { errorResponse } from '#src/testing/postgres-wire.js';

const READY = Buffer.from('5a0000000549', 'hex');

/** A way to PostgreSQL on which the next session can be ended in the very moment it begins: both come in one packet. */
export class StillbornSessions {
  died = 0;
  #armed = false;

  private constructor(
    private readonly sockets: Set<Socket>,
    readonly url: string,
    readonly close: () => Promise<void>,
  ) {}

  static async open(target: string): Promise<StillbornSessions> {
    const { hostname, port } = new URL(target);
    const sockets = new Set<Socket>();
    const server = createServer((client) => relay.#relay(client, connect({ host: hostname, port: Number(port) })));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = new URL(target);
    url.hostname = '127.0.0.1';
    url.port = String((server.address() as AddressInfo).port);
    const relay = new StillbornSessions(sockets, url.href, () => {
      for (const socket of sockets) socket.destroy();
      return new Promise<void>((resolve) => server.close(() => resolve()));
    });
    return relay;
  }

  /** The next session that begins is ended with 57P01. */
  endNext(): void {
    this.#armed = true;
  }

  #relay(client: Socket, server: Socket): void {
    for (const socket of [client, server]) {
      this.sockets.add(socket);
      socket.on('error', () => undefined); // either side may go as it likes
      socket.on('close', () => {
        this.sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.pipe(server);
    let isReady = false;
    server.on('data', (bytes) => {
      const begins = !isReady && bytes.subarray(-READY.length).equals(READY);
      isReady ||= begins;
      if (!begins || !this.#armed) return void client.write(bytes);
      this.#armed = false;
      this.died += 1;
      const end = errorResponse({ code: '57P01', message: 'terminating connection', severity: 'FATAL' });
      client.end(Buffer.concat([bytes, end]));
    });
  }
}
