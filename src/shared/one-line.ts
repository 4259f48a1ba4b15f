/** C0, DEL, C1 and the two separators that end a line in some readers. PostgreSQL takes no NUL in text, and a header or a log line must not be broken by what an error says. */
// oxlint-disable-next-line no-control-regex -- they are what is looked for
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g;

/** The text on one line, control characters as spaces, valid Unicode, and at most that many bytes of UTF-8; no character is cut in two. */
export function oneLine(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text.slice(0, maxBytes + 1).replace(CONTROLS, ' '));
  if (bytes.length <= maxBytes) return bytes.toString();
  let end = maxBytes;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}
