import { buildNative } from './lib/native.mjs';
import { complain } from './lib/output.mjs';

buildNative(complain);
