import { Controller, Get, ServiceUnavailableException } from '@nestjs/common';
import { IdempotencyHealth, type HealthReport } from 'nestjs-kafka-idempotency';

@Controller('health')
export class HealthController {
  constructor(private readonly health: IdempotencyHealth) {}

  /** 200 while the consumer makes progress, else 503 with the reasons. */
  @Get()
  async check(): Promise<HealthReport> {
    const report = await this.health.check();
    if (!report.ready) throw new ServiceUnavailableException(report);
    return report;
  }
}
