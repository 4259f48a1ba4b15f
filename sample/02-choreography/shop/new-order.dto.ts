import { IsInt, IsPositive, IsString, IsUUID, Length } from 'class-validator';

/** The body of `POST /orders`. */
export class NewOrder {
  /** Given by the client, so that it can send the order again when it got no answer. */
  @IsUUID()
  id!: string;

  @IsString()
  @Length(1, 100)
  customer!: string;

  @IsInt()
  @IsPositive()
  cents!: number;
}
