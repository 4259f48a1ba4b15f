import { Controller } from '@nestjs/common';
import { EventPattern, Payload } from '@nestjs/microservices';
import { InjectRepository } from '@nestjs/typeorm';
import { EventPublisher, Idempotent } from 'nestjs-kafka-idempotency';
import { Repository } from 'typeorm';
import { PaymentCaptured } from '../contracts/payment-captured.dto.js';
import type { ShipmentCreated } from '../contracts/shipment-created.dto.js';
import { PAYMENTS_CAPTURED, SHIPMENTS_CREATED } from '../settings.js';
import { Shipment } from './shipment.entity.js';

@Controller()
export class ShipmentEvents {
  constructor(
    @InjectRepository(Shipment) private readonly shipments: Repository<Shipment>,
    private readonly publisher: EventPublisher,
  ) {}

  /** Second hop, in the other service. */
  @EventPattern<string>(PAYMENTS_CAPTURED)
  @Idempotent({ consumer: 'warehouse.ship' })
  async ship(@Payload() { orderId, customer, cents }: PaymentCaptured): Promise<void> {
    await this.shipments.insert({ orderId, cents });
    const created: ShipmentCreated = { orderId, cents };
    await this.publisher.publish(SHIPMENTS_CREATED, created, { key: customer });
  }
}
