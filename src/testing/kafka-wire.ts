/**
 * Kafka's messages (protocol guide, "Protocol Primitive Types" and "The Messages") as bytes: cut out of a stream, read, changed.
 * Pure: no sockets.
 */

/** OffsetCommit's api key in the protocol guide. */
export const OFFSET_COMMIT = 8;

const SIZE = 4;
/** Requests: api_key INT16, api_version INT16, correlation_id INT32, client_id NULLABLE_STRING. */
const CLIENT_ID_AT = SIZE + 8;
/** From this version on OffsetCommit is in the compact encoding, and version 0 knows no generations. */
const FIRST_COMPACT_COMMIT = 8;
/** A generation no group will ever be in. */
const NO_GENERATION = 0x7fff_ffff;

/** What a request says of itself. */
export interface RequestHeader {
  readonly apiKey: number;
  readonly apiVersion: number;
  readonly correlationId: number;
}

/** Cuts a byte stream into whole requests or responses, however its chunks fall. */
export class KafkaFramer {
  private chunks: Buffer[] = [];
  private held = 0;

  push(chunk: Buffer): Buffer[] {
    this.chunks.push(chunk);
    this.held += chunk.length;
    const messages: Buffer[] = [];
    for (let message = this.next(); message; message = this.next()) messages.push(message);
    return messages;
  }

  private next(): Buffer | undefined {
    if (this.held < SIZE) return undefined;
    const size = this.front(SIZE).readInt32BE();
    if (size < 0) throw new Error(`Not Kafka's protocol: a message says it is ${size} bytes long.`);
    const length = SIZE + size;
    if (this.held < length) return undefined;
    const front = this.front(length);
    this.held -= length;
    this.chunks[0] = front.subarray(length);
    return front.subarray(0, length);
  }

  /** The first chunk, merged with others only if it is too short. */
  private front(length: number): Buffer {
    const [first] = this.chunks;
    if (first && first.length >= length) return first;
    this.chunks = [Buffer.concat(this.chunks)];
    return this.chunks[0] as Buffer;
  }
}

export function requestHeader(request: Buffer): RequestHeader {
  return {
    apiKey: request.readInt16BE(SIZE),
    apiVersion: request.readInt16BE(SIZE + 2),
    correlationId: request.readInt32BE(SIZE + 4),
  };
}

export function correlationIdOf(response: Buffer): number {
  return response.readInt32BE(SIZE);
}

/** An OffsetCommit whose encoding is known here: versions 1 to 7. kafkajs speaks 5 at most. */
export function isReadableCommit({ apiKey, apiVersion }: RequestHeader): boolean {
  return apiKey === OFFSET_COMMIT && apiVersion >= 1 && apiVersion < FIRST_COMPACT_COMMIT;
}

/** The same OffsetCommit from a generation that never was, so that the broker refuses it and stores nothing. */
export function refusedCommit(request: Buffer): Buffer {
  const changed = Buffer.from(request);
  const groupAt = afterString(changed, CLIENT_ID_AT);
  changed.writeInt32BE(NO_GENERATION, afterString(changed, groupAt));
  return changed;
}

/** The OffsetCommit response with this error code for every partition. */
export function withCommitError(response: Buffer, apiVersion: number, errorCode: number): Buffer {
  const changed = Buffer.from(response);
  // From version 3 on the topics come after throttle_time_ms.
  let at = SIZE + 4 + (apiVersion >= 3 ? 4 : 0);
  for (let topics = changed.readInt32BE(at), next = at + 4; topics > 0; topics--) {
    at = afterString(changed, next);
    const partitions = changed.readInt32BE(at);
    next = at + 4 + partitions * 6;
    for (let code = at + 8; code < next; code += 6) changed.writeInt16BE(errorCode, code);
  }
  return changed;
}

function afterString(bytes: Buffer, at: number): number {
  return at + 2 + Math.max(bytes.readInt16BE(at), 0);
}
