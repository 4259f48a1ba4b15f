import { Controller } from '@nestjs/common';
import { EventPattern, Payload } from '@nestjs/microservices';
import { InjectRepository } from '@nestjs/typeorm';
import { Idempotent } from 'nestjs-kafka-idempotency';
import { Repository } from 'typeorm';
import { ShipmentCreated } from '../contracts/shipment-created.dto.js';
import { SHIPMENTS_CREATED } from '../settings.js';
import { Order } from './order.entity.js';

@Controller()
export class ShipmentNews {
  constructor(@InjectRepository(Order) private readonly orders: Repository<Order>) {}

  /** Third hop, back in the shop. It adds, so that a second time would show. */
  @EventPattern<string>(SHIPMENTS_CREATED)
  @Idempotent({ consumer: 'shop.shipped' })
  async shipped(@Payload() { orderId }: ShipmentCreated): Promise<void> {
    await this.orders.increment({ orderId }, 'shipped', 1);
  }
}
