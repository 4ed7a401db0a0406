import { ApiProperty } from '@nestjs/swagger';
import { httpUrlProblem, MAX_URL_LENGTH } from '../http-url.js';
import { all } from './dto.js';
import { Located, problem } from './located.js';

/** An `http` or `https` address without user and password. */
export function HttpUrl(): PropertyDecorator {
  return all(
    Located((value) => {
      if (typeof value !== 'string') return [problem('string_type', 'Must be a string')];
      const wrong = httpUrlProblem(value);
      return wrong === undefined ? [] : [problem('url', wrong)];
    }),
    ApiProperty({ type: String, format: 'uri', maxLength: MAX_URL_LENGTH }),
  );
}
