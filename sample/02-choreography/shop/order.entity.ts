import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** What a customer has bought. Nothing here forbids a second row for an order: that there is one is the work of `dedupeKey`. */
@Entity('orders')
export class Order {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column({ name: 'order_id', type: 'text' })
  orderId!: string;

  @Column({ type: 'text' })
  customer!: string;

  @Column({ type: 'integer' })
  cents!: number;

  /** How often the shop was told that it is on its way. More than once would show. */
  @Column({ type: 'integer', default: 0 })
  shipped!: number;
}
