import { Module } from '@nestjs/common';
import { OrderPublisher } from './order-publisher.js';
import { OrdersController } from './orders.controller.js';

@Module({ controllers: [OrdersController], providers: [OrderPublisher] })
export class OrdersModule {}
