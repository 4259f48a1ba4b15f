/** A first message of a connection: no type byte, a code, a body. */
export function opening(code: number, body: Buffer = Buffer.alloc(0)): Buffer {
  const header = Buffer.alloc(8);
  header.writeInt32BE(8 + body.length, 0);
  header.writeInt32BE(code, 4);
  return Buffer.concat([header, body]);
}

export function startup(): Buffer {
  return opening(196_608, Buffer.from('user\0postgres\0\0'));
}

/** A message with a type byte. */
export function message(type: string, body: string | Buffer = ''): { type: string; bytes: Buffer } {
  const content = Buffer.from(body);
  const header = Buffer.alloc(5);
  header.write(type, 'latin1');
  header.writeInt32BE(content.length + 4, 1);
  return { type, bytes: Buffer.concat([header, content]) };
}
