import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Frame, SavepointOrder } from '#src/transaction/savepoint-order.js';

const gone = () => new Error('gone');

describe('who may use the connection', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const make = (isIdle = () => true) => new SavepointOrder(1000, isIdle);
  const send = (order: SavepointOrder, frame: Frame, log: string[], name: string) =>
    order.take({ frame, go: () => log.push(name), refuse: (error) => log.push(`${name}: ${error.message}`) });

  it('without a savepoint every statement goes at once', () => {
    const order = make();
    const log: string[] = [];
    send(order, order.root, log, 'a');
    expect(log).toEqual(['a']);
    expect(order.isBusy()).toBe(false);
  });

  it('what is outside an open savepoint waits for its end, in the order it came', async () => {
    const order = make();
    const log: string[] = [];
    const frame = await order.enter(order.root);
    for (const name of ['a', 'b']) send(order, order.root, log, name);
    send(order, frame, log, 'inside');
    expect(log).toEqual(['inside']);
    expect(order.isBusy()).toBe(true);
    order.leave(frame);
    expect(log).toEqual(['inside', 'a', 'b']);
  });

  it('pieces of one transaction use it at once, and each waits for the savepoints of the others, however long those take', async () => {
    const order = make();
    const log: string[] = [];
    const [one, other] = [new Frame(undefined), new Frame(undefined)];
    send(order, one, log, 'one');
    send(order, other, log, 'other');
    const savepoint = await order.enter(one);
    send(order, other, log, 'waits');
    await vi.advanceTimersByTimeAsync(60_000);
    expect([log, savepoint.shared]).toEqual([['one', 'other'], false]);
    expect([order.isBusy(one), order.isBusy(other), order.isBusy(order.root)]).toEqual([true, true, false]);
    order.leave(savepoint);
    expect(log).toEqual(['one', 'other', 'waits']);
    expect(order.isBusy()).toBe(false);
  });

  it('siblings open one after another', async () => {
    const order = make();
    const first = await order.enter(order.root);
    let second: Frame | undefined;
    void order.enter(order.root).then((frame) => (second = frame));
    await Promise.resolve();
    expect(second).toBeUndefined();
    order.leave(first);
    await Promise.resolve();
    expect(order.innermost).toBe(second);
  });

  it('a savepoint ends after those inside it, however long they take', async () => {
    const order = make();
    const outer = await order.enter(order.root);
    const inner = await order.enter(outer);
    let closed = false;
    void order.close(outer, 'released', gone).then(() => (closed = true));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(closed).toBe(false);
    order.leave(inner);
    await Promise.resolve();
    expect(closed).toBe(true);
  });

  it('what a closed savepoint still had waiting is refused', async () => {
    const order = make();
    const log: string[] = [];
    const outer = await order.enter(order.root);
    const inner = await order.enter(outer);
    send(order, outer, log, 'waiting');
    void order.close(outer, 'rolled back', gone);
    expect(log).toEqual(['waiting: gone']);
    order.leave(inner);
    order.leave(outer);
    expect(order.isBusy()).toBe(false);
  });

  it('the first in line is let in when nothing has run for the length of the patience, and the savepoint is marked', async () => {
    const order = make();
    const log: string[] = [];
    const frame = await order.enter(order.root);
    send(order, order.root, log, 'a');
    await vi.advanceTimersByTimeAsync(999);
    expect(log).toEqual([]);
    await vi.advanceTimersByTimeAsync(2);
    expect(log).toEqual(['a']);
    expect(frame.shared).toBe(true);
  });

  it('nobody is let in while something runs', async () => {
    let idle = false;
    const order = make(() => idle);
    const log: string[] = [];
    await order.enter(order.root);
    send(order, order.root, log, 'a');
    await vi.advanceTimersByTimeAsync(5000);
    expect(log).toEqual([]);
    idle = true;
    await vi.advanceTimersByTimeAsync(1000);
    expect(log).toEqual(['a']);
  });

  it('a sibling let in becomes the innermost one, and the first goes on after it', async () => {
    const order = make();
    const log: string[] = [];
    const first = await order.enter(order.root);
    const entering = order.enter(order.root);
    await vi.advanceTimersByTimeAsync(1000);
    const second = await entering;
    send(order, first, log, 'first');
    expect([order.innermost === second, log]).toEqual([true, []]);
    order.leave(second);
    expect([log, first.shared]).toEqual([['first'], true]);
  });

  it('no timer is left when nobody waits', async () => {
    const order = make();
    const frame = await order.enter(order.root);
    send(order, order.root, [], 'a');
    order.leave(frame);
    const again = await order.enter(order.root);
    send(order, order.root, [], 'b');
    order.refuseAll(gone);
    expect(vi.getTimerCount()).toBe(0);
    order.leave(again);
  });

  it('refuseAll() answers everybody who waits', async () => {
    const order = make();
    const log: string[] = [];
    await order.enter(order.root);
    const entering = order.enter(order.root).catch((error: Error) => error.message);
    send(order, order.root, log, 'a');
    order.refuseAll(gone);
    expect([log, await entering]).toEqual([['a: gone'], 'gone']);
  });
});

describe('any program of nested work', () => {
  interface Node {
    readonly fails: boolean;
    readonly children: Node[];
  }
  const node = fc.letrec<{ node: Node }>((tie) => ({
    node: fc.record({
      fails: fc.boolean(),
      children: fc.oneof(
        { depthSize: 'small', withCrossShrink: true },
        fc.constant<Node[]>([]),
        fc.array(tie('node'), { maxLength: 3 }),
      ),
    }),
  })).node;

  it('opens and closes savepoints like brackets, and sends each statement inside its own', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(node, { maxLength: 4 }), async (program) => {
        const order = new SavepointOrder(60_000, () => true);
        const stack: Frame[] = [order.root];
        const statement = (frame: Frame) =>
          new Promise<void>((resolve, reject) =>
            order.take({
              frame,
              refuse: reject,
              go: () => (stack.at(-1) === frame ? resolve() : reject(new Error('sent inside another savepoint'))),
            }),
          );
        const run = async (parent: Frame, { fails, children }: Node): Promise<void> => {
          const frame = await order.enter(parent);
          stack.push(frame);
          await Promise.all([...children.map((child) => run(frame, child)), statement(frame), statement(frame)]);
          await order.close(frame, fails ? 'rolled back' : 'released', gone);
          if (stack.pop() !== frame) throw new Error('closed out of order');
          order.leave(frame);
        };
        await Promise.all([...program.map((each) => run(order.root, each)), statement(order.root)]);
        expect([stack.length, order.isBusy()]).toEqual([1, false]);
      }),
      { numRuns: 200 },
    );
  });
});
