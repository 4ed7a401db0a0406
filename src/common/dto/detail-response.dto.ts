import { ApiSchema } from '@nestjs/swagger';

/** A sentence: what was done, or why not. */
@ApiSchema({ name: 'Detail', description: 'A sentence: what was done, or why not.' })
export class DetailResponse {
  detail!: string;
}
