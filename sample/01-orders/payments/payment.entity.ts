import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** Money taken for an order. Nothing here forbids two payments for one order: that there is one is the work of `@Idempotent()`. */
@Entity('payments')
export class Payment {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column({ name: 'order_id', type: 'text' })
  orderId!: string;

  @Column({ type: 'text' })
  customer!: string;

  @Column({ type: 'integer' })
  cents!: number;

  @Column({ name: 'order_number', type: 'integer', nullable: true })
  orderNumber!: number | null;

  @Column({ name: 'paid_at', type: 'timestamptz', default: () => 'clock_timestamp()' })
  paidAt!: Date;
}
