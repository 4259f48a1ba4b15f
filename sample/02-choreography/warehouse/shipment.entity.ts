import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** A parcel. Without a unique constraint on the order. */
@Entity('shipments')
export class Shipment {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column({ name: 'order_id', type: 'text' })
  orderId!: string;

  @Column({ type: 'integer' })
  cents!: number;
}
