import type { Socket } from 'node:net';
import { reset } from './reset.js';

/** `toServer`: what the client says; `toClient`: what it hears. */
export type Direction = 'toServer' | 'toClient';

/** The state of the network that all pipes of a proxy share; change it and call `wake()` on each pipe. */
export interface NetworkConditions {
  delayMs: number;
  /** Up to this much is added to each delay, at random; order is kept. */
  jitterMs: number;
  bytesPerSecond: number;
  /** Bytes in a held direction stay in the pipe, as packets lost on the way stay in the sender's kernel, and arrive once it is let go. */
  held: Set<Direction>;
}

export function clearConditions(): NetworkConditions {
  return { delayMs: 0, jitterMs: 0, bytesPerSecond: Infinity, held: new Set() };
}

/** A cut at a byte: it strikes the first pipe that has carried `bytes` more, and no other. */
export class ByteCut {
  readonly hit: Promise<void>;
  private tellHit: () => void = () => undefined;
  private isArmed = true;

  constructor(
    readonly bytes: number,
    readonly direction: Direction,
  ) {
    this.hit = new Promise((resolve) => (this.tellHit = resolve));
  }

  get armed(): boolean {
    return this.isArmed;
  }

  strike(): void {
    this.isArmed = false;
    this.tellHit();
  }

  /** Takes it back if it has not struck. */
  disarm(): void {
    this.isArmed = false;
  }
}

const FULL = 1_048_576;
const SLICES_PER_SECOND = 50;

/**
 * Carries bytes one way to `target`, in order, as late and as slowly as the conditions say.
 * `source` is paused while too much waits. How the source ended travels the same way, behind its bytes.
 */
export class FaultyPipe {
  private readonly queue: { bytes: Buffer; dueAt: number }[] = [];
  private waiting = 0;
  private carried = 0;
  private freeAt = 0;
  private timer: NodeJS.Timeout | undefined;
  private blocked = false;
  private ending: 'fin' | 'reset' | undefined;
  private byteCut: { fault: ByteCut; at: number } | undefined;

  constructor(
    private readonly direction: Direction,
    private readonly source: Socket,
    private readonly target: Socket,
    private readonly conditions: NetworkConditions,
  ) {}

  send(bytes: Buffer): void {
    const { delayMs, jitterMs } = this.conditions;
    const dueAt = delayMs === 0 && jitterMs === 0 ? 0 : Date.now() + delayMs + Math.random() * jitterMs;
    const last = this.queue.at(-1)?.dueAt ?? 0;
    this.queue.push({ bytes, dueAt: Math.max(dueAt, last) });
    this.waiting += bytes.length;
    if (this.waiting > FULL) this.source.pause();
    this.wake();
  }

  end(how: 'fin' | 'reset'): void {
    this.ending = how;
    this.wake();
  }

  /** Forgets what has not been handed on. */
  stop(): void {
    clearTimeout(this.timer);
    this.queue.length = 0;
    this.ending = undefined;
  }

  cutAfter(fault: ByteCut): void {
    this.byteCut = { fault, at: this.carried + fault.bytes };
  }

  /** Hands on what may go now. */
  wake(): void {
    clearTimeout(this.timer);
    if (this.conditions.held.has(this.direction)) return;
    for (let head = this.queue[0]; head && !this.blocked; head = this.queue[0]) {
      const waitMs = Math.max(head.dueAt, this.freeAt) - Date.now();
      if (waitMs > 0) {
        this.timer = setTimeout(() => this.wake(), waitMs);
        return;
      }
      this.handOn(head);
    }
    if (this.queue.length === 0) this.passEnd();
  }

  private passEnd(): void {
    if (this.ending === 'fin') this.target.end();
    if (this.ending === 'reset') reset(this.target);
  }

  private handOn(head: { bytes: Buffer }): void {
    const { bytesPerSecond } = this.conditions;
    const slice = head.bytes.subarray(0, Math.max(1, Math.floor(bytesPerSecond / SLICES_PER_SECOND)));
    if (this.byteCut?.fault.armed && this.carried + slice.length >= this.byteCut.at) {
      return this.cutAt(slice.subarray(0, this.byteCut.at - this.carried), this.byteCut.fault);
    }
    this.write(slice);
    this.freeAt = bytesPerSecond === Infinity ? 0 : Date.now() + (slice.length / bytesPerSecond) * 1_000;
    if (slice.length === head.bytes.length) this.queue.shift();
    else head.bytes = head.bytes.subarray(slice.length);
  }

  /** No reset here: it could overtake the last bytes, and they are to arrive. */
  private cutAt(rest: Buffer, fault: ByteCut): void {
    this.write(rest);
    this.stop();
    this.target.destroy();
    this.source.destroy();
    fault.strike();
  }

  private write(bytes: Buffer): void {
    this.carried += bytes.length;
    this.waiting -= bytes.length;
    if (this.waiting <= FULL) this.source.resume();
    if (this.target.destroyed || this.target.write(bytes)) return;
    this.blocked = true;
    this.target.once('drain', () => {
      this.blocked = false;
      this.wake();
    });
  }
}
