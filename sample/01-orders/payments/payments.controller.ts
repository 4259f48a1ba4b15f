import { Controller, Get, Param, ParseUUIDPipe } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { Repository } from 'typeorm';
import { Payment } from './payment.entity.js';

@Controller('orders/:id/payments')
export class PaymentsController {
  constructor(@InjectRepository(Payment) private readonly payments: Repository<Payment>) {}

  /** A list, so that a second payment could be seen. */
  @Get()
  ofOrder(@Param('id', ParseUUIDPipe) orderId: string): Promise<Payment[]> {
    return this.payments.find({ where: { orderId }, order: { id: 'ASC' } });
  }
}
