import { IsInt, IsPositive, IsString, IsUUID, Length } from 'class-validator';

/** The payload of `payments.captured`, from the shop to the warehouse. */
export class PaymentCaptured {
  @IsUUID()
  orderId!: string;

  @IsString()
  @Length(1, 100)
  customer!: string;

  @IsInt()
  @IsPositive()
  cents!: number;
}
