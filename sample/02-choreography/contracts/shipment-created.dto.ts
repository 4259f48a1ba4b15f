import { IsInt, IsPositive, IsUUID } from 'class-validator';

/** The payload of `shipments.created`, from the warehouse to the shop. */
export class ShipmentCreated {
  @IsUUID()
  orderId!: string;

  /** What the parcel is worth. */
  @IsInt()
  @IsPositive()
  cents!: number;
}
