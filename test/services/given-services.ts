import { connect } from 'node:net';

/** What `KAFKA_BROKERS` and `DATABASE_URL` name. Each that is set must be well formed and answer, else this throws. */
export async function givenServices(env: NodeJS.ProcessEnv): Promise<{ brokers?: string[]; databaseUrl?: string }> {
  const brokers = brokersOf(env['KAFKA_BROKERS'] ?? '');
  const databaseUrl = env['DATABASE_URL'] || undefined;
  if (brokers)
    await anyAnswers(
      'KAFKA_BROKERS',
      brokers.map((broker) => addressOf('KAFKA_BROKERS', `kafka://${broker}`, 9092)),
    );
  if (databaseUrl) await anyAnswers('DATABASE_URL', [addressOf('DATABASE_URL', databaseUrl, 5432)]);
  return { ...(brokers && { brokers }), ...(databaseUrl && { databaseUrl }) };
}

function brokersOf(text: string): string[] | undefined {
  const brokers = text
    .split(',')
    .map((broker) => broker.trim())
    .filter((broker) => broker !== '');
  return brokers.length > 0 ? brokers : undefined;
}

interface Address {
  host: string;
  port: number;
}

function addressOf(name: string, url: string, defaultPort: number): Address {
  if (!URL.canParse(url))
    throw new Error(
      `${name} cannot be read: ${url} is no address. Write host:port or postgres://user:password@host:port/database.`,
    );
  const { hostname, port } = new URL(url);
  return { host: hostname.replace(/^\[|\]$/g, '') || 'localhost', port: Number(port) || defaultPort };
}

async function anyAnswers(name: string, addresses: Address[]): Promise<void> {
  const failures = await Promise.all(addresses.map(dial));
  if (failures.includes(undefined)) return;
  const tried = addresses.map(({ host, port }, index) => `${host}:${port} (${failures[index]})`).join(', ');
  throw new Error(
    `${name} is set, but nothing answers at ${tried}. Start that service, or unset ${name} to have one started for you.`,
  );
}

/** Why no connection can be made, or undefined if one can. */
function dial({ host, port }: Address): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: 5_000 });
    const settle = (failure?: string) => {
      socket.destroy();
      resolve(failure);
    };
    socket.once('connect', () => settle());
    socket.once('timeout', () => settle('no answer within 5 s'));
    socket.once('error', (error: NodeJS.ErrnoException) => settle(error.code ?? error.message));
  });
}
