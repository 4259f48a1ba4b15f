import { Controller } from '@nestjs/common';
import { EventPattern, Payload } from '@nestjs/microservices';
import { InjectRepository } from '@nestjs/typeorm';
import { EventPublisher, Idempotent } from 'nestjs-kafka-idempotency';
import { Repository } from 'typeorm';
import { OrderCreated } from '../contracts/order-created.dto.js';
import type { PaymentCaptured } from '../contracts/payment-captured.dto.js';
import { ORDERS_CREATED, PAYMENTS_CAPTURED } from '../settings.js';
import { Payment } from './payment.entity.js';

@Controller()
export class PaymentEvents {
  constructor(
    @InjectRepository(Payment) private readonly payments: Repository<Payment>,
    private readonly publisher: EventPublisher,
  ) {}

  /** First hop. The payment, the mark that the order's event is processed, and the next event are one transaction. */
  @EventPattern<string>(ORDERS_CREATED)
  @Idempotent({ consumer: 'shop.charge' })
  async charge(@Payload() { orderId, customer, cents }: OrderCreated): Promise<void> {
    await this.payments.insert({ orderId, cents });
    const captured: PaymentCaptured = { orderId, customer, cents };
    await this.publisher.publish(PAYMENTS_CAPTURED, captured, { key: customer });
  }
}
