import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

// Below the range from which systems take the source ports of outgoing connections (32768 and up on Linux, 49152 on
// others). A port from that range can be lost while a service is down: another connection may get it as its source port,
// and a client that dials a dead loopback port of that range can even be connected to itself, which then holds the port.
const LOWEST = 10_000;
const HIGHEST = 32_000;

/** `count` different loopback ports on which nothing listens now. Random, so that runs side by side seldom meet. */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  for (let tries = 0; ports.size < count; tries++) {
    if (tries > 1_000) throw new Error(`No free port found between ${LOWEST} and ${HIGHEST} in 1000 tries.`);
    const port = randomInt(LOWEST, HIGHEST);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}

export async function freePort(): Promise<number> {
  const [port] = await freePorts(1);
  return port as number;
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
  });
}
