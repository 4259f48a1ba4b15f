import type { Socket } from 'node:net';
import { Kafka, logLevel, type ISocketFactory, type ISocketFactoryArgs, type KafkaConfig } from 'kafkajs';
import { within } from '../shared/within.js';

/** The least time for an answer; more where a user's network needs more to connect. */
const PATIENCE_MS = 3000;
const DEFAULT_CONNECTION_TIMEOUT_MS = 1000;
const DISCONNECT_MS = 500;
/** By so much later than it was set, the timer says that this process was busy, and nothing of the broker. */
const LATE_MS = 500;

/**
 * What became of a small request on a connection made for it: `answer` in whatever form, a refusal included; `silence`: it was taken, and nothing came;
 * `unreached`: the connection did not come about in time; `unclear`: this process was too busy to hear of an answer.
 */
export type Answer = 'answer' | 'silence' | 'unreached' | 'unclear';

/** Asks a broker for its API versions, as any client of this configuration begins. */
export async function askBroker(
  broker: ISocketFactoryArgs,
  config: KafkaConfig,
  open: ISocketFactory,
): Promise<Answer> {
  const sockets: Socket[] = [];
  const socketFactory: ISocketFactory = ({ onConnect }) => {
    const socket = open({ ...broker, onConnect });
    sockets.push(socket);
    return socket;
  };
  const patienceMs = Math.max(PATIENCE_MS, 3 * (config.connectionTimeout ?? DEFAULT_CONNECTION_TIMEOUT_MS));
  const { logCreator: _, ...settings } = config;
  const kafka = new Kafka({
    ...settings,
    brokers: [`${broker.host}:${broker.port}`],
    socketFactory,
    connectionTimeout: 2 * patienceMs, // what counts is our patience
    logLevel: logLevel.NOTHING,
    retry: { ...config.retry, retries: 0 },
  });
  const admin = kafka.admin();
  const asked = performance.now();
  const isSettled = await within(
    admin.connect().catch(() => undefined), // an answer too: kafkajs hears the same on its own connections
    patienceMs,
  );
  const isLate = performance.now() - asked > patienceMs + LATE_MS;
  const [socket] = sockets;
  const answer = isSettled || (socket?.bytesRead ?? 0) > 0 ? 'answer' : judged(socket, isLate);
  // By an error, for kafkajs does not hear of a socket that is only closed, and its timers would go on.
  if (!isSettled) for (const one of sockets) one.destroy(new Error('not answered'));
  await within(admin.disconnect(), DISCONNECT_MS).catch(() => undefined); // nobody waits for it
  return answer;
}

function judged(socket: Socket | undefined, isLate: boolean): Answer {
  if (isLate) return 'unclear';
  return socket === undefined || socket.connecting ? 'unreached' : 'silence';
}
