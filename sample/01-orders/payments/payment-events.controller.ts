import { Controller } from '@nestjs/common';
import { EventPattern, Payload } from '@nestjs/microservices';
import { InjectRepository } from '@nestjs/typeorm';
import { Idempotent } from 'nestjs-kafka-idempotency';
import { Repository } from 'typeorm';
import { ORDERS_CREATED } from '../settings.js';
import { OrderCreated } from './order-created.dto.js';
import { Payment } from './payment.entity.js';

@Controller()
export class PaymentEvents {
  constructor(@InjectRepository(Payment) private readonly payments: Repository<Payment>) {}

  /** An ordinary repository and an ordinary insert: both run in the transaction in which the event is marked as processed. */
  @EventPattern<string>(ORDERS_CREATED)
  @Idempotent({ consumer: 'payments.charge' })
  async charge(@Payload() order: OrderCreated): Promise<void> {
    await this.payments.insert({
      orderId: order.id,
      customer: order.customer,
      cents: order.cents,
      orderNumber: order.number ?? null,
    });
  }
}
