import { createServer, connect, type AddressInfo, type Socket } from 'node:net';

/** What happens to the next COMMIT: lost on its way, or done by the server and its answer lost. Both end with a dead connection. */
export type CommitFault = 'lost' | 'answer lost';

export interface PostgresProxy {
  readonly url: string;
  /** Arms the fault for the next COMMIT of any connection; `hold` keeps that connection silent instead of closing it. */
  arm(fault: CommitFault, options?: { hold?: boolean }): void;
  /** Resolves when the armed fault has struck. */
  readonly struck: Promise<void>;
  close(): Promise<void>;
}

/** A TCP proxy in front of PostgreSQL that knows one message: the simple query COMMIT. */
export async function startPostgresProxy(target: string): Promise<PostgresProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let armed: { fault: CommitFault; hold: boolean; strike: () => void } | undefined;
  let struck = Promise.resolve();

  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => [client, upstream].forEach((each) => each.destroy()));
    }
    let silent = false;
    client.on('data', (chunk) => {
      if (armed === undefined || !chunk.includes(COMMIT)) return void upstream.write(chunk);
      const { fault, hold, strike } = armed;
      armed = undefined;
      silent = true;
      const end = (): void => {
        if (!hold) client.destroy();
        strike();
      };
      if (fault === 'lost') return end();
      upstream.once('data', end);
      upstream.write(chunk);
    });
    upstream.on('data', (chunk) => void (silent || client.write(chunk)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.href,
    arm(fault, { hold = false } = {}) {
      struck = new Promise((strike) => (armed = { fault, hold, strike }));
    },
    get struck() {
      return struck;
    },
    close() {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

const COMMIT = Buffer.from('Q\0\0\0\x0bCOMMIT\0', 'latin1');
