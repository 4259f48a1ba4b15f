import { IsInt, IsOptional, IsPositive, IsString, IsUUID, Length } from 'class-validator';

/** The payload of `orders.created`. */
export class OrderCreated {
  @IsUUID()
  id!: string;

  @IsString()
  @Length(1, 100)
  customer!: string;

  @IsInt()
  @IsPositive()
  cents!: number;

  /** Which of the customer's orders this is, 1 the first, from shops that count them. `npm run demo` does, and checks the order of payments by it. */
  @IsOptional()
  @IsInt()
  @IsPositive()
  number?: number;
}
