import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { EventPublisher, TransactionScope } from 'nestjs-kafka-idempotency';
import { Repository } from 'typeorm';
import type { OrderCreated } from '../contracts/order-created.dto.js';
import { ORDERS_CREATED } from '../settings.js';
import { NewOrder } from './new-order.dto.js';
import { Order } from './order.entity.js';

@Controller('orders')
export class OrdersController {
  constructor(
    @InjectRepository(Order) private readonly orders: Repository<Order>,
    private readonly publisher: EventPublisher,
    private readonly scope: TransactionScope,
  ) {}

  /**
   * The order and its event are one transaction, so that neither is there without the other. A client that got no answer sends the order again:
   * the `dedupeKey` tells, also after a restart, that it was taken before.
   */
  @Post()
  @HttpCode(202)
  create(@Body() { id, customer, cents }: NewOrder): Promise<{ id: string; again: boolean }> {
    const event: OrderCreated = { orderId: id, customer, cents };
    return this.scope.run(async () => {
      const { duplicate } = await this.publisher.publish(ORDERS_CREATED, event, { key: customer, dedupeKey: id });
      if (!duplicate) await this.orders.insert({ orderId: id, customer, cents });
      return { id, again: duplicate };
    });
  }
}
