import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** Money taken for an order. Without a unique constraint too. */
@Entity('payments')
export class Payment {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column({ name: 'order_id', type: 'text' })
  orderId!: string;

  @Column({ type: 'integer' })
  cents!: number;
}
