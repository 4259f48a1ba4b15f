import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { connections } from '../connections.js';
import { CreateShop1764547200001 } from './create-shop.migration.js';
import { Order } from './order.entity.js';
import { OrdersController } from './orders.controller.js';
import { PaymentEvents } from './payment-events.controller.js';
import { Payment } from './payment.entity.js';
import { ShipmentNews } from './shipment-news.controller.js';

@Module({
  imports: [
    ...connections('shop', { entities: [Order, Payment], migration: CreateShop1764547200001 }),
    TypeOrmModule.forFeature([Order, Payment]),
  ],
  controllers: [OrdersController, PaymentEvents, ShipmentNews],
})
export class ShopModule {}
