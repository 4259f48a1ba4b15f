import { Injectable } from '@nestjs/common';
import { Subject, type Observable } from 'rxjs';
import { eventChannel, type EmitEvent, type EventName, type IdempotencyEvent } from '../shared/events.js';

/**
 * Everything this package tells about its work, as an Observable and on `diagnostics_channel`s `nestjs-kafka-idempotency:NAME`. Both are
 * published synchronously, at the point of the work they name. An error of a subscriber changes no delivery: it
 * becomes an uncaught exception of its own, as Node and rxjs do it.
 */
@Injectable()
export class IdempotencyEvents {
  readonly #subject = new Subject<IdempotencyEvent>();

  get events$(): Observable<IdempotencyEvent> {
    return this.#subject.asObservable();
  }

  /** @internal The rooms' EmitEvent. */
  readonly emit: EmitEvent = Object.assign(
    (event: IdempotencyEvent): void => {
      const channel = eventChannel(event.name);
      // diagnostics_channel and rxjs both report a subscriber's error as an uncaught exception of its own, never here.
      if (channel.hasSubscribers) channel.publish(event);
      if (this.#subject.observed) this.#subject.next(event);
    },
    { isHeard: (name: EventName): boolean => this.#subject.observed || eventChannel(name).hasSubscribers },
  );
}
