import { randomUUID } from 'node:crypto';
import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { NewOrder } from './new-order.dto.js';
import { OrderPublisher } from './order-publisher.js';

@Controller('orders')
export class OrdersController {
  constructor(private readonly publisher: OrderPublisher) {}

  /** Answered when Kafka has the event. A client that saw no answer sends the same id again: the payment is made once. */
  @Post()
  @HttpCode(202)
  async create(@Body() { id = randomUUID(), customer, cents }: NewOrder): Promise<{ id: string }> {
    await this.publisher.created({ id, customer, cents });
    return { id };
  }
}
