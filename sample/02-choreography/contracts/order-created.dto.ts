import { IsInt, IsPositive, IsString, IsUUID, Length } from 'class-validator';

/** The payload of `orders.created`, from the shop to the shop. */
export class OrderCreated {
  @IsUUID()
  orderId!: string;

  @IsString()
  @Length(1, 100)
  customer!: string;

  @IsInt()
  @IsPositive()
  cents!: number;
}
