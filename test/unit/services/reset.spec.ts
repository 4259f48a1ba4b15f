import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { reset } from '#src/testing/reset.js';

/** Two ends of one connection. */
async function pair(): Promise<{ ours: Socket; peer: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const peer = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' });
  const [ours] = (await once(server, 'connection')) as [Socket];
  return { ours, peer };
}

test('the peer gets a reset', async () => {
  const { ours, peer } = await pair();
  const heard = once(peer, 'error');
  reset(ours);
  expect(await heard).toMatchObject([{ code: 'ECONNRESET' }]);
});

test.each([
  ['whose end is on its way', (socket: Socket) => void socket.end()],
  ['that is being reset', (socket: Socket) => reset(socket)],
])('a socket %s closes', async (_, before) => {
  const { ours, peer } = await pair();
  peer.on('error', () => undefined);
  const closed = once(ours, 'close');
  before(ours);
  reset(ours);
  await closed;
  expect(ours.destroyed).toBe(true);
});
