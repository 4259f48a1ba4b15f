import { KafkaContext } from '@nestjs/microservices';

type Args = ConstructorParameters<typeof KafkaContext>[0];

/** A KafkaContext whose arguments are made when somebody asks for one of them: most handlers ask for none, and they are made for every record. */
export class LazyContext extends KafkaContext {
  readonly #make: () => Args;
  #made: Args | undefined;

  constructor(make: () => Args) {
    super(NONE);
    this.#make = make;
  }

  override getArgs(): Args {
    return (this.#made ??= this.#make());
  }
  override getArgByIndex(index: number): unknown {
    return this.getArgs()[index];
  }
  override getMessage(): Args[0] {
    return this.getArgs()[0];
  }
  override getPartition(): Args[1] {
    return this.getArgs()[1];
  }
  override getTopic(): Args[2] {
    return this.getArgs()[2];
  }
  override getConsumer(): Args[3] {
    return this.getArgs()[3];
  }
  override getHeartbeat(): Args[4] {
    return this.getArgs()[4];
  }
  override getProducer(): Args[5] {
    return this.getArgs()[5];
  }
}

const NONE = [] as unknown as Args;
