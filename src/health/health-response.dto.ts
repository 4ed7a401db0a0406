import { ApiSchema } from '@nestjs/swagger';

/** The process answers. */
@ApiSchema({ name: 'Alive', description: 'The process answers.' })
export class AliveResponse {
  status!: 'ok';
}

/** The process takes requests. */
@ApiSchema({ name: 'Ready', description: 'The process takes requests.' })
export class ReadyResponse {
  status!: 'ready';
}
