/** A piece of work inside one transaction: what runs in none of its savepoints (no parent), or what runs inside of one. */
export class Frame {
  /** `ended`: a piece without a parent that is done. */
  state: 'open' | 'released' | 'rolled back' | 'ended' = 'open';
  /** A statement from outside was let in, so this savepoint cannot be rolled back alone. */
  shared = false;
  /** The piece without a parent that this one belongs to. */
  readonly root: Frame;

  constructor(readonly parent: Frame | undefined) {
    this.root = parent?.root ?? this;
  }
}

interface Turn {
  readonly frame: Frame;
  /** Sends the statement, or opens the savepoint; must not wait for anything before it does. */
  readonly go: () => void;
  readonly refuse: (error: Error) => void;
  /** The end of a savepoint: it is never let in before those inside it have ended. */
  readonly ends?: true;
}

/**
 * Who may use the connection of a transaction now. Sibling savepoints that overlap lose writes without any error (RELEASE and ROLLBACK TO take
 * everything opened later with them), so:
 * - only the innermost open savepoint sends; what belongs to an outer one, or to another piece of the transaction, waits, in the order it came;
 * - the next sibling opens when the one before has ended;
 * - a savepoint ends after those inside it;
 * - code of the savepoint that awaits what waits for its end would hang for ever: when nothing has been running on the connection at the end of
 *   `patienceMs`, the first in line of the same piece is let in, and the savepoint is marked as shared. Another piece is of other code, and just waits.
 */
export class SavepointOrder {
  /** The work that is in no savepoint and in no piece of its own. */
  readonly root = new Frame(undefined);
  readonly #open: Frame[] = [];
  readonly #waiting: Turn[] = [];
  #patience: NodeJS.Timeout | undefined;

  constructor(
    readonly patienceMs: number,
    readonly isIdle: () => boolean,
  ) {}

  /** The innermost open savepoint, or the whole transaction. */
  get innermost(): Frame {
    return this.#open.at(-1) ?? this.root;
  }

  /** Whether a savepoint is open or somebody waits; `of` a piece of the transaction: there. */
  isBusy(of?: Frame): boolean {
    const isMeant = (frame: Frame): boolean => of === undefined || frame.root === of;
    return this.#open.some(isMeant) || this.#waiting.some(({ frame }) => isMeant(frame));
  }

  take(turn: Turn): void {
    if (this.#mayGo(turn.frame)) return turn.go();
    this.#waiting.push(turn);
    this.#watch();
  }

  /** Resolves with a new savepoint's frame, already the innermost one. */
  enter(parent: Frame): Promise<Frame> {
    return new Promise((resolve, reject) => {
      const open = (): void => {
        const frame = new Frame(parent);
        this.#open.push(frame);
        resolve(frame);
      };
      this.take({ frame: parent, go: open, refuse: reject });
    });
  }

  /** No work of this frame starts any more; resolves when those inside it have ended. */
  close(frame: Frame, state: 'released' | 'rolled back', refusal: () => Error): Promise<void> {
    frame.state = state;
    this.#refuse((turn) => turn.frame === frame, refusal);
    return new Promise((resolve, reject) => this.take({ frame, go: resolve, refuse: reject, ends: true }));
  }

  leave(frame: Frame): void {
    const at = this.#open.lastIndexOf(frame);
    if (at >= 0) this.#open.splice(at);
    this.#advance();
  }

  refuseAll(refusal: () => Error): void {
    this.#refuse(() => true, refusal);
  }

  #refuse(which: (turn: Turn) => boolean, refusal: () => Error): void {
    if (this.#waiting.length === 0) return;
    const refused = this.#waiting.filter(which);
    for (const turn of refused) this.#waiting.splice(this.#waiting.indexOf(turn), 1);
    this.#watch();
    for (const turn of refused) turn.refuse(refusal());
  }

  #mayGo(frame: Frame): boolean {
    const savepoint = this.#open.at(-1);
    return savepoint === undefined ? frame.parent === undefined : frame === savepoint;
  }

  #advance(): void {
    for (;;) {
      const next = this.#waiting.findIndex((turn) => this.#mayGo(turn.frame));
      if (next < 0) break;
      this.#waiting.splice(next, 1)[0]?.go();
    }
    this.#watch();
  }

  #watch(): void {
    if (this.#waiting.length === 0) {
      clearTimeout(this.#patience);
      this.#patience = undefined;
    } else this.#patience ??= setTimeout(() => this.#letIn(), this.patienceMs);
  }

  #letIn(): void {
    this.#patience = undefined;
    const { root } = this.innermost;
    const first = this.#waiting.findIndex(({ ends, frame }) => ends === undefined && frame.root === root);
    if (first >= 0 && this.isIdle()) {
      this.innermost.shared = true;
      this.#waiting.splice(first, 1)[0]?.go();
    }
    this.#watch();
  }
}
