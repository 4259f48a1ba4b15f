import { Inject, Injectable, type CallHandler, type ExecutionContext, type NestInterceptor } from '@nestjs/common';
import { from, type Observable } from 'rxjs';
import { deliveryInProgress, type DeliveryInProgress } from '../shared/delivery.js';
import { emitAt, type EmitEvent } from '../shared/events.js';
import { EMIT_EVENT } from '../shared/tokens.js';
import { calledAgain, transportMissing } from './called-wrongly.js';
import { LastValue } from './last-value.js';
import { reportOf } from './report-of.js';

/** Runs a `@KafkaExactlyOnce()` handler and tells the transport how it ended, whatever Nest or an exception filter makes of an error: what it has published is sent only if it ended well. */
@Injectable()
export class ExactlyOnceInterceptor implements NestInterceptor {
  constructor(@Inject(EMIT_EVENT) private readonly emit: EmitEvent) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const delivery = deliveryInProgress();
    if (delivery?.sends === undefined)
      throw transportMissing(`${context.getClass().name}.${context.getHandler().name}`);
    if (delivery.isHandling) return next.handle(); // bound twice: we are inside of the first
    if (delivery.taken) throw calledAgain(delivery);
    delivery.taken = true;
    return from(this.#run(delivery, next));
  }

  async #run(delivery: DeliveryInProgress, next: CallHandler): Promise<unknown> {
    try {
      const cleared = delivery.clearToRun();
      if (cleared !== undefined) await cleared;
      const value = await handled(next, delivery);
      emitAt(this.emit, 'handled', delivery);
      delivery.report({ outcome: 'processed' });
      return value;
    } catch (error) {
      delivery.report(reportOf(error, undefined));
      throw error;
    } finally {
      delivery.sends?.close();
    }
  }
}

/** The last value of the handler. A kill ends this wait, whatever the handler is doing. */
function handled(next: CallHandler, delivery: DeliveryInProgress): Promise<unknown> {
  return new Promise((resolve, reject) => {
    delivery.onKill(reject);
    delivery.isHandling = true;
    next.handle().subscribe(new LastValue(delivery, resolve, reject));
  });
}
