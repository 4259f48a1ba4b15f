import { Logger } from '@nestjs/common';
import type { DeliveryInProgress, DeliveryReport } from '../shared/delivery.js';
import type { ErrorCode, IdempotencyError } from '../shared/errors.js';
import { placeOf, type EmitEvent, type EventPlace } from '../shared/events.js';
import { noteOf } from '../shared/failed-attempt.js';
import { oneLine } from '../shared/one-line.js';
import type { ParkedState, ParkReason } from '../shared/parking.js';
import type { ConsumedRecord } from './consumed-record.js';
import type { NextStep } from './next-step.js';

const SHOWN_BYTES = 300;

/** What is told of deliveries that did not settle their record: an event and a line in the log for each. Never a payload. */
export class DeliveryLog {
  readonly #logger = new Logger('IdempotentKafkaServer');

  constructor(private readonly emit: EmitEvent) {}

  /** Gives the line. */
  unsettled(delivery: DeliveryInProgress, report: DeliveryReport, step: NextStep): string {
    const place = placeOf(delivery);
    const error = errorOf(report);
    this.emit({ name: report.outcome as 'failed' | 'busy' | 'unknown', error, ...place });
    const detail = `${delivery.consumer} ${report.outcome} on ${placeText(delivery)}, attempt ${delivery.attempt}: ${textOf(error)}`;
    if (step.step === 'again') {
      this.emit({ name: 'retried', error, delayMs: step.delayMs, ...place });
      this.#logger.warn(`${detail}; again in ${step.delayMs} ms`);
    } else {
      this.#logger.error(`${detail}; no further attempt`);
    }
    return detail;
  }

  parked(
    consumer: string,
    { topic, partition, offset }: ConsumedRecord,
    parked: Pick<EventPlace, 'eventId' | 'attempt'> & { state: ParkedState; reason: ParkReason; error?: unknown },
  ): void {
    const place = { topic, partition, offset: offset.toString(), eventId: parked.eventId };
    this.emit({ name: 'parked', consumer, ...place, ...parked });
    this.#logger.warn(`${consumer} parked ${placeText(place)} as ${parked.state} (${parked.reason})`);
  }

  parkedBefore(consumer: string, record: ConsumedRecord): void {
    this.#logger.log(`${consumer}: ${placeText(record)} is parked already, or was discarded, and is not run`);
  }

  /** Gives the line. */
  notParked(
    consumer: string,
    record: ConsumedRecord,
    { code, error, delayMs }: { code: ErrorCode; error: unknown; delayMs: number },
  ): string {
    const detail = `What is parked of ${placeText(record)} for ${consumer} could not be read or written, so the record stays in front: ${textOf(error)}`;
    this.#logger.error(`${detail}; again in ${delayMs} ms (${code})`);
    return detail;
  }

  stopped(error: IdempotencyError): void {
    this.#logger.error(error.message);
  }
}

export function errorOf(report: DeliveryReport): unknown {
  return 'error' in report ? report.error : undefined;
}

/** For a log line: without stack, bounded. */
export function textOf(error: unknown): string {
  const { name, message } = noteOf(error, new Date());
  return `${name}: ${oneLine(message, SHOWN_BYTES)}`;
}

interface Place {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string | bigint;
  readonly eventId?: string | undefined;
}

function placeText({ topic, partition, offset, eventId }: Place): string {
  return `${topic}[${partition}]@${offset}${eventId === undefined ? '' : `, event ${eventId}`}`;
}
