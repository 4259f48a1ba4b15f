import { Injectable, type OnApplicationShutdown, type OnModuleInit } from '@nestjs/common';
import { Kafka, Partitioners, type Producer } from 'kafkajs';
import type { OrderCreated } from '../payments/order-created.dto.js';
import { BROKERS, ORDERS_CREATED } from '../settings.js';

/**
 * Sends `orders.created`, with the order's id in the header `event-id`: that is what the handler is deduplicated by.
 *
 * It sends directly, which is right here because nothing else is written. A service that stores the order as well can die between the two, and
 * then one of them is missing: sample/02-choreography has the outbox that closes this gap.
 */
@Injectable()
export class OrderPublisher implements OnModuleInit, OnApplicationShutdown {
  readonly #producer: Producer = new Kafka({ clientId: 'orders', brokers: BROKERS }).producer({
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
  });

  async onModuleInit(): Promise<void> {
    await this.#producer.connect();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#producer.disconnect();
  }

  /** Resolves when every replica in sync has the event. The key keeps the orders of one customer in order. */
  async created(order: OrderCreated): Promise<void> {
    await this.#producer.send({
      topic: ORDERS_CREATED,
      acks: -1,
      messages: [{ key: order.customer, value: JSON.stringify(order), headers: { 'event-id': order.id } }],
    });
  }
}
