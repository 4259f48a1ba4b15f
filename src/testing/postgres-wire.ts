/**
 * PostgreSQL's messages (protocol 3, "Message Formats" in PostgreSQL's manual) as bytes: cut out of a stream, read, written.
 * Pure: no sockets.
 */
export interface Message {
  /** The type byte as a character; the first messages of a connection have none and are named here. */
  type: string;
  /** The whole message as it travels, header included. */
  bytes: Buffer;
}

const OPENING_CODES = new Map([
  [80_877_102, 'cancel'],
  [80_877_103, 'ssl'],
  [80_877_104, 'gss'],
]);

/** Cuts a byte stream into whole messages, however its chunks fall. */
export class MessageFramer {
  private chunks: Buffer[] = [];
  private held = 0;
  private opening: boolean;

  /** The client's side opens with messages that have no type byte. */
  constructor(side: 'client' | 'server') {
    this.opening = side === 'client';
  }

  push(chunk: Buffer): Message[] {
    this.chunks.push(chunk);
    this.held += chunk.length;
    const messages: Message[] = [];
    for (let message = this.next(); message; message = this.next()) messages.push(message);
    return messages;
  }

  private next(): Message | undefined {
    const headerLength = this.opening ? 4 : 5;
    if (this.held < headerLength) return undefined;
    const header = this.peek(headerLength);
    const bodyLength = header.readInt32BE(headerLength - 4);
    if (bodyLength < 4) throw new Error(`Not PostgreSQL's protocol: a message says it is ${bodyLength} bytes long.`);
    const length = bodyLength + headerLength - 4;
    if (this.held < length) return undefined;
    const bytes = this.take(length);
    return { type: this.opening ? this.openingType(bytes) : String.fromCharCode(bytes[0] as number), bytes };
  }

  private openingType(bytes: Buffer): string {
    const type = (bytes.length >= 8 && OPENING_CODES.get(bytes.readInt32BE(4))) || 'startup';
    // After asking for encryption and hearing "no", the client opens once more.
    this.opening = type === 'ssl' || type === 'gss';
    return type;
  }

  private peek(length: number): Buffer {
    const [first] = this.chunks;
    if (first && first.length >= length) return first;
    return this.merge();
  }

  private take(length: number): Buffer {
    const [first] = this.chunks;
    const whole = first && first.length >= length ? first : this.merge();
    this.held -= length;
    if (whole.length === length) this.chunks.shift();
    else this.chunks[0] = whole.subarray(length);
    return whole.subarray(0, length);
  }

  private merge(): Buffer {
    const whole = Buffer.concat(this.chunks);
    this.chunks = [whole];
    return whole;
  }
}

/** Text of a simple Query ('Q'). */
export function queryText({ bytes }: Message): string {
  return stringsAt(bytes, 5, 1)[0] as string;
}

/** Name and text of a Parse ('P'). */
export function parsedStatement({ bytes }: Message): { name: string; text: string } {
  const [name, text] = stringsAt(bytes, 5, 2) as [string, string];
  return { name, text };
}

/** Portal and statement names of a Bind ('B'). */
export function boundPortal({ bytes }: Message): { portal: string; statement: string } {
  const [portal, statement] = stringsAt(bytes, 5, 2) as [string, string];
  return { portal, statement };
}

/** Portal name of an Execute ('E' from the client). */
export function executedPortal({ bytes }: Message): string {
  return stringsAt(bytes, 5, 1)[0] as string;
}

/** What a Close ('C' from the client) closes. */
export function closedName({ bytes }: Message): { kind: 'statement' | 'portal'; name: string } {
  return { kind: bytes[5] === 0x53 ? 'statement' : 'portal', name: stringsAt(bytes, 6, 1)[0] as string };
}

/** Tag of a CommandComplete ('C' from the server): `COMMIT`, `INSERT 0 1`. */
export function commandTag({ bytes }: Message): string {
  return stringsAt(bytes, 5, 1)[0] as string;
}

/** An error as PostgreSQL reports it. */
export interface ErrorFields {
  /** SQLSTATE. */
  code: string;
  /** What the client shows. */
  message: string;
  /** FATAL and PANIC end the connection. Default `ERROR`. */
  severity?: 'ERROR' | 'FATAL' | 'PANIC';
}

/** SQLSTATE of an ErrorResponse ('E' from the server). */
export function errorCode({ bytes }: Message): string {
  for (let at = 5; bytes[at];) {
    const [value] = stringsAt(bytes, at + 1, 1) as [string];
    if (bytes[at] === 0x43) return value;
    at += 2 + Buffer.byteLength(value);
  }
  return '';
}

export function errorResponse({ code, message, severity = 'ERROR' }: ErrorFields): Buffer {
  return encode('E', [`S${severity}`, `V${severity}`, `C${code}`, `M${message}`, ''].map(cString));
}

export function query(text: string): Buffer {
  return encode('Q', [cString(text)]);
}

/** Parse into the unnamed statement. */
export function parse(text: string): Buffer {
  return encode('P', [cString(''), cString(text), Buffer.alloc(2)]);
}

/** Bind of the unnamed statement, which has no parameters, to the unnamed portal. */
export function bind(): Buffer {
  return encode('B', [cString(''), cString(''), Buffer.alloc(6)]);
}

/** Execute of the unnamed portal to its end. */
export function execute(): Buffer {
  return encode('E', [cString(''), Buffer.alloc(4)]);
}

function encode(type: string, parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const header = Buffer.alloc(5);
  header.write(type, 'latin1');
  header.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([header, body]);
}

function cString(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

function stringsAt(bytes: Buffer, offset: number, count: number): string[] {
  const strings: string[] = [];
  for (let start = offset; strings.length < count;) {
    const end = bytes.indexOf(0, start);
    if (end < 0)
      throw new Error(`Not PostgreSQL's protocol: a text in message ${bytes.subarray(0, 1).toString()} has no end.`);
    strings.push(bytes.toString('utf8', start, end));
    start = end + 1;
  }
  return strings;
}
