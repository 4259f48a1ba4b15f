import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { PaymentEvents } from './payment-events.controller.js';
import { Payment } from './payment.entity.js';
import { PaymentsController } from './payments.controller.js';

@Module({ imports: [TypeOrmModule.forFeature([Payment])], controllers: [PaymentEvents, PaymentsController] })
export class PaymentsModule {}
