import type { Socket } from 'node:net';

const resetting = new WeakSet<Socket>();

/**
 * Ends a connection so that the peer gets ECONNRESET; one whose own side has ended already is only closed. Node cannot reset a socket while its
 * FIN is on the way: it reports EINVAL, the socket never closes, and neither does the process. So no second call, and nothing is read meanwhile that could
 * make Node destroy it.
 */
export function reset(socket: Socket): void {
  if (resetting.has(socket)) return;
  resetting.add(socket);
  if (socket.writableEnded) {
    socket.destroy();
    return;
  }
  socket.pause();
  socket.resetAndDestroy();
}
