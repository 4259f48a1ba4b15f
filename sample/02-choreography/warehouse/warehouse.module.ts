import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { connections } from '../connections.js';
import { CreateWarehouse1764547200002 } from './create-warehouse.migration.js';
import { ShipmentEvents } from './shipment-events.controller.js';
import { Shipment } from './shipment.entity.js';

@Module({
  imports: [
    ...connections('warehouse', { entities: [Shipment], migration: CreateWarehouse1764547200002 }),
    TypeOrmModule.forFeature([Shipment]),
  ],
  controllers: [ShipmentEvents],
})
export class WarehouseModule {}
